// A schedule as JSON: all of its parts, written without loss, and easy to write by hand
// (docs/interchange.md).
// Not: its results (summary_json.hpp), nor its validation (verify/validate.hpp).
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_writer.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Writes the schedule to `sink`, which is called with pieces of text in order. A line for each
/// stage, group, buffer and task; default values are left out, and so is the program order if it is
/// the order of the tasks.
///
/// @throws ScheduleError  if its parts are inconsistent, such as invalid ids. Nothing is then
/// written.
/// Complexity: O(parts) time; memory for one piece (64 KB) and two numbers a lane.
template <class Sink>
requires std::invocable<Sink&, std::string_view>
void write_schedule_json(const Schedule& schedule, Sink&& sink) { detail::ScheduleJsonWriter<Sink>{schedule, sink}.write(); }

/// The whole text at once. parse_schedule_json() restores the same schedule, and writing that gives
/// the same bytes.
inline std::string schedule_json(const Schedule& schedule) {
  std::string out;
  write_schedule_json(schedule, [&](std::string_view text) { out += text; });
  return out;
}

/// Reads a schedule; a file written by hand only needs tasks:
/// `{"tasks": [{"op": "forward", "rank": 0, "stage": 0, "microbatch": 0}]}`.
///
/// Afterwards every id is in range, and every task is in a program; validate() checks whether the
/// schedule can run.
/// @param source  the file's name, for messages
/// @throws InputError  in one line: the position of the syntax error, or the path of the error,
/// such as tasks[12].rank, and a valid value.
/// Complexity: O(text log names).
inline Schedule parse_schedule_json(std::string_view text, std::string_view source = "schedule") {
  const JsonDocument json{text, source};
  return detail::ScheduleJsonReader{json.root()}.read();
}

}  // namespace tawpipe
