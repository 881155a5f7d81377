// Tests of simulate/lane_order.hpp: a schedule's tasks start when its graph, written out, lets them
// start.
// Not: how long they take (simulate_test.cpp).
#include "tawpipe/simulate/lane_order.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/each_schedule.hpp"
#include "support/random.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe;

namespace {

/// Tasks of random lengths, zero among them, in the schedule's order as LaneOrder finds it, with
/// the rows of each kind's tasks and without, and as a written-out graph says it.
struct TwoOrders {
  explicit TwoOrders(const Schedule& schedule, std::uint64_t seed) {
    support::Random random{seed};
    EngineGraph kinds;
    for (int length = 0; length < 5; ++length) kinds.tasks.push_back({length, 0, -1, 0});
    std::vector<std::int32_t> kind;
    EngineGraph placed;
    detail::TaskKinds placed_kinds{placed};
    std::vector<std::int32_t> placed_kind;
    EngineGraph graph;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      kind.push_back(random.between(0, 4));
      graph.tasks.push_back(kinds.tasks[static_cast<std::size_t>(kind.back())]);
      placed_kind.push_back(placed_kinds.find(graph.tasks.back(), detail::lane_ends(schedule, schedule.tasks()[t])));
    }
    graph.connect([&](auto&& visit) { detail::for_each_edge(schedule, visit); });
    found = detail::EngineRun{kinds, detail::LaneOrder{schedule, kinds, std::move(kind)}}.run();
    detail::LaneOrder with_ends{schedule, placed, std::move(placed_kind), placed_kinds.take_ends()};
    CHECK(detail::EngineRun{placed, std::move(with_ends)}.run() == found);
    written = run_engine(graph);
  }
  Timeline found;
  Timeline written;
};

}  // namespace

TEST_CASE("every schedule of the catalogue runs as its graph, written out, does") {
  support::for_each_schedule(Workload::abstract(8, 16), {{4, 4}, {2, 2, 2, 2}}, [](const Schedule& schedule) {
    const TwoOrders orders{schedule, schedule.tasks().size()};
    CHECK(orders.found == orders.written);
  });
}

TEST_CASE("so do composed schedules, and folded ones, which leave out the programs of most ranks") {
  const Mesh mesh = Mesh{.tensor = 2, .context = 2, .data = 2}.over(32);
  const Schedule logical = schedules::gpipe(support::transformer(8, 6), mesh.pipeline, {.overlap = true});
  const Workload whole = support::transformer(8, 12);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const TwoOrders orders{compose(logical, whole, mesh), seed};
    CHECK(orders.found == orders.written);
    const FoldAxes axes{.tensor = true, .context = false, .data = true};
    const FoldedSchedule folded = fold_kept(compose_kept(logical, whole, mesh, {}, axes), whole, mesh, axes);
    const TwoOrders of_folded{folded.schedule, seed};
    CHECK(of_folded.found == of_folded.written);
  }
}

TEST_CASE("a task in no lane waits for its dependencies only") {
  ScheduleBuilder builder{"test", Workload::abstract(1, 1), 2, {"compute"}};
  builder.written_ranks({1, 0});
  const TaskId first = builder.add({.op = Op::forward, .rank = Rank{0}}, {});
  const TaskId after[] = {first};
  builder.add({.op = Op::forward, .rank = Rank{1}}, {}, after);  // a rank without a program
  builder.add({.op = Op::forward, .rank = Rank{1}}, {});
  const Schedule schedule = builder.build();
  EngineGraph kinds;
  kinds.tasks = {{5, 0, -1, 0}};
  const Timeline run = detail::EngineRun{kinds, detail::LaneOrder{schedule, kinds, {0, 0, 0}}}.run();
  CHECK(run.end_of(TaskId{0}) == TimePoint{Duration{5}});
  CHECK(run.end_of(TaskId{1}) == TimePoint{Duration{10}});
  CHECK(run.end_of(TaskId{2}) == TimePoint{Duration{5}});
}

TEST_CASE("tasks that wait for each other are refused, and the first is named") {
  Schedule::Parts parts;
  parts.ranks = 1;
  parts.lanes = {"compute"};
  for (int t = 0; t < 3; ++t) parts.tasks.push_back({.op = Op::forward, .rank = Rank{0}});
  parts.dependencies = {{0, 0, 1, 1}, {TaskId{2}}};  // task 1 waits for task 2, which is after it
  parts.program = {{0, 3}, {TaskId{0}, TaskId{1}, TaskId{2}}};
  const Schedule schedule{Workload::abstract(1, 1), std::move(parts)};
  EngineGraph kinds;
  kinds.tasks = {{5, 0, -1, 0}};
  detail::EngineRun run{kinds, detail::LaneOrder{schedule, kinds, {0, 0, 0}}};
  CHECK_THROWS_WITH_AS(run.run(), "2 of 3 tasks wait for each other and never start; the first is task 1", ScheduleError);
}

TEST_CASE("tasks with the same times and path are one kind") {
  EngineGraph graph;
  detail::TaskKinds kinds{graph};
  // More than the hash table begins with.
  for (int twice = 0; twice < 2; ++twice) {
    for (int i = 0; i < 1000; ++i) CHECK(kinds.find({i / 10, i % 5 / 2.0, i % 10 / 5 - 1, 0}) == i);
  }
  CHECK(graph.tasks.size() == 1000);
  CHECK(graph.tasks[123].delay == 12);
  CHECK(kinds.find({12, 1, -1, 0}) == 122);
  CHECK(kinds.find({12, 1, -1, 0}, {5, 7}) == 1000);  // in other rows
  CHECK(kinds.find({12, 1, -1, 0}, {5, 7}) == 1000);
  CHECK(kinds.take_ends()[1000] == detail::LaneEnds{5, 7});
}
