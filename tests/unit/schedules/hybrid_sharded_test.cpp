// Tests of schedules/hybrid_sharded.hpp: collectives inside the nodes, and those between them once
// or in each round.
// Not: bytes, memory and contents (properties/sharded_test.cpp).
#include "tawpipe/schedules/hybrid_sharded.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::hybrid_sharded;
using tawpipe::schedules::hybrid_sharded_optimizer;

namespace {

/// How many tasks of `op` have all their members in one node, or in several.
int count(const Schedule& schedule, const DeviceGroups& nodes, Op op, bool inside) {
  int found = 0;
  for (const auto& task : schedule.tasks()) {
    if (task.op != op) continue;
    const auto members = schedule.group(task.group);
    if ((nodes.group_of(number(members.front())) == nodes.group_of(number(members.back()))) == inside) ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("HSDP gathers and scatters inside the nodes, and sums over them once an iteration or in each round") {
  const DeviceGroups nodes = DeviceGroups::even(6, 2);
  const Workload work = Workload::abstract(6, 12);  // 6 units, 2 rounds
  for (const bool each : {false, true}) {
    const Schedule schedule = hybrid_sharded(work, nodes, {.reduce_each = each});
    CHECK(count(schedule, nodes, Op::all_gather, true) == 2 * 2 * 6 * 2);
    CHECK(count(schedule, nodes, Op::reduce_scatter, true) == 2 * 6 * 2);
    CHECK(count(schedule, nodes, Op::all_reduce, false) == (each ? 2 : 1) * 6 * 3);
    CHECK(count(schedule, nodes, Op::all_gather, false) + count(schedule, nodes, Op::reduce_scatter, false) == 0);
  }
  CHECK(count(hybrid_sharded(work, nodes, {.reshard = false}), nodes, Op::all_gather, true) == 2 * 6 * 2);
}

TEST_CASE("hybrid FSDP scatters over the nodes once, and gathers the new weights from there") {
  const DeviceGroups nodes = DeviceGroups::even(6, 2);
  const Schedule schedule = hybrid_sharded_optimizer(Workload::abstract(6, 12), nodes);
  CHECK(count(schedule, nodes, Op::reduce_scatter, false) == 6 * 3);
  CHECK(count(schedule, nodes, Op::all_gather, false) == 6 * 3);
  CHECK(count(schedule, nodes, Op::all_reduce, false) == 0);
}

TEST_CASE("unequal nodes meet in each piece between their cuts") {
  const DeviceGroups nodes{{3, 2}};  // cut at 1/3, 1/2, 2/3: 4 rails
  const Schedule schedule = hybrid_sharded(Workload::abstract(5, 5), nodes);
  CHECK(count(schedule, nodes, Op::all_reduce, false) == 5 * 4);
}

TEST_CASE("one node has nothing to sum over, and nodes of one rank nothing to gather") {
  const DeviceGroups one = DeviceGroups::even(4, 1);
  for (const bool each : {false, true}) {
    const Schedule schedule = hybrid_sharded(Workload::abstract(4, 4), one, {.reduce_each = each});
    for (const auto& task : schedule.tasks()) CHECK(task.op != Op::all_reduce);
  }
  const DeviceGroups alone = DeviceGroups::even(4, 4);
  const Schedule schedule = hybrid_sharded(Workload::abstract(4, 4), alone);
  for (const auto& task : schedule.tasks()) {
    CHECK(task.op != Op::all_gather);
    CHECK(task.op != Op::reduce_scatter);
  }
}

TEST_CASE("a node without a microbatch in the last round gathers nothing") {
  const DeviceGroups nodes = DeviceGroups::even(4, 2);
  const Schedule schedule = hybrid_sharded(Workload::abstract(4, 6), nodes);  // the second round has only ranks 0 and 1
  CHECK(count(schedule, nodes, Op::all_gather, true) == 4 * 2 * (2 + 1));
}

TEST_CASE("sums over the nodes run beside the rest of the backward, on a lane of their own") {
  // 4 units of 1 s forward and 2 s backward on 2 nodes of 2; prefetch hides all gathers but the
  // first: 1 + 4 + 8 s, then the last unit's scatter and its sum over the nodes
  const DeviceGroups nodes = DeviceGroups::even(4, 2);
  const tawpipe::FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 1_s};
  const auto makespan = [&](bool overlap) {
    const Schedule schedule = hybrid_sharded(Workload::abstract(4, 4), nodes, {.prefetch = 1, .overlap = overlap});
    return tawpipe::simulate(schedule, support::cluster(4, 2), cost).makespan();
  };
  CHECK(makespan(true) == 15_s);
  CHECK(makespan(false) == 12_s + 8_s + 4_s + 4_s);  // work, gathers, scatters, and each rank's rail once a unit
}

TEST_CASE("hybrid sharding records its options and refuses what does not fit") {
  const Workload work = Workload::abstract(4, 4);
  const DeviceGroups nodes = DeviceGroups::even(4, 2);
  using Options = std::vector<std::pair<std::string, std::string>>;
  CHECK(hybrid_sharded(work, nodes, {.reduce_each = true, .prefetch = 2}).options() ==
        Options{{"reduce", "each"}, {"prefetch", "2"}, {"reshard", "on"}, {"overlap", "on"}});
  CHECK(hybrid_sharded_optimizer(work, nodes, {.reshard = false}).options() ==
        Options{{"prefetch", "0"}, {"reshard", "off"}, {"overlap", "on"}});
  CHECK_THROWS_WITH_AS(hybrid_sharded(work, nodes, {.prefetch = -1}), "hsdp needs prefetch=0 or more", tawpipe::InputError);
}
