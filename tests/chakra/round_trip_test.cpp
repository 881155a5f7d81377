// Every schedule of the catalogue, and random ones, as Chakra traces and back: the same tasks,
// order and times.
// Not: the traces' bytes (file_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/each_schedule.hpp"
#include "support/random.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/report/chakra_export.hpp"
#include "tawpipe/report/chakra_import.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/search/known_times.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"

using namespace tawpipe;

namespace chakra_round_trip {

const FixedCost cost{.forward = 7_us, .backward_input = Duration{11'000'001}, .backward_weight = 5_us, .transfer = 2_us};

std::vector<std::vector<std::int32_t>> groups_of(const Schedule& schedule) {
  std::vector<std::vector<std::int32_t>> groups;
  for (int g = 0; g < schedule.groups(); ++g) {
    groups.emplace_back();
    for (const Rank rank : schedule.group(GroupId{g})) groups.back().push_back(number(rank));
  }
  return groups;
}

struct Written {
  ChakraTrace trace;
  ChakraLosses losses;
  Timeline timeline;
};

Written written(const Schedule& schedule, const Cluster& cluster) {
  Written out;
  out.timeline = simulate(schedule, cluster, cost);
  out.trace.ranks.resize(static_cast<std::size_t>(schedule.ranks()));
  for (std::size_t r = 0; r < out.trace.ranks.size(); ++r) out.trace.ranks[r].source = "t." + std::to_string(r) + ".et";
  out.trace.groups = parse_chakra_groups(chakra_groups_json(schedule), "t.json");
  out.losses = export_chakra(schedule, out.timeline,
                             [&](Rank rank, const ChakraNode& node) { out.trace.ranks[index(rank)].nodes.push_back(node); });
  return out;
}

/// All but the lanes' and groups' numbers.
std::string text_of(const Schedule& schedule, const Task& task) {
  std::string text = concat(name(task.op), " ", name(task.payload), " ", number(task.rank), " ", number(task.peer), " ",
                            number(task.stage), " ", task.microbatch, " ", task.step, " ", task.bytes.value(), " ",
                            task.bytes.repeat(), " ", schedule.lanes()[static_cast<std::size_t>(number(task.lane))]);
  if (is_point_to_point(task.op)) text += " " + schedule.lanes()[static_cast<std::size_t>(number(task.peer_lane))];
  if (is_collective(task.op)) {
    for (const Rank member : schedule.group(task.group)) text += concat(" ", number(member));
  }
  return text;
}

/// The dependencies of a task in addition to the order of its lanes.
std::set<TaskId> waits_of(const Schedule& schedule, TaskId id) {
  std::set<TaskId> waits;
  for (const TaskId earlier : schedule.dependencies(id)) {
    bool on_one_lane = false;
    for_each_end(schedule, id, [&](Rank rank, int lane) {
      for_each_end(schedule, earlier, [&](Rank other, int its) { on_one_lane = on_one_lane || (rank == other && lane == its); });
    });
    if (!on_one_lane) waits.insert(earlier);
  }
  return waits;
}

void check_same(const Schedule& schedule, const Cluster& cluster) {
  const Written out = written(schedule, cluster);
  const ImportedTrace back = import_chakra(out.trace);
  REQUIRE(back.schedule.tasks().size() == schedule.tasks().size());
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId id{static_cast<std::int32_t>(t)};
    REQUIRE(text_of(back.schedule, back.schedule.task(id)) == text_of(schedule, schedule.task(id)));
    REQUIRE(waits_of(back.schedule, id) == waits_of(schedule, id));
    if (is_compute(schedule.task(id).op)) REQUIRE(back.times[t] == out.timeline.duration_of(id));
  }
  const Cost by = cost;
  const Timeline again = simulate(back.schedule, cluster, KnownTimes{by, back.times});
  CHECK(again.start == out.timeline.start);
  CHECK(again.end == out.timeline.end);
}

TEST_CASE("a schedule of the catalogue comes back from its traces as it was") {
  for (const std::int64_t microbatches : {4, 8}) {
    const Workload work = Workload::abstract(4, microbatches);
    support::for_each_schedule(work, {{4}, {2, 2}}, [&](const Schedule& schedule) {
      check_same(schedule, cluster_from_dimensions(concat("1x", schedule.ranks())));
    });
  }
}

