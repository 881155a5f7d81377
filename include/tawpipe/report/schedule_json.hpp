// A schedule as JSON: everything it is made of, written without loss, and pleasant to write by hand (docs/interchange.md).
// Not: its results (summary_json.hpp), nor proof that it is right (verify/validate.hpp).
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_writer.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Writes the schedule to `sink`, which is called with pieces of text in order. A line for each stage, group, buffer and task;
/// what has a default is left out; the program order too where it is the order of the tasks.
///
/// @throws ScheduleError  if its parts do not fit together, so that ids lead nowhere. Nothing is written then.
/// Complexity: O(parts) time; memory of one piece (64 KB) and of two numbers a lane.
template <class Sink>
requires std::invocable<Sink&, std::string_view>
void write_schedule_json(const Schedule& schedule, Sink&& sink) { detail::ScheduleJsonWriter<Sink>{schedule, sink}.write(); }

/// The whole text at once. parse_schedule_json() of it gives the same schedule, and writing that the same bytes.
inline std::string schedule_json(const Schedule& schedule) {
  std::string out;
  write_schedule_json(schedule, [&](std::string_view text) { out += text; });
  return out;
}

/// Reads a schedule; a file made by hand needs its tasks alone:
/// `{"tasks": [{"op": "forward", "rank": 0, "stage": 0, "microbatch": 0}]}`.
///
/// Every id is in range afterwards, and every task stands in a program; whether the schedule can run is validate()'s to find out.
/// @param source  the file's name, for messages
/// @throws InputError  in one line: where the JSON breaks, or the path of what is wrong, such as tasks[12].rank, and what fits.
/// Complexity: O(text log names).
inline Schedule parse_schedule_json(std::string_view text, std::string_view source = "schedule") {
  const JsonDocument json{text, source};
  return detail::ScheduleJsonReader{json.root()}.read();
}

}  // namespace tawpipe
