// Tests of simulate/task_graph_text.hpp: the format tg1.
// Not: what the graphs mean (task_graph_test.cpp).
#include "tawpipe/simulate/task_graph_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"

using namespace tawpipe::literals;
using tawpipe::parse_task_graph;
using tawpipe::TaskGraph;

namespace {

const std::string head = "tg1\nplatform 2 2 100 0.5 10 1\n";

std::string written(const TaskGraph& graph) {
  std::string text;
  tawpipe::write_task_graph(graph, [&](std::string_view part) { text += part; });
  return text;
}

std::string fault(const std::string& text) {
  try {
    parse_task_graph(text, "g");
  } catch (const tawpipe::InputError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a graph is read as it is written") {
  const TaskGraph graph = parse_task_graph(head + "tasks 3\nC 0 2.0 0\nX 0 2 100 1 0\nC 2 1.5 2 0 1\n");
  CHECK(graph.platform.nodes == 2);
  CHECK(graph.platform.devices() == 4);
  CHECK(graph.platform.intra_latency_s == 0.5);
  CHECK(graph.platform.inter_bandwidth.value() == 10);
  CHECK(graph.tasks() == 3);
  CHECK(graph.edges() == 3);
  CHECK(graph.is_compute(0));
  CHECK(graph.amount(0) == 2);
  CHECK(graph.device(1) == 0);
  CHECK(graph.destination(1) == 2);
  CHECK(graph.dependencies(2).size() == 2);
  CHECK(written(graph) == head + "tasks 3\nC 0 2 0\nX 0 2 100 1 0\nC 2 1.5 2 0 1\n");
}

TEST_CASE("what is written is read back equal, whatever the numbers") {
  TaskGraph graph;
  graph.platform = {3, 7, tawpipe::BytesPerSecond{1.5e11 / 7}, 5.0000000000000004e-06, tawpipe::BytesPerSecond{0.1}, 0};
  graph.compute(20, 0.1 + 0.2);
  graph.message(0, 20, 1e17 / 3);
  for (int t = 2; t < 20'000; ++t) {
    graph.add(t % 21, (t * 5 + 1) % 21 == t % 21 ? -1 : (t * 5 + 1) % 21, t / 3.0);
    graph.wait_for(t - 1);
    graph.wait_for(t / 2);
  }
  CHECK(parse_task_graph(written(graph)) == graph);
}

TEST_CASE("spaces, tabs, line ends of Windows, and lines without anything at the end are taken") {
  CHECK(parse_task_graph("tg1\r\nplatform\t1 1 1 0 1  0 \r\ntasks 1\r\n  C 0 1e-3 0\r\n\n \n").tasks() == 1);
  CHECK(parse_task_graph("tg1\nplatform 1 1 1 0 1 0\ntasks 1\nC 0 1 0").tasks() == 1);  // no line end
  CHECK(parse_task_graph("tg1\nplatform 1 1 1 0 1 0\ntasks 0").tasks() == 0);
}

TEST_CASE("anything else is refused, with its line") {
  CHECK(fault("") == "g, line 1: the first line must be tg1");
  CHECK(fault("tg2\n") == "g, line 1: the first line must be tg1");
  CHECK(fault("tg1 x\n") == "g, line 1: 'x' is too much; the line should have ended before it");
  CHECK(fault("tg1\n") == "g, line 2: this line must be: platform NODES DEVICES INTRA_BW INTRA_LAT INTER_BW INTER_LAT");
  CHECK(fault("tg1\nplatform 0 2 100 0.5 10 1\n") == "g, line 2: nodes and devices per node must be at least 1");
  CHECK(fault("tg1\nplatform 100000 100000 100 0.5 10 1\n") == "g, line 2: at most 1000000 devices fit");
  CHECK(fault("tg1\nplatform 1 2 0 0.5 10 1\n") == "g, line 2: a bandwidth must be above zero, in bytes a second");
  CHECK(fault("tg1\nplatform 1 2 inf 0.5 10 1\n") == "g, line 2: 'inf' is no bandwidth in bytes a second");
  CHECK(fault("tg1\nplatform 1 2 1 -1 10 1\n") == "g, line 2: a latency must lie between 0 and 1000 seconds");
  CHECK(fault("tg1\nplatform 1 2 1 nan 10 1\n") == "g, line 2: 'nan' is no latency in seconds");
  CHECK(fault("tg1\nplatform 1 2 1 1 10\n") == "g, line 2: latency in seconds is missing");
  CHECK(fault("tg1\nplatform 1 2 1GBps 1 10 1\n") == "g, line 2: '1GBps' is no bandwidth in bytes a second");
  CHECK(fault(head + "C 0 1 0\n") == "g, line 3: this line must be: tasks COUNT");
  CHECK(fault(head + "tasks -1\n") == "g, line 3: the number of tasks must not be negative");
  CHECK(fault(head + "tasks 2000000000\nC 0 1 0\n") == "g, line 4: the file is too short for 2000000000 tasks");
  CHECK(fault(head + "tasks 3000000000\n") == "g, line 3: '3000000000' is no number of tasks");
  CHECK(fault(head + "tasks 2\nC 0 1 0         \n") == "g, line 5: the file ends after 1 of 2 tasks");
  CHECK(fault(head + "tasks 1\nC 0 1 0\nC 0 1 0\n") == "g, line 5: nothing may follow the last of 1 tasks");
  CHECK(fault(head + "tasks 1\nD 0 1 0 \n") ==
        "g, line 4: 'D' is not a task; write C DEVICE SECONDS NDEPS DEP... or X SOURCE DESTINATION BYTES NDEPS DEP...");
  CHECK(fault(head + "tasks 1\nC 4 1 0 \n") == "g, line 4: device 4 does not exist; the platform has devices 0 to 3");
  CHECK(fault(head + "tasks 1\nC -1 1 0 \n") == "g, line 4: device -1 does not exist; the platform has devices 0 to 3");
  CHECK(fault(head + "tasks 1\nX 0 -1 1 0 \n") == "g, line 4: device -1 does not exist");
  CHECK(fault(head + "tasks 1\nX 1 1 1 0 \n") == "g, line 4: a message must go to another device than it comes from");
  CHECK(fault(head + "tasks 1\nX 0 1 -1 0 \n") == "g, line 4: a message must have 0 to 9e18 bytes");
  CHECK(fault(head + "tasks 1\nC 0 1e7 0 \n") == "g, line 4: a computation must take 0 to 9e6 seconds");
  CHECK(fault(head + "tasks 1\nC 0 1.5 -1 \n") == "g, line 4: the number of dependencies must not be negative");
  CHECK(fault(head + "tasks 1\nC 0 1 1 0 \n") == "g, line 4: it cannot wait for task 0, only for those before it");
  CHECK(fault(head + "tasks 2\nC 0 1 0 \nC 0 1 2 0 \n") == "g, line 5: dependency is missing");
  CHECK(fault(head + "tasks 2\nC 0 1 0 \nC 0 1 1 0 0 \n") == "g, line 5: '0' is too much; the line should have ended before it");
  CHECK(fault(head + "tasks 2\nC 0 1 0 \nC 0 1.5.5 1 0 \n") == "g, line 5: '1.5.5' is no time in seconds");
  CHECK(fault(head + "tasks 1\nC 0 1 0 # note \n") == "g, line 4: '#' is too much; the line should have ended before it");
}

TEST_CASE("a word as long as the file does not make a long message, nor one of several lines") {
  const std::string message = fault(head + "tasks 1\nC " + std::string(100'000, 'x') + "\n");
  CHECK(message.size() < 100);
  CHECK(fault(head + "tasks 1\nC \x01z 1 0\n") == "g, line 4: '?z' is no device");
}

TEST_CASE("a file that is not there, or is a folder") {
  CHECK_THROWS_WITH_AS(tawpipe::read_task_graph("/no/such.tg"), doctest::Contains("the task graph '/no/such.tg' cannot be read"),
                       tawpipe::InputError);
  CHECK_THROWS_WITH_AS(tawpipe::read_task_graph("/"), doctest::Contains("the task graph '/' cannot be read"),
                       tawpipe::InputError);
}

TEST_CASE("read from text: 30 s by hand") {
  // as the graph of engine_test.cpp
  const TaskGraph graph =
      parse_task_graph(head + "tasks 5\nC 0 2.0 0\nX 0 2 100 1 0\nX 1 3 50 1 0\nX 2 3 1000 1 1\nC 3 1.5 2 2 3\n");
  CHECK(tawpipe::simulate(graph).makespan() == 30_s);
}