/// Any operation between any ranks, in an order in which they can run, with waits for earlier tasks
/// of any rank.
Schedule random_schedule(support::Random& random) {
  const int ranks = random.between(2, 5);
  ScheduleBuilder builder{"random", Workload::abstract(ranks, 3), ranks, {"compute", "up", "down"}};
  builder.stages(std::vector<StageWork>(4));
  const int tasks = random.between(1, 40);
  for (int t = 0; t < tasks; ++t) {
    Task task{.op = static_cast<Op>(random.between(0, ops - 1))};
    task.payload = is_compute(task.op) ? Payload::nothing : static_cast<Payload>(random.between(0, payloads - 1));
    task.rank = Rank{random.between(0, ranks - 1)};
    task.lane = is_compute(task.op) ? LaneId{0} : id<LaneId>(random.between(0, 2));
    task.stage = traits(task.op).passes.any() || random.between(0, 1) == 0 ? StageId{random.between(0, 3)} : none<StageId>;
    task.microbatch = random.between(-1, 2);
    task.step = random.between(-1, 5);
    std::set<int> here{number(task.rank)};
    if (is_point_to_point(task.op)) {
      task.peer = Rank{(number(task.rank) + random.between(1, ranks - 1)) % ranks};
      task.peer_lane = id<LaneId>(random.between(0, 2));
      here.insert(number(task.peer));
    } else if (is_collective(task.op)) {
      for (int rank = 0; rank < ranks; ++rank) {
        if (random.between(0, 1) == 0) here.insert(rank);
      }
      std::vector<Rank> members;
      for (const int rank : here) members.emplace_back(Rank{rank});
      if (random.between(0, 1) == 0) std::reverse(members.begin(), members.end());
      task.group = builder.group(members);
      if (!is_rooted(task.op)) task.rank = members.front();
    }
    if (!is_compute(task.op)) task.bytes = {Bytes{random.between(0, 1000)}, random.between(1, 3)};
    std::vector<TaskId> after;
    for (int tries = 0; tries < 3 && t > 0; ++tries) {
      after.emplace_back(TaskId{random.between(0, t - 1)});
    }
    builder.add(task, {}, after);
  }
  return builder.build();
}

TEST_CASE("so does any graph of tasks") {
  support::Random random{7};
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const Schedule schedule = random_schedule(random);
    check_same(schedule, cluster_from_dimensions(concat("1x", schedule.ranks())));
  }
}

TEST_CASE("what the traces cannot say is counted") {
  ScheduleBuilder builder{"s", Workload::abstract(3, 1), 3, {"compute"}};
  builder.stages(std::vector<StageWork>(1));
  const GroupId pair = builder.group({Rank{0}, Rank{1}});
  const TaskId first = builder.add({.op = Op::forward, .rank = Rank{2}, .stage = StageId{0}}, {});
  builder.add({.op = Op::forward, .rank = Rank{0}, .stage = StageId{0}}, {}, {{first}});
  builder.add({.op = Op::reduce, .rank = Rank{0}, .group = pair, .bytes = {Bytes{8}, 3}}, {});
  builder.add({.op = Op::broadcast, .rank = Rank{1}, .group = pair, .bytes = Bytes{8}}, {});
  const SplitId sizes = builder.pair_sizes({Bytes{0}, Bytes{1}, Bytes{2}, Bytes{0}});
  builder.add({.op = Op::all_to_all, .rank = Rank{0}, .group = pair, .split = sizes, .bytes = Bytes{2}}, {});
  const ChakraLosses losses = written(builder.build(), cluster_from_dimensions("1x3")).losses;
  CHECK(losses.far_waits == 1);
  CHECK(losses.reduces == 1);
  CHECK(losses.broadcasts == 1);
  CHECK(losses.repeated == 1);
  CHECK(losses.pair_sizes == 1);
}

TEST_CASE("sizes are those that ASTRA-sim expects") {
  ScheduleBuilder builder{"s", Workload::abstract(2, 1), 2, {"compute"}};
  const GroupId pair = builder.group({Rank{0}, Rank{1}});
  builder.add({.op = Op::all_gather, .rank = Rank{0}, .group = pair, .bytes = Bytes{9}}, {});
  builder.add({.op = Op::reduce_scatter, .rank = Rank{0}, .group = pair, .bytes = Bytes{9}}, {});
  builder.add({.op = Op::pass, .rank = Rank{0}, .peer = Rank{1}, .bytes = Bytes{5}}, {});
  builder.add({.op = Op::pass, .rank = Rank{0}, .peer = Rank{1}, .bytes = Bytes{6}}, {});
  builder.add({.op = Op::copy_to_host, .rank = Rank{1}, .bytes = Bytes{7}}, {});
  const ChakraTrace trace = written(builder.build(), cluster_from_dimensions("1x2")).trace;
  CHECK(trace.groups.at("1") == std::vector<std::int32_t>{0, 1});
  const auto& one = trace.ranks[1].nodes;
  REQUIRE(one.size() == 5);
  CHECK(one[0].number(ChakraKey::comm_size) == 5);  // a member's part of an all_gather, rounded up
  CHECK(one[1].number(ChakraKey::comm_size) == 9);
  CHECK(one[0].text(ChakraKey::pg_name) == "1");
  CHECK(one[2].is(ChakraType::receive));
  CHECK(trace.ranks[0].nodes[2].is(ChakraType::send));
  CHECK(one[2].number(ChakraKey::comm_tag) != one[3].number(ChakraKey::comm_tag));
  CHECK(one[2].number(ChakraKey::comm_src) == 0);
  CHECK(one[2].number(ChakraKey::comm_dst) == 1);
  CHECK(one[4].is(ChakraType::store));
  CHECK(one[4].number(ChakraKey::tensor_size) == 7);
  CHECK(one[4].data_deps == std::vector<std::uint64_t>{one[3].id});  // the order of their lane
  CHECK(one[4].control_deps == one[4].data_deps);
}

}  // namespace chakra_round_trip
