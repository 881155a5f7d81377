// A schedule and its timeline as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing, in
// their JSON format.
// Not: the numbers for other programs (timeline/timeline_csv.hpp).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/analysis/held_time.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/schedule/check_devices.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/check_timeline.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

struct ChromeTraceOptions {
  const Cluster* cluster = nullptr;  ///< names each rank's node; at least as many ranks as the schedule
  bool arrows = true;                ///< from the source of each message to its destination, along the members of a collective
  bool counters = true;              ///< memory of each rank by kind; with a cluster also what each node sends
  const HeldTime* held = nullptr;    ///< the time that held SMs added to each computation
};

namespace detail {

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code = next_code_point(text, at);
    if (code == '"' || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(code));
    } else if (code == 0xFFFD) {
      out += "\\ufffd";
    } else {
      out += text.substr(start, at - start);
    }
  }
  out += '"';
  return out;
}

/// Collects events and passes them on in pieces, so that a trace of any length needs little memory.
template <class Sink>
class ChromeTraceWriter {
 public:
  ChromeTraceWriter(const Schedule& schedule, const Timeline& timeline, const ChromeTraceOptions& options, Sink& sink)
      : schedule_{schedule}, timeline_{timeline}, options_{options}, sink_{sink} {}

  void write() {
    add(R"({{"displayTimeUnit":"ns","otherData":{{"schedule":{})", json_string(schedule_.name()));
    std::string options;
    for (const auto& [key, value] : schedule_.options()) options += concat(options.empty() ? "" : " ", key, "=", value);
    if (!options.empty()) add(R"(,"options":{})", json_string(options));
    add(R"(}},"traceEvents":[)");
    for (int rank = 0; rank < schedule_.ranks(); ++rank) describe(Rank{rank});
    std::vector<TaskId> order;  // by time, as viewers that read a stream need it
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) order.push_back(id<TaskId>(t));
    std::stable_sort(order.begin(), order.end(),
                     [&](TaskId a, TaskId b) { return timeline_.start_of(a) < timeline_.start_of(b); });
    auto next = order.begin();
    const auto draw_before = [&](std::int64_t time) {
      for (; next != order.end() && timeline_.start_of(*next).picoseconds() < time; ++next) draw(*next);
    };
    if (options_.counters && !order.empty()) count(draw_before);
    draw_before(Duration::max().value());
    for (; next != order.end(); ++next) draw(*next);
    add("\n]}}\n");
    flush();
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Values>(values)...);
  }
  void flush() {
    sink_(std::string_view{buffer_});
    buffer_.clear();
  }
  /// Starts an event, with the separator of a JSON array.
  void begin_event() {
    if (buffer_.size() > 60'000) flush();
    add("{}", first_ ? "\n" : ",\n");
    first_ = false;
  }

  /// Microseconds, exact: a picosecond is the sixth digit.
  void add_microseconds(std::int64_t picoseconds) {
    const bool negative = picoseconds < 0;
    const std::uint64_t magnitude =
        negative ? std::uint64_t{0} - static_cast<std::uint64_t>(picoseconds) : static_cast<std::uint64_t>(picoseconds);
    add("{}{}", negative ? "-" : "", magnitude / 1'000'000);
    std::uint64_t fraction = magnitude % 1'000'000;
    if (fraction == 0) return;
    int digits = 6;
    for (; fraction % 10 == 0; --digits) fraction /= 10;
    add(".{:0{}}", fraction, digits);
  }

  /// Names of a rank and of those lanes of it that hold a task.
  void describe(Rank rank) {
    begin_event();
    add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {})", number(rank), number(rank));
    if (options_.cluster != nullptr) add(" (node {})", number(options_.cluster->node_of(rank)));
    add(R"("}}}})");
    begin_event();
    add(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", number(rank), number(rank));
    for (std::size_t lane = 0; lane < schedule_.lanes().size(); ++lane) {
      if (schedule_.program(rank, static_cast<int>(lane)).empty()) continue;
      begin_event();
      add(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", number(rank), lane,
          json_string(schedule_.lanes()[lane]));
      begin_event();
      add(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})", number(rank), lane, lane);
    }
  }

  /// Memory and links over time: the iteration cut into parts, each with its peak memory and mean
  /// rate.
  /// @param draw_before  draws the tasks that start before a time
  template <class DrawBefore>
  void count(DrawBefore&& draw_before) {
    constexpr std::size_t parts = 400;
    const auto held = memory_over_time(schedule_, timeline_, parts);
    std::vector<std::vector<double>> moved;
    if (options_.cluster != nullptr) moved = node_traffic_over_time(schedule_, *options_.cluster, timeline_, parts);
    for (std::size_t node = 0; 2 * node < moved.size(); ++node) describe_node(node);
    const double length = static_cast<double>(std::max<std::int64_t>(timeline_.makespan().value(), 1)) / parts;
    for (std::size_t part = 0; part <= parts; ++part) {
      const auto time = static_cast<std::int64_t>(std::min(static_cast<double>(part) * length, 9.2e18));
      draw_before(time);
      for (std::size_t rank = 0; rank < held.size() && part < parts; ++rank) {
        const auto now = held[rank].begin() + static_cast<std::ptrdiff_t>(part * buffer_kinds);
        const bool nothing = std::all_of(now, now + buffer_kinds, [](double bytes) { return bytes == 0; });
        if (part == 0 ? nothing : std::equal(now, now + buffer_kinds, now - buffer_kinds)) continue;
        begin_counter("memory", rank, time);
        for (int kind = 0; kind < buffer_kinds; ++kind) {
          add(R"({}"{}":{:.0f})", kind > 0 ? "," : "", name(static_cast<BufferKind>(kind)), now[kind]);
        }
        add("}}}}");
      }
      for (std::size_t row = 0; row < moved.size(); ++row) {
        const double now = part < parts ? moved[row][part] : 0;
        if (now == (part > 0 ? moved[row][part - 1] : 0)) continue;
        begin_counter(row % 2 == 0 ? "leaves the node, bytes/s" : "moves inside, bytes/s", held.size() + row / 2, time);
        add(R"("rate":{:.0f}}}}})", now / (length / 1e12));
      }
    }
  }

  void begin_counter(std::string_view what, std::size_t process, std::int64_t time) {
    begin_event();
    add(R"({{"ph":"C","name":"{}","pid":{},"ts":)", what, process);
    add_microseconds(time);
    add(R"(,"args":{{)");
  }

  /// A process of its own, after the ranks, for the traffic on a node's links.
  void describe_node(std::size_t node) {
    const std::size_t process = static_cast<std::size_t>(schedule_.ranks()) + node;
    begin_event();
    add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"links of node {}"}}}})", process, node);
    begin_event();
    add(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}})", process);
  }

  /// A task on each rank that takes part, and the arrow along them: for a pass from source to
  /// destination, for a sum to its root the root last, for any other collective its first member or
  /// root first.
  void draw(TaskId id) {
    const Task& task = schedule_.task(id);
    std::vector<std::pair<Rank, int>> ends;
    for_each_end(schedule_, id, [&](Rank rank, int lane) {
      add_slice(id, task, rank, lane);
      ends.emplace_back(rank, lane);
    });
    // A slice without length encloses no time that an arrow could be tied to.
    if (!options_.arrows || ends.size() < 2 || timeline_.duration_of(id) <= Duration{}) return;
    const auto root = std::find_if(ends.begin(), ends.end(), [&](const auto& end) { return end.first == task.rank; });
    if (root != ends.end()) std::rotate(ends.begin(), root, ends.end());
    if (is_rooted(task.op) && is_sum(task.op)) std::rotate(ends.begin(), ends.begin() + 1, ends.end());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      add_arrow_end(id, task, i == 0 ? "s" : i + 1 < ends.size() ? "t" : "f", ends[i].first, ends[i].second);
    }
  }

  void add_slice(TaskId id, const Task& task, Rank rank, int lane) {
    const bool carries = task.payload != Payload::nothing;
    begin_event();
    add(R"({{"ph":"X","name":"{})", name(task.op));
    if (carries) add(" {}", name(task.payload));
    if (task.stage != none<StageId>) add(" s{}", number(task.stage));
    if (task.microbatch >= 0) add(" m{}", task.microbatch);
    add(R"(","cat":"{}","cname":"{}","pid":{},"tid":{},"ts":)", is_compute(task.op) ? "compute" : "communication",
        traits(task.op).colors.trace, number(rank), lane);
    add_microseconds(timeline_.start_of(id).picoseconds());
    add(R"(,"dur":)");
    add_microseconds(timeline_.duration_of(id).value());
    add(R"(,"args":{{"task":{},"op":"{}")", number(id), name(task.op));
    if (carries) add(R"(,"payload":"{}")", name(task.payload));
    if (task.stage != none<StageId>) add(R"(,"stage":{})", number(task.stage));
    if (task.microbatch >= 0) add(R"(,"microbatch":{})", task.microbatch);
    if (options_.held != nullptr && options_.held->task_s[index(id)] > 0) {
      add(R"(,"slowed_us":{:.3f})", options_.held->task_s[index(id)] * 1e6);
    }
    if (task.bytes != Bytes{}) add(R"(,"bytes":{})", task.bytes.total().value());
    if (task.bytes.repeat() != 1) add(R"(,"repeat":{})", task.bytes.repeat());
    if (is_point_to_point(task.op)) add(R"(,"from":{},"to":{})", number(task.rank), number(task.peer));
    if (is_collective(task.op)) add(R"(,"group":{},"root":{})", number(task.group), number(task.rank));
    add("}}}}");
  }

  void add_arrow_end(TaskId id, const Task& task, std::string_view phase, Rank rank, int lane) {
    begin_event();
    add(R"({{"ph":"{}","id":{},"name":"{} {}","cat":"{}")", phase, number(id), name(task.op), name(task.payload), name(task.op));
    if (phase != "s") add(R"(,"bp":"e")");
    add(R"(,"pid":{},"tid":{},"ts":)", number(rank), lane);
    add_microseconds(timeline_.start_of(id).picoseconds());
    add("}}");
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const ChromeTraceOptions& options_;
  Sink& sink_;
  std::string buffer_;
  bool first_ = true;
};

}  // namespace detail

