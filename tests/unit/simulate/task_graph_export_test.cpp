// Tests of simulate/task_graph_export.hpp: schedules as plain graphs.
// Not: the schedules' own simulation (simulate_test.cpp).
#include "tawpipe/simulate/task_graph_export.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/clusters.hpp"
#include "support/hand_built.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/weipipe.hpp"

using namespace tawpipe::literals;
using support::no_overhead;
using support::pass;
using support::two_lanes;
using tawpipe::Bytes;
using tawpipe::Cluster;
using tawpipe::ExportedTaskGraph;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Rank;
using tawpipe::RooflineCost;
using tawpipe::Schedule;
using tawpipe::Timeline;
using tawpipe::Workload;

namespace {

/// The latest difference between a schedule's own times and those of the graph, where both have the
/// task.
tawpipe::Duration difference(const Schedule& schedule, const Cluster& cluster, const RooflineCost& model) {
  const ExportedTaskGraph exported = tawpipe::export_task_graph(schedule, cluster, model);
  const Timeline own = simulate(schedule, cluster, model);
  const Timeline graph = simulate(exported.graph);
  tawpipe::Duration largest;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const auto end = graph.end[static_cast<std::size_t>(exported.last[t])];
    largest = std::max({largest, own.end[t] - end, end - own.end[t]});
  }
  return largest;
}

}  // namespace

TEST_CASE("schedules of passes keep their times") {
  for (const int nodes : {1, 2, 4}) {
    CAPTURE(nodes);
    const Cluster cluster = support::cluster(8, nodes);
    CHECK(difference(tawpipe::schedules::one_f_one_b(support::transformer(16, 16), 8, {.overlap = true}), cluster,
                     RooflineCost{}) < 100_ps);
  }
}

TEST_CASE("a computation and a pass keep their places") {
  auto b = two_lanes(4);
  b.stages(Workload::abstract(1, 1).split(1));
  b.add({.op = Op::forward, .rank = Rank{1}, .stage = tawpipe::StageId{0}}, {});
  b.add(pass(0, 1, 1_GB), {});
  b.add(pass(1, 2, 1_GB), {});
  const ExportedTaskGraph exported = tawpipe::export_task_graph(b.build(), support::cluster(4, 2), no_overhead);
  const auto& graph = exported.graph;
  CHECK(exported.last == std::vector<std::int32_t>{0, 1, 2});
  CHECK(graph.platform.nodes == 2);
  CHECK(graph.platform.devices_per_node == 2);
  CHECK(graph.platform.intra_bandwidth == 1_GBps);
  CHECK(graph.platform.inter_latency_s == 1e-6);
  CHECK(graph.is_compute(0));
  CHECK(graph.device(0) == 1);
  CHECK(graph.amount(1) == 1e9);
  CHECK(graph.destination(2) == 2);
  CHECK(graph.dependencies(0).empty());
  CHECK(std::vector(graph.dependencies(2).begin(), graph.dependencies(2).end()) == std::vector<std::int32_t>{1});  // lane's order
}

TEST_CASE("a collective is one message an edge, all after the same tasks, and one task that ends it") {
  auto b = two_lanes(4);
  const auto group = b.group({Rank{0}, Rank{1}, Rank{2}, Rank{3}});
  b.add(pass(0, 1, 1_GB), {});
  b.add({.op = Op::all_gather, .lane = tawpipe::LaneId{1}, .rank = Rank{0}, .group = group, .bytes = 4_GB}, {});
  b.add(pass(2, 3, 1_GB), {});
  const ExportedTaskGraph exported = tawpipe::export_task_graph(b.build(), support::cluster(4), no_overhead);
  const auto& graph = exported.graph;
  REQUIRE(graph.tasks() == 7);
  CHECK(exported.last == std::vector<std::int32_t>{0, 5, 6});
  for (std::size_t edge = 1; edge <= 4; ++edge) {
    CHECK(graph.amount(edge) == 3e9);  // 3/4 of the buffer
    CHECK(graph.destination(edge) == static_cast<std::int32_t>(edge % 4));
    CHECK(graph.dependencies(edge).size() == 1);
    CHECK(graph.dependencies(edge)[0] == 0);
  }
  CHECK(graph.is_compute(5));
  CHECK(graph.amount(5) == 0);
  CHECK(graph.dependencies(5).size() == 4);
  CHECK(graph.dependencies(6)[0] == 5);
  // the pass, then one hop's latency instead of three, and 3 GB, then the pass
  CHECK(simulate(graph).makespan() == 5_s + 3_us);
}

