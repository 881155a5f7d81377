// Tests of simulate/task_graph.hpp: plain graphs by hand.
// Not: their text (task_graph_text_test.cpp) nor recorded ones (oracle/task_graphs_test.cpp).
#include "tawpipe/simulate/task_graph.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "tawpipe/core/error.hpp"

using namespace tawpipe::literals;
using tawpipe::BytesPerSecond;
using tawpipe::simulate;
using tawpipe::TaskGraph;
using tawpipe::TaskGraphPlatform;
using tawpipe::Timeline;

namespace {

/// Two nodes of two devices: 100 B/s after 0.5 s inside, 10 B/s after 1 s between.
TaskGraph graph() {
  TaskGraph graph;
  graph.platform = {2, 2, BytesPerSecond{100}, 0.5, BytesPerSecond{10}, 1};
  return graph;
}

}  // namespace

TEST_CASE("computations that wait for each other run one after the other") {
  TaskGraph two = graph();
  two.compute(0, 2);
  two.compute(0, 3, std::vector{0});
  two.compute(1, 1);
  const Timeline timeline = simulate(two);
  CHECK(timeline.makespan() == 5_s);
  CHECK(timeline.start[1] == timeline.end[0]);
  CHECK(timeline.end[2].since_start() == 1_s);
}

TEST_CASE("a message inside a node takes the latency and its bytes over both ways") {
  TaskGraph one = graph();
  one.message(0, 1, 100);
  CHECK(simulate(one).makespan() == 1500_ms);
}

TEST_CASE("inside a node the ways out of one device and into one are shared, others are not") {
  TaskGraph out = graph();
  out.platform.devices_per_node = 4;
  out.message(0, 1, 100);
  out.message(0, 2, 100);
  CHECK(simulate(out).makespan() == 2500_ms);  // 100 bytes each at 50 B/s
  TaskGraph in = graph();
  in.platform.devices_per_node = 4;
  in.message(0, 2, 100);
  in.message(1, 2, 100);
  CHECK(simulate(in).makespan() == 2500_ms);
  TaskGraph apart = graph();
  apart.platform.devices_per_node = 4;
  apart.message(0, 1, 100);
  apart.message(1, 0, 100);
  apart.message(2, 3, 100);
  CHECK(simulate(apart).makespan() == 1500_ms);
}

TEST_CASE("between nodes all devices of a node share one way out and one way in") {
  TaskGraph both = graph();
  both.message(0, 2, 10);
  both.message(1, 3, 10);
  CHECK(simulate(both).makespan() == 3_s);  // 5 B/s each after 1 s
  both.message(2, 0, 20);                   // the other direction
  both.message(0, 1, 100);                  // inside the node
  CHECK(simulate(both).makespan() == 3_s);
}

TEST_CASE("a message of no bytes takes its latency") {
  TaskGraph empty = graph();
  empty.message(0, 3, 0);
  CHECK(simulate(empty).makespan() == 1_s);
}

TEST_CASE("a graph without tasks takes no time") { CHECK(simulate(graph()).makespan() == 0_s); }

TEST_CASE("fractions of a picosecond are not lost between tasks") {
  // 1 byte at 3 B/s, three times: 1 s, and not three times the rounded third
  TaskGraph thirds;
  thirds.platform = {1, 2, BytesPerSecond{3e12}, 0, BytesPerSecond{1}, 0};
  thirds.message(0, 1, 1);
  thirds.message(0, 1, 1, std::vector{0});
  thirds.message(0, 1, 1, std::vector{1});
  CHECK(simulate(thirds).makespan() == 1_ps);
  CHECK(simulate(thirds).end[0].since_start() == 0_ps);
}

TEST_CASE("the same pair of devices has one path") {
  TaskGraph many = graph();
  for (int i = 0; i < 10; ++i) many.message(i % 2 == 0 ? 0 : 1, i % 2 == 0 ? 1 : 2, 1);
  CHECK(tawpipe::to_engine(many).path_begin.size() == 3);
  TaskGraph all;
  all.platform.devices_per_node = 40;
  for (int a = 0; a < 40; ++a) {
    for (int b = 0; b < 40; ++b) {
      if (a != b) all.message(a, b, 1);
      if (a != b) all.message(a, b, 2);
    }
  }
  const auto engine = tawpipe::to_engine(all);
  CHECK(engine.path_begin.size() == 40 * 39 + 1);
  CHECK(engine.tasks[0].path == engine.tasks[1].path);
}

TEST_CASE("the engine's fractions of a picosecond fit the longest run there can be") {
  TaskGraph day = graph();
  day.compute(0, 1);
  CHECK(tawpipe::to_engine(day).fraction_bits == 16);
  day.compute(0, 86400 * 10);
  CHECK(tawpipe::to_engine(day).fraction_bits == 2);
  CHECK(simulate(day).makespan() == 864'000_s);
}

TEST_CASE("what cannot be is refused, and named") {
  TaskGraph wrong = graph();
  wrong.message(0, 0, 1);
  CHECK_THROWS_WITH_AS(simulate(wrong), "task 0: a message must go to another device than it comes from", tawpipe::InputError);
  wrong = graph();
  wrong.compute(4, 1);
  CHECK_THROWS_WITH_AS(simulate(wrong), "task 0: device 4 does not exist; the platform has devices 0 to 3", tawpipe::InputError);
  wrong = graph();
  wrong.compute(0, 1, std::vector{0});
  CHECK_THROWS_WITH_AS(simulate(wrong), "task 0: it cannot wait for task 0, only for those before it", tawpipe::InputError);
  wrong = graph();
  wrong.compute(0, -1);
  CHECK_THROWS_WITH_AS(simulate(wrong), "task 0: a computation must take 0 to 9e6 seconds", tawpipe::InputError);
  wrong = graph();
  wrong.platform.inter_bandwidth = BytesPerSecond{0};
  CHECK_THROWS_WITH_AS(simulate(wrong), "platform: a bandwidth must be above zero, in bytes a second", tawpipe::InputError);
  wrong = graph();
  wrong.message(0, 2, 9e18);
  CHECK_THROWS_WITH_AS(simulate(wrong), "the message of task 0 would take too long: a simulation may span 106 days",
                       tawpipe::InputError);
}
