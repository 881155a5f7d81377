// Plain task graphs as text, format tg1: read strictly and fast, written without loss.
// Not: what they mean (task_graph.hpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/simulate/task_graph.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Reads tg1 in one pass over the text; every error names its line.
class TaskGraphReader {
 public:
  TaskGraphReader(std::string_view text, std::string_view source) : at_{text.data()}, end_{at_ + text.size()}, source_{source} {}

  TaskGraph read() {
    TaskGraph graph;
    if (word() != "tg1") throw fail("the first line must be tg1");
    finish_line();
    read_platform(graph.platform);
    const std::size_t tasks = read_count();
    // A line has at least "C 0 0 0\n", minus the last line's end: an impossible count is found
    // before memory is allocated for it.
    if (tasks > static_cast<std::size_t>(end_ - at_ + 1) / 8) throw fail(concat("the file is too short for ", tasks, " tasks"));
    graph.reserve(tasks, tasks * 2);
    for (std::size_t t = 0; t < tasks; ++t) read_task(graph, t, tasks);
    while (at_ != end_) {
      if (!word().empty()) throw fail(concat("nothing may follow the last of ", tasks, " tasks"));
      finish_line();
    }
    return graph;
  }

 private:
  InputError fail(std::string_view message) const { return InputError(concat(source_, ", line ", line_, ": ", message)); }

  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

  void skip_spaces() {
    while (at_ != end_ && is_space(*at_)) ++at_;
  }
  /// The next word of this line; "" at its end.
  std::string_view word() {
    skip_spaces();
    const char* const begin = at_;
    while (at_ != end_ && !is_space(*at_) && *at_ != '\n') ++at_;
    return {begin, static_cast<std::size_t>(at_ - begin)};
  }
  void finish_line() {
    skip_spaces();
    if (at_ == end_) return;
    if (*at_ != '\n') throw fail(concat(shown(word()), " is too much; the line should have ended before it"));
    ++at_;
    ++line_;
  }
  /// A word as shown in messages: short and on one line.
  static std::string shown(std::string_view word) { return quote(concat(word.substr(0, 40), word.size() > 40 ? "..." : "")); }

  template <class Number>
  Number number(std::string_view what) {
    skip_spaces();
    const std::string_view found = word();
    const auto value = to_number<Number>(found);
    if (value) return *value;
    throw fail(found.empty() ? concat(what, " is missing") : concat(shown(found), " is no ", what));
  }

  void read_platform(TaskGraphPlatform& platform) {
    if (word() != "platform") throw fail("this line must be: platform NODES DEVICES INTRA_BW INTRA_LAT INTER_BW INTER_LAT");
    platform.nodes = number<std::int32_t>("number of nodes");
    platform.devices_per_node = number<std::int32_t>("number of devices a node");
    platform.intra_bandwidth = BytesPerSecond{number<double>("bandwidth in bytes a second")};
    platform.intra_latency_s = number<double>("latency in seconds");
    platform.inter_bandwidth = BytesPerSecond{number<double>("bandwidth in bytes a second")};
    platform.inter_latency_s = number<double>("latency in seconds");
    if (const auto fault = platform_fault(platform); !fault.empty()) throw fail(fault);
    finish_line();
  }

  std::size_t read_count() {
    if (word() != "tasks") throw fail("this line must be: tasks COUNT");
    const auto count = number<std::int32_t>("number of tasks");
    if (count < 0) throw fail("the number of tasks must not be negative");
    finish_line();
    return static_cast<std::size_t>(count);
  }

  void read_task(TaskGraph& graph, std::size_t task, std::size_t tasks) {
    const std::string_view kind = word();
    if (kind != "C" && kind != "X") {
      if (at_ == end_ && kind.empty()) throw fail(concat("the file ends after ", task, " of ", tasks, " tasks"));
      throw fail(
          concat(shown(kind), " is not a task; write C DEVICE SECONDS NDEPS DEP... or X SOURCE DESTINATION BYTES NDEPS DEP..."));
    }
    const auto device = number<std::int32_t>("device");
    if (kind == "C") {
      graph.add(device, -1, number<double>("time in seconds"));
    } else {
      const auto destination = number<std::int32_t>("device");
      if (destination < 0) throw fail(concat("device ", destination, " does not exist"));
      graph.add(device, destination, number<double>("number of bytes"));
    }
    const auto dependencies = number<std::int32_t>("number of dependencies");
    if (dependencies < 0) throw fail("the number of dependencies must not be negative");
    for (std::int32_t i = 0; i < dependencies; ++i) graph.wait_for(number<std::int32_t>("dependency"));
    if (const auto fault = task_fault(graph, task); !fault.empty()) throw fail(fault);
    finish_line();
  }

  const char* at_;
  const char* end_;
  std::string_view source_;
  std::size_t line_ = 1;
};

template <class Number>
void append_number(std::string& out, Number value) {
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, result.ptr);
}

}  // namespace detail

/// A task graph from text of format tg1 (docs/task_graphs.md).
/// @param source  the file's name, for messages
/// @throws InputError  in one line naming the place, for anything that is not exactly the format.
/// Complexity: O(size of the text).
inline TaskGraph parse_task_graph(std::string_view text, std::string_view source = "task graph") {
  return detail::TaskGraphReader{text, source}.read();
}

/// Writes a graph as tg1 in pieces of about 64 KiB, `write(text)` each; parse_task_graph() of the
/// text gives an equal graph.
template <class Write>
void write_task_graph(const TaskGraph& graph, Write&& write) {
  std::string out = "tg1\nplatform ";
  const TaskGraphPlatform& platform = graph.platform;
  for (const std::int32_t count : {platform.nodes, platform.devices_per_node}) {
    detail::append_number(out, count);
    out += ' ';
  }
  for (const double value :
       {platform.intra_bandwidth.value(), platform.intra_latency_s, platform.inter_bandwidth.value(), platform.inter_latency_s}) {
    detail::append_number(out, value);
    out += ' ';
  }
  out.back() = '\n';
  out += concat("tasks ", graph.tasks(), "\n");
  for (std::size_t t = 0; t < graph.tasks(); ++t) {
    out += graph.is_compute(t) ? "C " : "X ";
    detail::append_number(out, graph.device(t));
    out += ' ';
    if (!graph.is_compute(t)) {
      detail::append_number(out, graph.destination(t));
      out += ' ';
    }
    detail::append_number(out, graph.amount(t));
    out += ' ';
    detail::append_number(out, graph.dependencies(t).size());
    for (const std::int32_t earlier : graph.dependencies(t)) {
      out += ' ';
      detail::append_number(out, earlier);
    }
    out += '\n';
    if (out.size() >= std::size_t{64} << 10) {
      write(std::string_view{out});
      out.clear();
    }
  }
  write(std::string_view{out});
}

/// A task graph file, as large as read_text_file() reads. @throws InputError  if it cannot be read,
/// and as parse_task_graph().
inline TaskGraph read_task_graph(const std::string& path) {
  return parse_task_graph(read_text_file(path, "task graph", 1 << 20), one_line(path));
}

}  // namespace tawpipe
