// Tensor, context and data parallelism around a schedule: the map of ranks, and what each copy does.
#include "tawpipe/schedule/compose.hpp"

#include <doctest/doctest.h>

#include <set>

#include "schedules.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

Cluster two_nodes_of_eight() {
  return ClusterBuilder{}
      .device({.name = "d", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
      .nodes(2)
      .devices_per_node(8)
      .intra_node({.bandwidth = 200_GBps, .latency = 3_us})
      .inter_node({.bandwidth = 25_GBps, .latency = 10_us})
      .build();
}

Transformer small() {
  return {
      .name = "small", .layers = 8, .hidden = 256, .heads = 8, .kv_heads = 4, .intermediate = 512, .vocab = 1000, .tied = false};
}

Workload work(std::int64_t batch) {
  return Workload{small(), Batch{.sequence = 128, .microbatch_size = 1, .global_batch = batch}, Recompute::full};
}

}  // namespace

TEST_CASE("the map of ranks is one to one in every order of the axes") {
  std::string order = "cdst";
  do {
    const Layout layout{.tensor = 2, .context = 3, .data = 2, .order = order};
    const RankMap map{layout, 48};
    CHECK(map.logical_ranks() == 4);  // 48 / (2 * 3 * 2)
    std::set<int> seen;
    for (int rank = 0; rank < 48; ++rank) {
      const LayoutPlace place = map.place(Rank{rank});
      CHECK(map.rank(place) == Rank{rank});
      seen.insert(place.tensor + 2 * (place.context + 3 * (place.logical + 4 * place.data)));
    }
    CHECK(seen.size() == 48);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a layout that does not divide the devices, or names no order, is refused") {
  CHECK_THROWS_WITH_AS(RankMap(Layout{.tensor = 3}, 16),
                       "tensor 3 x context 1 x data 1 = 3 does not divide the cluster's 16 devices", InputError);
  CHECK_THROWS_AS(RankMap(Layout{.tensor = 0}, 16), InputError);
  CHECK_THROWS_AS(RankMap(Layout{.order = "tcs"}, 16), InputError);
  CHECK_THROWS_AS(RankMap(Layout{.order = "ttcs"}, 16), InputError);
}

TEST_CASE("tensor-parallel ranks must lie in one node") {
  const Cluster cluster = two_nodes_of_eight();
  const RankMap spread{Layout{.tensor = 2, .order = "sctd"}, 16};
  CHECK_THROWS_AS(spread.logical_nodes(cluster.groups_by_node()), InputError);
  const RankMap near{Layout{.tensor = 4}, 16};
  const DeviceGroups nodes = near.logical_nodes(cluster.groups_by_node());
  CHECK(nodes.count() == 2);  // 16 / 4 = 4 logical ranks, 2 in each node
  CHECK(nodes.size(0) == 2);
}

TEST_CASE("every schedule composes: form, order and races are clean, and it simulates") {
  const Cluster cluster = two_nodes_of_eight();
  for (const auto& info : shipped().schedules()) {
    for (const Layout& layout : {Layout{.tensor = 2}, Layout{.tensor = 2, .data = 2}, Layout{.context = 2, .data = 2}}) {
      CAPTURE(info.name);
      const RankMap map{layout, 16};
      const Workload part = work(32 / layout.data);
      const Schedule logical =
          build_schedule(info.name, {.workload = part, .nodes = map.logical_nodes(cluster.groups_by_node()), .options = {}});
      const Schedule schedule = compose(logical, work(32), layout, map);
      CHECK(schedule.ranks() == 16);
      const Diagnostics found = validate(schedule, cluster);
      CHECK_MESSAGE(found.ok(), found.text());
      const Timeline timeline = simulate(schedule, cluster, RooflineCost{});
      CHECK(timeline.makespan() > Duration{});
    }
  }
}

TEST_CASE("replicas share the microbatches and sum each gradient once before its update") {
  const Layout layout{.data = 2};
  const RankMap map{layout, 4};
  const Workload part = work(4);
  const Schedule logical = build_schedule("1f1b", {.workload = part, .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule schedule = compose(logical, work(8), layout, map);
  std::set<std::pair<int, int>> forwards;
  int sums = 0;
  for (const Task& task : schedule.tasks()) {
    if (task.op == Op::forward) CHECK(forwards.emplace(number(task.stage), task.microbatch).second);
    if (task.op == Op::all_reduce && task.payload == Payload::gradients) ++sums;
  }
  CHECK(forwards.size() == 2 * 8);  // 2 stages, 8 microbatches, each once
  CHECK(sums == 2);                 // one a stage
}

TEST_CASE("the sum over tensor-parallel ranks is taken where the activations are handed on") {
  const Layout layout{.tensor = 2};
  const RankMap map{layout, 4};
  const Schedule logical = build_schedule("ddp", {.workload = work(2), .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule schedule = compose(logical, work(2), layout, map);
  int sums = 0;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    if (schedule.tasks()[t].op != Op::all_reduce || schedule.tasks()[t].payload != Payload::activations) continue;
    ++sums;
    // Data parallelism changes one buffer a rank from layer to layer; what a forward saves stays behind.
    for (const Use& use : schedule.uses(id<TaskId>(t))) CHECK(schedule.buffer(use.buffer).persistent);
  }
  CHECK(sums == 8 * 2);  // 8 layers, 2 microbatches
}

TEST_CASE("a stage's collectives as one task take as long as one after each layer") {
  // One logical rank, so that GPipe's one stage and DDP's units do the same work; DDP's collectives stand behind each layer.
  const Cluster cluster = ClusterBuilder{}
                              .device({.name = "d", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                              .devices_of_nodes({4})
                              .intra_node({.bandwidth = 200_GBps, .latency = 3_us})
                              .build();
  for (const Layout& layout : {Layout{.tensor = 4}, Layout{.context = 4}, Layout{.tensor = 2, .context = 2}}) {
    const RankMap map{layout, 4};
    const auto makespan = [&](const char* name) {
      const Schedule logical = build_schedule(name, {.workload = work(4), .nodes = DeviceGroups{{1}}, .options = {}});
      return to_seconds(simulate(compose(logical, work(4), layout, map), cluster, RooflineCost{}).makespan());
    };
    CHECK(makespan("gpipe") == doctest::Approx(makespan("ddp")).epsilon(1e-3));
  }
}

TEST_CASE("tensor parallelism divides parameters and adds two all-reduces' bytes a layer each way") {
  const Layout layout{.tensor = 2};
  const RankMap map{layout, 2};
  const Schedule logical = build_schedule("gpipe", {.workload = work(1), .nodes = DeviceGroups{{1}}, .options = {}});
  const Schedule schedule = compose(logical, work(1), layout, map);
  CHECK(schedule.stages()[0].parameters == (logical.stages()[0].parameters + 1) / 2);
  std::int64_t bytes = 0;
  for (const Task& task : schedule.tasks()) {
    if (task.op == Op::all_reduce) bytes += task.bytes.total().value();
  }
  // 8 layers x 2 all-reduces of 128 tokens x 256 x 2 bytes, once in the forward and twice in the recomputing backward.
  CHECK(bytes == 8 * 2 * (128 * 256 * 2) * 3);
}
