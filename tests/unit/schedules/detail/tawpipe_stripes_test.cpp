// Tests of schedules/detail/tawpipe_stripes.hpp through the schedules that it builds.
// Not: that every number arrives where it is needed (properties/, execute/).
#include "tawpipe/schedules/detail/tawpipe_stripes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/traffic.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

Schedule build(const Workload& work, const DeviceGroups& groups, bool stripe) {
  return schedules::tawpipe(work, groups, {.stripe = stripe});
}

std::vector<std::vector<std::int32_t>> all_groups() {
  return {{2, 2}, {4, 4}, {3, 2, 1}, {1, 3}, {4, 2}, {2, 3, 2}, {8, 8, 4}, {2, 2, 2}, {1, 1, 4, 1}, {5, 4}, {4, 5}, {1, 1}};
}

/// [rank] bytes sent to other groups by point-to-point messages
std::vector<std::int64_t> sent_by_rank(const Schedule& schedule, const DeviceGroups& groups) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(schedule.ranks()), 0);
  for (const Task& task : schedule.tasks()) {
    if (task.op != Op::pass || groups.group_of(number(task.rank)) == groups.group_of(number(task.peer))) continue;
    sent[index(task.rank)] += task.bytes.value();
  }
  return sent;
}

/// Nodes of `devices`, each with its own adapter; computations take next to no time.
Cluster network_bound(int nodes, int devices) {
  return ClusterBuilder{}
      .device({.name = "device", .memory = 80_GB, .peak = 100000_TFLOPS, .memory_bandwidth = 100000_GBps})
      .nodes(nodes)
      .devices_per_node(devices)
      .adapters_per_node(devices)
      .intra_node({.bandwidth = 400_GBps, .latency = 1_us})
      .inter_node({.bandwidth = 40_GBps, .latency = 1_us})
      .build();
}

}  // namespace

TEST_CASE("striped schedules are valid for any grouping, with and without a model") {
  for (const auto& sizes : all_groups()) {
    const DeviceGroups groups{sizes};
    CAPTURE(groups.ranks());
    CAPTURE(groups.count());
    for (const std::int64_t microbatches : {groups.ranks(), 2 * groups.ranks() + 1, 3}) {
      for (const auto& work : {Workload::abstract(groups.ranks(), microbatches), support::transformer(9, microbatches)}) {
        const Diagnostics found = validate(build(work, groups, true));
        INFO(found.text());
        CHECK(found.errors() + found.warnings() == 0);
      }
    }
  }
}

TEST_CASE("a striped last shard is valid where a tied matrix is larger than it") {
  const Transformer model{
      .name = "m", .layers = 4, .hidden = 8, .heads = 4, .kv_heads = 4, .intermediate = 16, .vocab = 5000, .tied = true};
  const Workload work{model, {.sequence = 4, .microbatch_size = 1, .global_batch = 4}};
  const Diagnostics found = validate(build(work, DeviceGroups{{2, 2}}, true));
  INFO(found.text());
  CHECK(found.errors() + found.warnings() == 0);
}

TEST_CASE("striping changes no byte that leaves a group, but which device sends it") {
  for (const auto& sizes : all_groups()) {
    const DeviceGroups groups{sizes};
    const Workload work = support::transformer(9, 2 * groups.ranks());
    const auto plain = sent_by_rank(build(work, groups, false), groups);
    const auto striped = sent_by_rank(build(work, groups, true), groups);
    CAPTURE(groups.ranks());
    CHECK(std::accumulate(plain.begin(), plain.end(), std::int64_t{0}) ==
          std::accumulate(striped.begin(), striped.end(), std::int64_t{0}));
  }
  // Equal groups of 4, one round, 8 equal shards. Plain, device 0 sends its own shard twice and all
  // 4 gradients of the other group's shards: 6 shards. Striped, each device of the group sends a
  // quarter of 4 shards twice and of 4 gradients: 3 shards.
  const DeviceGroups groups = DeviceGroups::even(8, 2);
  const Workload work = support::transformer(8, 8);
  const auto striped = sent_by_rank(build(work, groups, true), groups);
  const auto plain = sent_by_rank(build(work, groups, false), groups);
  const std::int64_t shard = 2 * work.model().layer_parameters();
  CHECK(plain[0] == 6 * shard);
  for (std::size_t r = 0; r < 4; ++r) CHECK(striped[r] == 3 * shard);
}