TEST_CASE("of an all-to-all with sizes of its pairs each edge has its own") {
  auto b = two_lanes(2);
  const auto group = b.group({Rank{0}, Rank{1}});
  const auto sizes = b.pair_sizes(std::vector<Bytes>{0_B, 1_GB, 3_GB, 0_B});
  b.add({.op = Op::all_to_all, .lane = tawpipe::LaneId{1}, .rank = Rank{0}, .group = group, .split = sizes, .bytes = 3_GB}, {});
  const auto& graph = tawpipe::export_task_graph(b.build(), support::cluster(2), no_overhead).graph;
  double sent[2] = {};
  for (std::size_t task = 0; task < graph.tasks(); ++task) {
    if (!graph.is_compute(task)) sent[graph.destination(task)] += graph.amount(task);
  }
  CHECK(sent[1] == doctest::Approx(1e9));
  CHECK(sent[0] == doctest::Approx(3e9));
}

TEST_CASE("an exchange is two messages, a group of one rank nothing but its end") {
  auto b = two_lanes(2);
  auto both = pass(0, 1, 1_GB);
  both.op = Op::exchange;
  b.add(both, {});
  b.add({.op = Op::all_reduce, .lane = tawpipe::LaneId{1}, .rank = Rank{1}, .group = b.group({Rank{1}}), .bytes = 1_GB}, {});
  const ExportedTaskGraph exported = tawpipe::export_task_graph(b.build(), support::cluster(2), no_overhead);
  CHECK(exported.graph.tasks() == 4);
  CHECK(exported.last == std::vector<std::int32_t>{2, 3});
  CHECK(simulate(exported.graph).makespan() == 1_s + 1_us);
}

TEST_CASE("where a model gives messages a time alone, they have no bytes") {
  auto b = two_lanes(4);
  b.add(pass(0, 1, 1_GB), {});
  b.add(pass(1, 2, 1_GB), {});
  const FixedCost fixed{.forward = 5_s, .backward_input = 0_s, .backward_weight = 0_s, .transfer = 2_s};
  const ExportedTaskGraph exported = tawpipe::export_task_graph(b.build(), support::cluster(4, 2), fixed);
  CHECK(exported.graph.amount(1) == 0);
  CHECK(exported.graph.platform.inter_latency_s == 2);
  CHECK(simulate(exported.graph).makespan() == 4_s);
}

TEST_CASE("what such a graph cannot say is refused") {
  const Schedule schedule = tawpipe::schedules::weipipe(support::transformer(6, 6), 6);
  CHECK_THROWS_WITH_AS(tawpipe::export_task_graph(schedule, support::nodes_of({4, 2}), no_overhead),
                       "this cannot be said as a plain task graph: its nodes have unequal numbers of devices",
                       tawpipe::InputError);
  const Cluster adapters = tawpipe::ClusterBuilder{}
                               .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                               .nodes(2)
                               .devices_per_node(4)
                               .adapters_per_node(4)
                               .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
                               .inter_node({.bandwidth = 1_GBps, .latency = 1_us})
                               .build();
  auto b = two_lanes(8);
  b.add(pass(0, 4, 1_GB), {});
  b.add(pass(1, 5, 1_GB), {});
  CHECK_THROWS_WITH_AS(tawpipe::export_task_graph(b.build(), adapters, no_overhead),
                       "this cannot be said as a plain task graph: messages between nodes have several links to choose from",
                       tawpipe::InputError);
  CHECK_THROWS_WITH_AS(tawpipe::export_task_graph(schedule, support::cluster(2), no_overhead),
                       "the schedule needs 6 ranks and cluster 'cluster' has 2 devices", tawpipe::InputError);
  CHECK_THROWS_WITH_AS(tawpipe::export_task_graph(schedule, support::cluster(6), RooflineCost{.nccl_collectives = true}),
                       "this cannot be said as a plain task graph: the links of its collectives depend on their size",
                       tawpipe::InputError);
}
