// Tests of report/task_graph_json.hpp: plain task graphs as JSON.
// Not: the format tg1 (unit/simulate/task_graph_text_test.cpp).
#include "tawpipe/report/task_graph_json.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"

namespace task_graph_json_test {

using tawpipe::task_graph_from_json;
using tawpipe::TaskGraph;

namespace {

const std::string head =
    R"({"format": "tg1", "platform": {"nodes": 2, "devices_per_node": 2, "intra_bandwidth_bytes_per_s": 100,
        "intra_latency_s": 0.5, "inter_bandwidth_bytes_per_s": 10, "inter_latency_s": 1}, "tasks": )";

std::string written(const TaskGraph& graph) {
  std::string text;
  tawpipe::write_task_graph_json(graph, [&](std::string_view part) { text += part; });
  return text;
}

std::string fault(const std::string& text) {
  try {
    task_graph_from_json(text, "g");
  } catch (const tawpipe::InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("the JSON form holds what the text holds") {
  const TaskGraph graph = tawpipe::parse_task_graph(
      "tg1\nplatform 2 2 100 0.5 10 1\ntasks 5\nC 0 2.0 0\nX 0 2 100 1 0\nX 1 3 50 1 0\nX 2 3 1000 1 1\nC 3 1.5 2 2 3\n");
  CHECK(task_graph_from_json(written(graph)) == graph);
  CHECK(task_graph_from_json(head + R"([["C", 0, 2, []], ["X", 0, 2, 100, [0]], ["X", 1, 3, 50, [0]], ["X", 2, 3, 1e3, [1]],
                                       ["C", 3, 1.5, [2, 3]]]})") == graph);
  CHECK(task_graph_from_json(head + "[]}").tasks() == 0);
}

TEST_CASE("a large graph is written in pieces and read back equal") {
  TaskGraph graph;
  graph.platform.devices_per_node = 5;
  graph.compute(0, 0.1);
  for (int t = 1; t < 5000; ++t) graph.message(t % 5, (t + 1) % 5, t / 7.0, {{t - 1}});
  int pieces = 0;
  tawpipe::write_task_graph_json(graph, [&](std::string_view) { ++pieces; });
  CHECK(pieces > 1);
  CHECK(task_graph_from_json(written(graph)) == graph);
}

TEST_CASE("anything else is refused, with its place") {
  CHECK(fault("[]").substr(0, 3) == "g: ");
  CHECK(fault("{").substr(0, 12) == "g: not JSON:");
  CHECK(fault("{}") == "g: 'format' is missing");
  CHECK(fault(R"({"format": "tg2"})") == R"(g: format: expected "tg1", not "tg2")");
  CHECK(fault(R"({"format": "tg1"})") == "g: 'platform' is missing");
  CHECK(fault(head + R"([], "more": 1})") == "g: unknown key 'more'; known: format, platform, tasks");
  CHECK(fault(head + R"([[]]})") ==
        R"(g: tasks[0]: expected ["C", device, seconds, [deps]] or ["X", source, destination, bytes, [deps]], not a list of 0)");
  CHECK(fault(head + R"([["D", 0, 2, []]]})") == R"(g: tasks[0][0]: "D" is not a task; write C or X)");
  CHECK(fault(head + R"([["C", 4, 2, []]]})") == "g: tasks[0][1]: there is no device 4; they are 0 to 3");
  CHECK(fault(head + R"([["C", 0, -2, []]]})") == "g: tasks[0][2]: expected a number, 0 or more, not -2");
  CHECK(fault(head + R"([["C", 0, 2, [0]]]})") == "g: tasks[0][3][0]: there is no earlier task 0; there are none");
  CHECK(fault(head + R"([["X", 1, 1, 2, []]]})") == "g: tasks[0]: a message must go to another device than it comes from");
  CHECK(fault(R"({"format": "tg1", "platform": {"nodes": 1, "devices_per_node": 1, "intra_bandwidth_bytes_per_s": 0,
        "intra_latency_s": 0, "inter_bandwidth_bytes_per_s": 1, "inter_latency_s": 0}})") ==
        "g: platform: a bandwidth must be above zero, in bytes a second");
}

}  // namespace task_graph_json_test