TEST_CASE("a shard of n parameters is cut into one piece a member of the group that fetches it: n*j/G up to n*(j+1)/G") {
  const Workload work = support::transformer(5, 5);
  const DeviceGroups groups{{2, 3}};
  const Schedule schedule = build(work, groups, true);
  const ParameterBlocks order = work.model().blocks();
  int gathers = 0;
  for (const Task& task : schedule.tasks()) {
    if (task.op != Op::all_gather && task.op != Op::reduce_scatter) continue;
    ++gathers;
    const ParameterRange all = order.layers_of(schedule.stage(task.stage)).front();
    const auto members = schedule.group(task.group);
    const auto split = schedule.split(task.split);
    REQUIRE(split.size() == members.size());
    const auto size = static_cast<std::int64_t>(members.size());
    for (std::int64_t j = 0; j < size; ++j) {
      const auto ranges = schedule.pieces(split[static_cast<std::size_t>(j)]);
      REQUIRE(ranges.size() == 1);
      CHECK(ranges[0] == ParameterRange{all.begin + all.count() * j / size, all.begin + all.count() * (j + 1) / size});
    }
  }
  // One round: each of the 5 shards is gathered in the other group for its forward and (the last
  // stays) its backward, and its gradient scattered once.
  CHECK(gathers == 5 + 4 + 5);
}

TEST_CASE("mirrors keep their pieces for the groups that ask next") {
  // 3 groups of 2 and one round: the owner's group serves two others forward and backward. Each
  // shard is scattered once each way, to the owner's one mate, and the last once in all, since it
  // stays.
  const Schedule schedule = build(support::transformer(6, 6), DeviceGroups::even(6, 3), true);
  std::map<std::int32_t, int> scattered;
  int passed = 0;
  for (const Task& task : schedule.tasks()) {
    if (task.op != Op::pass || task.payload != Payload::weights) continue;
    schedule.lanes()[index(task.lane)] == "scatter" ? void(++scattered[number(task.stage)]) : void(++passed);
  }
  CHECK(passed == 2 * 2 * (6 + 5));  // two pieces to each of two groups
  for (int k = 0; k < 6; ++k) CHECK(scattered[k] <= 2);
}

TEST_CASE("nothing is striped where a group has one device, or a shard fewer parameters than the group devices") {
  const auto is_stripe = [](const Schedule& schedule, const Task& task) {
    return task.op == Op::pass && schedule.lanes()[index(task.lane)] == "scatter";
  };
  const auto stripes = [&](const Schedule& schedule) {
    return std::count_if(schedule.tasks().begin(), schedule.tasks().end(),
                         [&](const Task& task) { return is_stripe(schedule, task); });
  };
  CHECK(stripes(build(support::transformer(4, 8), DeviceGroups{{1, 3}}, true)) == 0);
  CHECK(stripes(build(support::transformer(4, 8), DeviceGroups{{4}}, true)) == 0);
  CHECK(stripes(build(support::transformer(4, 8), DeviceGroups{{2, 2}}, true)) > 0);
  // 8 shards of 4 layers: every other shard is empty
  const Schedule some = schedules::tawpipe(support::transformer(4, 8), DeviceGroups{{2, 2}}, {.shards = 8, .stripe = true});
  for (const Task& task : some.tasks()) {
    if (is_stripe(some, task)) CHECK(some.stage(task.stage).parameters > 0);
  }
}

TEST_CASE("striping and a node cache exclude each other") {
  CHECK_THROWS_WITH_AS(
      schedules::tawpipe(support::transformer(4, 8), DeviceGroups{{2, 2}}, {.stripe = true, .cache = {.shards = 1}}),
      "tawpipe: stripe=on and node-cache exclude each other, since one device keeps a whole shard; leave one out", InputError);
}

TEST_CASE("on four nodes of 8 H100 with an adapter each, a striped iteration takes less than two thirds of the time") {
  const Cluster cluster = cluster_named("dgx-h100*4");
  const Workload work{
      models::named("llama-2-7b"), {.sequence = 4096, .microbatch_size = 1, .global_batch = 128}, Recompute::full};
  const DeviceGroups groups = cluster.groups_by_node();
  const double plain = to_seconds(simulate(build(work, groups, false), cluster, RooflineCost{}).makespan());
  const double striped = to_seconds(simulate(build(work, groups, true), cluster, RooflineCost{}).makespan());
  // A shard of one layer, 405 MB, takes 8.4 ms over one adapter of 48 GB/s, and a forward step 3.6
  // ms: the network decides.
  CHECK(striped / plain < 0.667);
}

TEST_CASE("with an adapter for each of 4 devices, a network-bound iteration takes about 3/8 of the time") {
  const Transformer model{
      .name = "m", .layers = 8, .hidden = 1024, .heads = 8, .kv_heads = 8, .intermediate = 4096, .vocab = 1000, .tied = true};
  const Workload work{model, {.sequence = 4, .microbatch_size = 1, .global_batch = 16}};
  const Cluster cluster = network_bound(2, 4);
  const RooflineCost cost{.overhead = 1_us};
  const DeviceGroups groups = DeviceGroups::even(8, 2);
  const double plain = to_seconds(simulate(build(work, groups, false), cluster, cost).makespan());
  const double striped = to_seconds(simulate(build(work, groups, true), cluster, cost).makespan());
  // Forwards, a shard leaves over four adapters instead of one; backwards a shard and a gradient,
  // over four instead of two. So 1/4 of the time and 1/2: (1/4 + 1/2) / 2 = 3/8, and a little for
  // what moves inside the nodes.
  CHECK(striped / plain > 0.375);
  CHECK(striped / plain < 0.4);
}