/// Writes the trace to `sink`, which is called with pieces of text in order: one process for each
/// rank, one thread for each lane, and a slice for each end or member of each task, with arrows and
/// counters, all in order of time. Times are microseconds, exact to the picosecond.
///
/// @throws InputError  if the timeline has a different number of tasks, or the cluster has fewer
/// ranks than the schedule.
/// Complexity: O(tasks log tasks + ends and members) time; memory for an index of the tasks and one
/// piece (64 KB).
/// Example:
/// ```cpp
/// std::FILE* file = std::fopen("trace.json", "wb");
/// tawpipe::write_chrome_trace(schedule, timeline, [&](std::string_view text) {
///   std::fwrite(text.data(), 1, text.size(), file);
/// }, {.cluster = &cluster});
/// ```
template <class Sink>
requires std::invocable<Sink&, std::string_view>
void write_chrome_trace(const Schedule& schedule, const Timeline& timeline, Sink&& sink, const ChromeTraceOptions& options = {}) {
  check_timeline(schedule, timeline);
  if (options.cluster != nullptr) check_devices(schedule, *options.cluster);
  detail::ChromeTraceWriter<Sink>{schedule, timeline, options, sink}.write();
}

/// The whole trace as one text. @see write_chrome_trace, for long ones
inline std::string chrome_trace(const Schedule& schedule, const Timeline& timeline, const ChromeTraceOptions& options = {}) {
  std::string out;
  write_chrome_trace(
      schedule, timeline, [&](std::string_view text) { out += text; }, options);
  return out;
}

}  // namespace tawpipe
