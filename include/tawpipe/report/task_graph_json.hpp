// Plain task graphs as JSON, read strictly and written without loss: for programs that prefer not
// to parse tg1.
// Not: the format tg1 itself (simulate/task_graph_text.hpp), which is smaller and much faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/simulate/task_graph.hpp"
#include "tawpipe/simulate/task_graph_text.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline TaskGraphPlatform platform_from_json(JsonValue value) {
  value.only("nodes", "devices_per_node", "intra_bandwidth_bytes_per_s", "intra_latency_s", "inter_latency_s",
             "inter_bandwidth_bytes_per_s");
  const auto count = [&](std::string_view key) { return value.at(key).whole<std::int32_t>(1, max_cluster_devices); };
  const auto number = [&](std::string_view key) { return value.at(key).positive_or_zero(); };
  TaskGraphPlatform platform;
  platform.nodes = count("nodes");
  platform.devices_per_node = count("devices_per_node");
  platform.intra_bandwidth = BytesPerSecond{number("intra_bandwidth_bytes_per_s")};
  platform.intra_latency_s = number("intra_latency_s");
  platform.inter_bandwidth = BytesPerSecond{number("inter_bandwidth_bytes_per_s")};
  platform.inter_latency_s = number("inter_latency_s");
  if (const auto fault = platform_fault(platform); !fault.empty()) value.fail(fault);
  return platform;
}

/// ["C", device, seconds, [dependencies]] or ["X", source, destination, bytes, [dependencies]].
inline void add_task_from_json(TaskGraph& graph, JsonValue value) {
  const bool message = value.size() > 0 && value[0].text() == "X";
  if (value.size() > 0 && !message && value[0].text() != "C")
    value[0].fail(concat(value[0].shown(), " is not a task; write C or X"));
  value.of_size(message ? 5 : 4, R"(["C", device, seconds, [deps]] or ["X", source, destination, bytes, [deps]])");
  const auto devices = static_cast<std::size_t>(graph.platform.devices());
  const std::size_t amount = message ? 3 : 2;
  graph.add(value[1].id(devices, "device"), message ? value[2].id(devices, "device") : -1, value[amount].positive_or_zero());
  for (const JsonValue earlier : value[amount + 1]) graph.wait_for(earlier.id(graph.tasks() - 1, "earlier task"));
  if (const auto fault = task_fault(graph, graph.tasks() - 1); !fault.empty()) value.fail(fault);
}

}  // namespace detail

/// A task graph from its JSON form (docs/task_graphs.md).
/// @throws InputError  in one line naming the place, for anything that is not exactly the format.
inline TaskGraph task_graph_from_json(std::string_view text, std::string_view source = "task graph") {
  const JsonDocument json{text, source};
  const JsonValue value = json.root().only("format", "platform", "tasks");
  if (value.at("format").text() != "tg1") value.at("format").expected("\"tg1\"");
  TaskGraph graph;
  graph.platform = detail::platform_from_json(value.at("platform"));
  const JsonValue tasks = value.at("tasks");
  if (!std::in_range<std::int32_t>(tasks.size())) tasks.fail("so many tasks do not fit");
  for (const JsonValue task : tasks) detail::add_task_from_json(graph, task);
  return graph;
}

/// Writes a graph as JSON, one line a task, in pieces of about 64 KiB: `write(text)` each.
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
