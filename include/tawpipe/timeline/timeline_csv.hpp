// A timeline as CSV, one row a task, written and read without loss: what happened when, for
// plotting by any program.
// Not: the schedule itself (its dependencies, buffers and lanes' names are not in it).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/check_timeline.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// The first line of a timeline's CSV.
inline constexpr std::string_view timeline_csv_header =
    "task,op,payload,rank,peer,group,lane,stage,microbatch,bytes,start_s,end_s";

/// What a timeline's CSV holds. A Task's `peer_lane` and `step` are not in the file.
struct RecordedTimeline {
  std::vector<Task> tasks;  ///< [task]
  Timeline timeline;
};

namespace detail {

inline constexpr std::size_t timeline_csv_columns = 12;

/// A number's digits; an absent id is an empty cell.
inline void append_cell(std::string& out, std::int64_t value, bool present = true) {
  if (present) out += std::to_string(value);
  out += ',';
}

/// Seconds with 12 decimal digits: exact, since the last one is a picosecond.
inline void append_seconds(std::string& out, TimePoint time) {
  const std::int64_t picoseconds = time.picoseconds();
  const bool negative = picoseconds < 0;
  const auto bits = static_cast<std::uint64_t>(picoseconds);
  const std::uint64_t magnitude = negative ? std::uint64_t{0} - bits : bits;
  const std::string fraction = std::to_string(magnitude % 1'000'000'000'000U);
  if (negative) out += '-';
  out += std::to_string(magnitude / 1'000'000'000'000U);
  out += '.';
  out.append(12 - fraction.size(), '0');
  out += fraction;
}

/// A row up to and including the comma before its times.
inline void append_task(std::string& out, std::size_t index_of_task, const Task& task) {
  append_cell(out, static_cast<std::int64_t>(index_of_task));
  out += name(task.op);
  out += ',';
  out += name(task.payload);
  out += ',';
  append_cell(out, number(task.rank), task.rank != none<Rank>);
  append_cell(out, number(task.peer), task.peer != none<Rank>);
  append_cell(out, number(task.group), task.group != none<GroupId>);
  append_cell(out, number(task.lane));
  append_cell(out, number(task.stage), task.stage != none<StageId>);
  append_cell(out, task.microbatch, task.microbatch >= 0);
  append_cell(out, task.bytes.total().value());
}

/// Reads row by row; an error names the line and the column. Only what the writer writes is
/// accepted.
class TimelineCsvReader {
 public:
  TimelineCsvReader(std::string_view text, std::string_view source) : rows_{text, source} {}

  RecordedTimeline read() {
    RecordedTimeline recorded;
    if (!rows_.next() || rows_.line() != timeline_csv_header)
      throw rows_.fail(concat("the first line must be ", timeline_csv_header));
    while (rows_.next()) {
      if (cells().size() != timeline_csv_columns) {
        throw rows_.fail(concat(cells().size(), " columns instead of ", timeline_csv_columns));
      }
      if (integer(0, limit) != static_cast<std::int64_t>(recorded.tasks.size())) {
        throw fail(0, concat("this row must be task ", recorded.tasks.size(), "; each task has one row, in order"));
      }
      recorded.tasks.push_back(task());
      const TimePoint start = time(10);
      const TimePoint end = time(11);
      if (end < start) throw fail(11, concat("the task ends before it starts, at ", cells()[10]));
      recorded.timeline.start.push_back(start);
      recorded.timeline.end.push_back(end);
    }
    return recorded;
  }

 private:
  static constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();

  const std::vector<std::string_view>& cells() const { return rows_.cells(); }
  InputError fail(std::size_t column, std::string_view why) const {
    return rows_.fail(column, why, split(timeline_csv_header, ',')[column]);
  }
  static std::string shown(std::string_view cell) { return CsvReader::shown(cell); }

  Task task() const {
    Task task;
    task.op = named<Op, ops>(1, "op");
    task.payload = named<Payload, payloads>(2, "payload");
    task.rank = id<Rank>(integer(3, limit));
    task.peer = id<Rank>(optional(4));
    task.group = id<GroupId>(optional(5));
    task.lane = id<LaneId>(integer(6, std::numeric_limits<std::uint8_t>::max()));
    task.stage = id<StageId>(optional(7));
    task.microbatch = static_cast<std::int32_t>(optional(8));
    task.bytes = Bytes{integer(9, std::numeric_limits<std::int64_t>::max())};
    return task;
  }

