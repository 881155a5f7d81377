// Plain task graphs as JSON, read strictly and written without loss: for programs that would rather not parse tg1.
// Not: the format tg1 itself (simulate/task_graph_text.hpp), which is smaller and much faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/json_reader.hpp"
#include "tawpipe/simulate/task_graph.hpp"
#include "tawpipe/simulate/task_graph_text.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline TaskGraphPlatform platform_from_json(const JsonValue& value) {
  static constexpr std::string_view keys[] = {"nodes",           "devices_per_node", "intra_bandwidth_bytes_per_s",
                                              "intra_latency_s", "inter_latency_s",  "inter_bandwidth_bytes_per_s"};
  constexpr std::int64_t most = max_cluster_devices;
  value.expect_object(keys);
  TaskGraphPlatform platform;
  value.with("nodes", [&](const JsonValue& v) { platform.nodes = static_cast<std::int32_t>(v.whole(1, most)); });
  value.with("devices_per_node",
             [&](const JsonValue& v) { platform.devices_per_node = static_cast<std::int32_t>(v.whole(1, most)); });
  value.with("intra_bandwidth_bytes_per_s",
             [&](const JsonValue& v) { platform.intra_bandwidth = BytesPerSecond{v.positive_or_zero()}; });
  value.with("intra_latency_s", [&](const JsonValue& v) { platform.intra_latency_s = v.positive_or_zero(); });
  value.with("inter_bandwidth_bytes_per_s",
             [&](const JsonValue& v) { platform.inter_bandwidth = BytesPerSecond{v.positive_or_zero()}; });
  value.with("inter_latency_s", [&](const JsonValue& v) { platform.inter_latency_s = v.positive_or_zero(); });
  if (const auto fault = platform_fault(platform); !fault.empty()) value.fail(fault);
  return platform;
}

/// ["C", device, seconds, [dependencies]] or ["X", source, destination, bytes, [dependencies]].
inline void add_task_from_json(TaskGraph& graph, const JsonValue& value) {
  const std::size_t size = value.list_size();
  const auto element = [&](std::size_t i, auto&& visit) {
    const JsonPath path{value.path(), i};
    visit(JsonValue{value.json()[i], path});
  };
  bool message = false;
  if (size > 0) {
    element(0, [&](const JsonValue& v) {
      message = v.text() == "X";
      if (!message && v.text() != "C") v.fail(concat(shown(v.json()), " is no task; write C or X"));
    });
  }
  if (size != (message ? 5U : 4U)) {
    value.fail(R"(expected ["C", device, seconds, [deps]] or ["X", source, destination, bytes, [deps]])");
  }
  const auto devices = static_cast<std::size_t>(graph.platform.devices());
  std::int32_t device = 0;
  std::int32_t destination = -1;
  std::size_t next = 1;
  element(next++, [&](const JsonValue& v) { device = v.id(devices, "device"); });
  if (message) element(next++, [&](const JsonValue& v) { destination = v.id(devices, "device"); });
  element(next++, [&](const JsonValue& v) { graph.add(device, destination, v.positive_or_zero()); });
  element(next, [&](const JsonValue& v) {
    v.for_each([&](const JsonValue& earlier, std::size_t) { graph.wait_for(earlier.id(graph.tasks() - 1, "earlier task")); });
  });
  if (const auto fault = task_fault(graph, graph.tasks() - 1); !fault.empty()) value.fail(fault);
}

}  // namespace detail

/// A task graph from its JSON form (docs/task_graphs.md).
/// @throws InputError  in one line naming the place, for anything that is not exactly the format.
inline TaskGraph task_graph_from_json(std::string_view text, std::string_view source = "task graph") {
  try {
    const auto json = detail::parse_json_strictly(text);
    const detail::JsonPath root;
    const detail::JsonValue value{json, root};
    static constexpr std::string_view keys[] = {"format", "platform", "tasks"};
    value.expect_object(keys);
    value.with("format", [](const detail::JsonValue& v) {
      if (v.text() != "tg1") v.fail(concat("expected \"tg1\", not ", detail::shown(v.json())));
    });
    TaskGraph graph;
    value.with("platform", [&](const detail::JsonValue& v) { graph.platform = detail::platform_from_json(v); });
    value.with("tasks", [&](const detail::JsonValue& v) {
      if (v.list_size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) v.fail("so many tasks do not fit");
      v.for_each([&](const detail::JsonValue& task, std::size_t) { detail::add_task_from_json(graph, task); });
    });
    return graph;
  } catch (const InputError& error) {
    throw InputError(one_line(concat(source, ": ", error.what())));
  }
}

/// Writes a graph as JSON, one line a task, in pieces of some 64 KiB: `write(text)` each.
template <class Write>
void write_task_graph_json(const TaskGraph& graph, Write&& write) {
  std::string out = "{\n\"format\": \"tg1\",\n\"platform\": {";
  const TaskGraphPlatform& platform = graph.platform;
  const auto field = [&](std::string_view key, auto value, std::string_view end) {
    out += concat("\"", key, "\": ");
    detail::append_number(out, value);
    out += end;
  };
  field("nodes", platform.nodes, ", ");
  field("devices_per_node", platform.devices_per_node, ", ");
  field("intra_bandwidth_bytes_per_s", platform.intra_bandwidth.value(), ", ");
  field("intra_latency_s", platform.intra_latency_s, ", ");
  field("inter_bandwidth_bytes_per_s", platform.inter_bandwidth.value(), ", ");
  field("inter_latency_s", platform.inter_latency_s, "},\n\"tasks\": [");
  for (std::size_t t = 0; t < graph.tasks(); ++t) {
    out += t == 0 ? "\n[" : ",\n[";
    out += graph.is_compute(t) ? "\"C\", " : "\"X\", ";
    detail::append_number(out, graph.device(t));
    out += ", ";
    if (!graph.is_compute(t)) {
      detail::append_number(out, graph.destination(t));
      out += ", ";
    }
    detail::append_number(out, graph.amount(t));
    out += ", [";
    for (const std::int32_t earlier : graph.dependencies(t)) {
      detail::append_number(out, earlier);
      out += ", ";
    }
    if (!graph.dependencies(t).empty()) out.resize(out.size() - 2);
    out += "]]";
    if (out.size() >= std::size_t{64} << 10) {
      write(std::string_view{out});
      out.clear();
    }
  }
  out += "\n]\n}\n";
  write(std::string_view{out});
}

}  // namespace tawpipe
