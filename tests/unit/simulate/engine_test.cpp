// Tests of simulate/engine.hpp: hand-made graphs of waits and flows.
// Not: random ones, nor recorded ones (oracle/).
#include "tawpipe/simulate/engine.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support/engine_graphs.hpp"
#include "tawpipe/core/error.hpp"

using support::GraphBuilder;
using tawpipe::run_engine;
using Times = std::vector<double>;

namespace {

Times ends(const GraphBuilder& graph) { return support::to_seconds(run_engine(graph.build()).end); }
Times starts(const GraphBuilder& graph) { return support::to_seconds(run_engine(graph.build()).start); }

}  // namespace

TEST_CASE("tasks that wait for nothing start at zero, others when the last they wait for has ended") {
  GraphBuilder graph;
  graph.wait(2).wait(3).wait(1, {0, 1}).wait(4, {0});
  CHECK(starts(graph) == Times{0, 0, 3, 2});
  CHECK(ends(graph) == Times{2, 3, 4, 6});
}

TEST_CASE("a task without a length ends when it starts, and a chain of them at once") {
  GraphBuilder graph;
  graph.wait(0).wait(0, {0}).wait(0, {1}).wait(1, {2}).wait(0, {3});
  CHECK(ends(graph) == Times{0, 0, 0, 1, 1});
}

TEST_CASE("a flow's delay comes first and uses no link") {
  // 10 bytes at 10 B/s after 2 s; the other, by itself until then, has moved 20 of 30: both then
  // at 5. The first ends at 4, the second has none left then either.
  GraphBuilder graph{{10}};
  graph.flow(2, 10, {0}).flow(0, 30, {0});
  CHECK(ends(graph) == Times{4, 4});
}

TEST_CASE("two flows that start together on one link end as fair sharing says") {
  GraphBuilder graph{{10}};
  graph.flow(0, 10, {0}).flow(0, 30, {0});
  CHECK(ends(graph) == Times{2, 4});  // 5 each for 2 s, then 20 left at 10
}

TEST_CASE("the two directions of a link are two links") {
  GraphBuilder graph{{10, 10}};
  graph.flow(0, 10, {0}).flow(0, 10, {1});
  CHECK(ends(graph) == Times{1, 1});
}

TEST_CASE("a flow of no bytes takes its delay alone") {
  GraphBuilder graph{{10}};
  graph.flow(3, 0, {0}).flow(0, 10, {0}).wait(1, {0});
  CHECK(ends(graph) == Times{3, 1, 4});
  GraphBuilder at_once{{10}};
  at_once.flow(0, 0, {0}).wait(1, {0});
  CHECK(ends(at_once) == Times{0, 1});
}

TEST_CASE("a flow that ends makes way for what waited for it") {
  GraphBuilder graph{{10}};
  graph.flow(0, 10, {0}).flow(0, 10, {0}, {0});
  CHECK(starts(graph) == Times{0, 1});
  CHECK(ends(graph) == Times{1, 2});
}

TEST_CASE("two nodes of two devices, by hand: 30 s") {
  // Links of 100 B/s inside (after 0.5 s), 10 B/s between (after 1 s): out of node 0 is link 0,
  // into node 1 link 1; inside node 1 2 out, 3 in. A computation of 2 s on device 0, then 100 bytes
  // to device 2 and 50 to device 3 of the other node. Both move from 3 on, at 5 each; 50 are there
  // at 13, then 50 left at 10: 18. When the 100 are there (18) device 2 sends 1000 bytes to device
  // 3, 0.5 s + 10 s: 28.5, and device 3 computes for 1.5 s: 30.
  GraphBuilder graph{{10, 10, 100, 100}};
  graph.wait(2).flow(1, 100, {0, 1}, {0}).flow(1, 50, {0, 1}, {0}).flow(0.5, 1000, {2, 3}, {1}).wait(1.5, {2, 3});
  CHECK(ends(graph) == Times{2, 18, 13, 28.5, 30});
}

TEST_CASE("three flows over four nodes, by hand: 11 s") {
  // out of nodes 2 and 3: links 0 and 1; into 1, 2 and 3: links 2, 3, 4. Node 3 sends twice, and
  // what it sends shares its way out: 5 each after 1 s; node 2's goes its own way at 10: 1 + 5 = 6.
  // The two end at 1 + 50 / 5 = 11.
  GraphBuilder graph{{10, 10, 10, 10, 10}};
  graph.flow(1, 50, {0, 4}).flow(1, 50, {1, 2}).flow(1, 50, {1, 3});
  CHECK(ends(graph) == Times{6, 11, 11});
}

TEST_CASE("tasks that wait for each other are found, and the first is named") {
  GraphBuilder graph;
  graph.wait(1).wait(1, {2}).wait(1, {1}).wait(1, {2});
  CHECK_THROWS_WITH_AS(run_engine(graph.build()), "3 of 4 tasks wait for each other and never start; the first is task 1",
                       tawpipe::ScheduleError);
}

TEST_CASE("nothing to run is run") { CHECK(run_engine(GraphBuilder{}.build()).end.empty()); }

TEST_CASE("a long chain of tasks without length needs no deep stack") {
  GraphBuilder graph;
  graph.wait(0);
  for (int i = 1; i < 300'000; ++i) graph.wait(0, {i - 1});
  CHECK(ends(graph).back() == 0);
}

TEST_CASE("a run longer than a time can hold is refused") {
  GraphBuilder graph;
  graph.wait(5e6).wait(5e6, {0});  // of 9.2e6 seconds that fit
  CHECK_THROWS_AS(run_engine(graph.build()), tawpipe::InputError);
}