  template <class Enum, int count>
  Enum named(std::size_t column, std::string_view kind) const {
    std::vector<std::string> known;
    for (int i = 0; i < count; ++i) {
      if (cells()[column] == name(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    for (int i = 0; i < count; ++i) known.emplace_back(name(static_cast<Enum>(i)));
    throw fail(column, concat(shown(cells()[column]), " is no ", kind, "; known: ", join(known, ", ")));
  }

  /// Only digits, without leading zeros, at most `most`; -1 if they are anything else.
  static std::int64_t whole(std::string_view digits, std::int64_t most) {
    if (digits.empty() || digits.front() == '-' || (digits.size() > 1 && digits.front() == '0')) return -1;
    const auto value = to_number<std::int64_t>(digits);
    return value && *value <= most ? *value : -1;
  }

  std::int64_t integer(std::size_t column, std::int64_t most) const {
    const std::int64_t value = whole(cells()[column], most);
    if (value < 0) throw fail(column, concat(shown(cells()[column]), " is not a whole number from 0 to ", most));
    return value;
  }
  std::int64_t optional(std::size_t column) const { return cells()[column].empty() ? -1 : integer(column, limit); }

  TimePoint time(std::size_t column) const {
    constexpr std::int64_t second = 1'000'000'000'000;
    std::string_view digits = cells()[column];
    const bool negative = !digits.empty() && digits.front() == '-';
    if (negative) digits.remove_prefix(1);
    const auto point = digits.find('.');
    if (point != std::string_view::npos && digits.size() - point == 13) {
      const std::int64_t seconds_part = whole(digits.substr(0, point), Duration::max().value() / second);
      // A leading 1 distinguishes the fraction's zeros from forbidden leading ones.
      const std::int64_t fraction = whole(concat("1", digits.substr(point + 1)), 2 * second - 1) - second;
      const bool fits = seconds_part >= 0 && fraction >= 0 && seconds_part * second <= Duration::max().value() - fraction;
      if (const std::int64_t value = fits ? seconds_part * second + fraction : 0; fits && !(negative && value == 0)) {
        return TimePoint{Duration{negative ? -value : value}};
      }
    }
    throw fail(column, concat(shown(cells()[column]),
                              " is not a time; write seconds with 12 digits after the point, such as 0.000601000000"));
  }

  CsvReader rows_;
};

}  // namespace detail

/// Writes one row for each task to `sink`, which is called with pieces of text in order. Times are
/// seconds, exact to the picosecond; a rank, peer, group, stage or microbatch that a task lacks is
/// an empty cell.
///
/// @throws InputError  if the timeline has a different number of tasks from the schedule.
/// Complexity: O(tasks) time; memory for one piece (64 KB).
template <class Sink>
requires std::invocable<Sink&, std::string_view>
void write_timeline_csv(const Schedule& schedule, const Timeline& timeline, Sink&& sink) {
  const std::size_t tasks = schedule.tasks().size();
  check_timeline(schedule, timeline);
  std::string piece{timeline_csv_header};
  piece += '\n';
  for (std::size_t t = 0; t < tasks; ++t) {
    detail::append_task(piece, t, schedule.tasks()[t]);
    detail::append_seconds(piece, timeline.start[t]);
    piece += ',';
    detail::append_seconds(piece, timeline.end[t]);
    piece += '\n';
    if (piece.size() > 60'000) {
      sink(std::string_view{piece});
      piece.clear();
    }
  }
  sink(std::string_view{piece});
}

/// The whole CSV as one text. @see write_timeline_csv, for long timelines
inline std::string timeline_csv(const Schedule& schedule, const Timeline& timeline) {
  std::string out;
  write_timeline_csv(schedule, timeline, [&](std::string_view text) { out += text; });
  return out;
}

/// Reads what write_timeline_csv wrote, and nothing else: all columns, tasks in order, no missing
/// digit.
/// @param source  the file's name, for messages
/// @throws InputError  naming line and column.
/// Complexity: O(characters).
inline RecordedTimeline parse_timeline_csv(std::string_view text, std::string_view source = "timeline") {
  return detail::TimelineCsvReader{text, source}.read();
}

/// Reads the timeline of `schedule`: its tasks must be the file's.
/// @throws InputError  naming the first line and column where the file belongs to another schedule.
inline Timeline parse_timeline_csv(std::string_view text, const Schedule& schedule, std::string_view source = "timeline") {
  RecordedTimeline recorded = parse_timeline_csv(text, source);
  const std::size_t tasks = schedule.tasks().size();
  for (std::size_t t = 0; t < recorded.tasks.size() && t < tasks; ++t) {
    std::string found;
    std::string expected;
    detail::append_task(found, t, recorded.tasks[t]);
    detail::append_task(expected, t, schedule.tasks()[t]);
    if (found == expected) continue;
    const auto cells = split(found, ',');
    const auto wanted = split(expected, ',');
    std::size_t column = 0;
    while (cells[column] == wanted[column]) ++column;
    throw InputError(concat(source, ", line ", t + 2, ", column ", column + 1, " (", split(timeline_csv_header, ',')[column],
                            "): ", quote(cells[column]), ", but task ", t, " of schedule ", schedule.name(), " has ",
                            quote(wanted[column])));
  }
  if (recorded.tasks.size() != tasks) {
    throw InputError(concat(source, " has ", recorded.tasks.size(), " tasks, but schedule ", schedule.name(), " has ", tasks));
  }
  return std::move(recorded.timeline);
}

}  // namespace tawpipe
