// Tests of simulate/simulate.hpp: schedules on clusters under cost models.
// Not: the engine below (engine_test.cpp) nor closed forms of schedules (unit/schedule/).
#include "tawpipe/simulate/simulate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "support/clusters.hpp"
#include "support/hand_built.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/simulate/watch.hpp"

using namespace tawpipe::literals;
using support::no_overhead;
using support::pass;
using support::two_lanes;
using tawpipe::Cluster;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Rank;
using tawpipe::RooflineCost;
using tawpipe::Schedule;
using tawpipe::TaskId;
using tawpipe::Timeline;
using tawpipe::TimePoint;
using tawpipe::Workload;

TEST_CASE("who watches a simulation is told how many tasks have ended, and only while watching") {
  auto b = two_lanes(2);
  for (int i = 0; i < 5; ++i) b.add(pass(0, 1, 1_GB), {});
  const Schedule schedule = b.build();
  std::vector<std::size_t> told;
  const auto note = [&](std::size_t ended, std::size_t all) {
    CHECK(all == 5);
    told.push_back(ended);
  };
  {
    const tawpipe::SimulationWatch watch{note};
    simulate(schedule, support::cluster(2), no_overhead);
    CHECK(told.back() == 5);
    CHECK(std::is_sorted(told.begin(), told.end()));
  }
  told.clear();
  simulate(schedule, support::cluster(2), no_overhead);
  CHECK(told.empty());
}

TEST_CASE("a simulation that is told to stop ends early") {
  auto b = two_lanes(2);
  for (int i = 0; i < 300; ++i) b.add(pass(0, 1, 1_GB), {});
  const Schedule schedule = b.build();
  int asked = 0;
  const auto told = [&] { return ++asked > 3; };
  const tawpipe::StopScope scope{told};
  CHECK_THROWS_AS(simulate(schedule, support::cluster(2), no_overhead), tawpipe::Stopped);
  CHECK(asked == 4);
}

TEST_CASE("lanes run in order, whether or not tasks share a buffer") {
  auto b = two_lanes(2);
  b.add(pass(0, 1, 1_GB), {});
  b.add(pass(0, 1, 1_GB), {});
  const Timeline timeline = simulate(b.build(), support::cluster(2), no_overhead);
  // 1 GB at 1 GB/s after 1 us, one after another
  CHECK(timeline.end_of(TaskId{0}) == TimePoint{1_s + 1_us});
  CHECK(timeline.start_of(TaskId{1}) == TimePoint{1_s + 1_us});
  CHECK(timeline.makespan() == 2_s + 2_us);
}

TEST_CASE("the two directions between two devices do not share") {
  auto b = two_lanes(2);
  tawpipe::Task back = pass(1, 0, 1_GB);
  back.lane = back.peer_lane = tawpipe::LaneId{0};
  b.add(pass(0, 1, 1_GB), {});
  b.add(back, {});
  CHECK(simulate(b.build(), support::cluster(2), no_overhead).makespan() == 1_s + 1_us);
}

TEST_CASE("two devices of a node share its adapter") {
  // ranks 0, 1 | 2, 3: both leave node 0 at half of 1 GB/s
  auto b = two_lanes(4);
  b.add(pass(0, 2, 1_GB), {});
  b.add(pass(1, 3, 1_GB), {});
  CHECK(simulate(b.build(), support::cluster(4, 2), no_overhead).makespan() == 2_s + 1_us);
  // inside their nodes they would not
  auto inside = two_lanes(4);
  inside.add(pass(0, 1, 1_GB), {});
  inside.add(pass(2, 3, 1_GB), {});
  CHECK(simulate(inside.build(), support::cluster(4, 2), no_overhead).makespan() == 1_s + 1_us);
}

TEST_CASE("an exchange takes both directions at once") {
  auto b = two_lanes(2);
  auto task = pass(0, 1, 1_GB);
  task.op = Op::exchange;
  b.add(task, {});
  CHECK(simulate(b.build(), support::cluster(2), no_overhead).makespan() == 1_s + 1_us);
}

TEST_CASE("a collective moves its fraction of the buffer over each edge") {
  auto b = two_lanes(4);
  const auto group = b.group({Rank{0}, Rank{1}, Rank{2}, Rank{3}});
  b.add({.op = Op::all_gather, .lane = tawpipe::LaneId{1}, .rank = Rank{0}, .group = group, .bytes = 4_GB}, {});
  // 3/4 of 4 GB at 1 GB/s, 3 hops of 1 us
  CHECK(simulate(b.build(), support::cluster(4), no_overhead).makespan() == 3_s + 3_us);
}

TEST_CASE("a repeated communication takes its latency and its bytes each time") {
  auto b = two_lanes(2);
  auto task = pass(0, 1, 1_GB);
  task.bytes = {1_GB, 3};
  b.add(task, {});
  CHECK(simulate(b.build(), support::cluster(2), no_overhead).makespan() == 3_s + 3_us);
}

TEST_CASE("a collective starts when its last member is ready") {
  auto b = two_lanes(2);
  b.stages(Workload::abstract(2, 1).split(2));
  const auto group = b.group({Rank{0}, Rank{1}});
  b.add({.op = Op::forward, .rank = Rank{1}, .stage = tawpipe::StageId{0}}, {});
  b.add({.op = Op::all_reduce, .lane = tawpipe::LaneId{0}, .rank = Rank{0}, .group = group, .bytes = 1_GB}, {});
  const FixedCost fixed{.forward = 5_s, .backward_input = 0_s, .backward_weight = 0_s, .transfer = 2_s};
  const Timeline timeline = simulate(b.build(), support::cluster(2), fixed);
  CHECK(timeline.start_of(TaskId{1}) == TimePoint{5_s});
  CHECK(timeline.makespan() == 7_s);
}

TEST_CASE("a schedule of more ranks than the cluster has devices is refused") {
  const Schedule schedule = two_lanes(3).build();
  const Cluster cluster = support::cluster(2);
  CHECK_THROWS_WITH_AS(simulate(schedule, cluster, no_overhead), "the schedule needs 3 ranks and cluster 'cluster' has 2 devices",
                       tawpipe::InputError);
}

TEST_CASE("fewer ranks than devices leave the rest idle") {
  auto b = two_lanes(2);
  b.add(pass(0, 1, 1_GB), {});
  CHECK(simulate(b.build(), support::cluster(8, 2), no_overhead).makespan() == 1_s + 1_us);
}

TEST_CASE("two runs, and runs on several threads, give equal timelines") {
  const Cluster cluster = support::cluster(6, 3);
  const Schedule schedule = tawpipe::schedules::tawpipe(support::transformer(12, 12), cluster.groups_by_node());
  const Timeline first = simulate(schedule, cluster, RooflineCost{});
  CHECK(first.makespan() > 0_s);
  CHECK(simulate(schedule, cluster, RooflineCost{}) == first);
  CHECK(simulate(tawpipe::schedules::tawpipe(support::transformer(12, 12), cluster.groups_by_node()), cluster, RooflineCost{}) ==
        first);
  std::vector<Timeline> others(4);
  std::vector<std::thread> threads;
  for (auto& other : others) threads.emplace_back([&] { other = simulate(schedule, cluster, RooflineCost{}); });
  for (auto& thread : threads) thread.join();
  for (const auto& other : others) CHECK(other == first);
}
