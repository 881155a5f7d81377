// Tests of schedules/fully_sharded.hpp: how many collectives, of what size, and its options.
// Not: the bytes that leave a node (properties/traffic_test.cpp) nor what every schedule must do
// (properties/).
#include "tawpipe/schedules/fully_sharded.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/unit_computations.hpp"
#include "tawpipe/core/error.hpp"

using namespace tawpipe::literals;
using support::count;
using support::makespan;
using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::FullyShardedOptions;

namespace {

Schedule sharded(int ranks, int groups, std::int64_t microbatches, const FullyShardedOptions& options = {}) {
  return tawpipe::schedules::fully_sharded(Workload::abstract(ranks, microbatches), DeviceGroups::even(ranks, groups), options);
}

}  // namespace

TEST_CASE("each round gathers each unit twice and scatters it once") {
  const Schedule schedule = sharded(4, 2, 8);  // 4 units, 2 rounds
  CHECK(count(schedule, Op::all_gather) == 2 * 2 * 4);
  CHECK(count(schedule, Op::reduce_scatter) == 2 * 4);
  CHECK(count(sharded(4, 2, 8, {.reshard = false}), Op::all_gather) == 2 * 4);
}

TEST_CASE("on two levels each gather is one in each rail and one in each node") {
  const Schedule schedule = sharded(6, 2, 6, {.two_level = true});  // 6 units; 3 rails of 2, 2 nodes of 3
  CHECK(count(schedule, Op::all_gather) == 2 * 6 * (3 + 2));
  CHECK(count(schedule, Op::reduce_scatter) == 6 * (3 + 2));
  for (const auto& task : schedule.tasks()) {
    if (!tawpipe::is_collective(task.op)) continue;
    const auto members = schedule.group(task.group).size();
    // a rail of 2 carries 2 of 6 pieces of 1 MB (the third rail what the others leave), a node the
    // whole
    const int whole = members == 3 ? 1'000'000 : schedule.group(task.group)[0] == tawpipe::Rank{2} ? 333'334 : 333'333;
    CHECK(task.bytes.value() == whole);
  }
}

TEST_CASE("one node has one level") {
  CHECK(count(sharded(4, 1, 4, {.two_level = true}), Op::all_gather) == count(sharded(4, 1, 4), Op::all_gather));
}

TEST_CASE("on one rank nothing is gathered") {
  const Schedule schedule = sharded(1, 1, 2);
  CHECK(schedule.tasks().size() == 2 * 2 + 1);
}

TEST_CASE("a gather hides behind computation once a unit is prefetched") {
  // 3 units, one round. Without prefetch nothing overlaps: 6 gathers of 1 s, forwards of 1 s,
  // backwards of 2 s; scatters run overlapping, the last after all: 6 + 3 + 6 + 1 = 16. With one
  // unit ahead only the first gather shows: 1 + 3 + 6 + 1 = 11.
  CHECK(makespan(sharded(3, 1, 3, {.prefetch = 0}), 1_s) == 16_s);
  CHECK(makespan(sharded(3, 1, 3, {.prefetch = 1}), 1_s) == 11_s);
  CHECK(makespan(sharded(3, 1, 3, {.prefetch = 2}), 1_s) == 11_s);
  // one communicator, the next gather before each scatter: the same, as no scatter is longer than
  // the backward that overlaps it
  CHECK(makespan(sharded(3, 1, 3, {.gather_first = true}), 1_s) == 16_s);
  CHECK_THROWS_AS(sharded(3, 1, 3, {.prefetch = 1, .gather_first = true}), tawpipe::InputError);
  // no overlap: all of 6 gathers, 3 scatters, 9 s of work
  CHECK(makespan(sharded(3, 1, 3, {.overlap = false}), 1_s) == 18_s);
  // a unit that stays is not gathered again: 3 + 3 + 6 + 1
  CHECK(makespan(sharded(3, 1, 3, {.prefetch = 0, .reshard = false}), 1_s) == 13_s);
}

TEST_CASE("a unit of a model is its embedding, a layer, or its head") {
  const Workload work = support::transformer(3, 2);
  const Schedule schedule = tawpipe::schedules::fully_sharded(work, DeviceGroups::even(2, 1));
  CHECK(schedule.stages().size() == 5);
  // sharded states: of each unit half, rounded up to 8, on each rank, and 2 bytes of each
  const auto padded = [](std::int64_t parameters) { return (parameters + 15) / 16 * 16; };
  const auto& model = work.model();
  const std::int64_t all =
      padded(model.first_edge.parameters) + 3 * padded(model.layer_parameters()) + padded(model.last_edge.parameters);
  for (const auto& buffer : schedule.buffers()) {
    if (buffer.kind() == tawpipe::BufferKind::weights && buffer.persistent) CHECK(buffer.bytes.value() == all);
  }
}

TEST_CASE("every option that it was built with is recorded, and a negative prefetch refused") {
  const std::vector<std::pair<std::string, std::string>> expected{
      {"collectives", "two-level"}, {"prefetch", "2"}, {"gather-first", "off"}, {"reshard", "off"}, {"overlap", "off"}};
  CHECK(sharded(4, 2, 4, {.two_level = true, .prefetch = 2, .reshard = false, .overlap = false}).options() == expected);
  CHECK_THROWS_WITH_AS(sharded(4, 2, 4, {.prefetch = -1}), "fsdp needs prefetch=0 or more", tawpipe::InputError);
}

TEST_CASE("with a copy in the node only forwards gather between nodes") {
  const DeviceGroups nodes = DeviceGroups::even(6, 2);
  const Schedule schedule = tawpipe::schedules::node_copy_sharded(Workload::abstract(6, 12), nodes);  // 6 units, 2 rounds
  int between = 0;
  int inside = 0;
  for (const auto& task : schedule.tasks()) {
    if (task.op == Op::all_gather) ++(schedule.group(task.group).size() == 2 ? between : inside);
  }
  CHECK(between == 2 * 6 * 3);
  CHECK(inside == 2 * 2 * 6 * 2);
  // in one ring, a forward's gather is one
  const Schedule flat = tawpipe::schedules::node_copy_sharded(Workload::abstract(6, 12), nodes, {.two_level = false});
  CHECK(count(flat, Op::all_gather) == 2 * 6 * (1 + 2));
}

TEST_CASE("one node is its own copy") {
  const DeviceGroups nodes = DeviceGroups::even(4, 1);
  const Schedule schedule = tawpipe::schedules::node_copy_sharded(Workload::abstract(4, 4), nodes);
  CHECK(schedule.tasks().size() == sharded(4, 1, 4).tasks().size());
  for (const auto& buffer : schedule.buffers()) {
    if (buffer.kind() == tawpipe::BufferKind::transfer) CHECK_FALSE(buffer.persistent);
  }
  CHECK_THROWS_WITH_AS(tawpipe::schedules::node_copy_sharded(Workload::abstract(4, 4), nodes, {.prefetch = -1}),
                       "hpz needs prefetch=0 or more", tawpipe::InputError);
}
