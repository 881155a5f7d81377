// The chain that the makespan waits for, worked out by hand.
#include "tawpipe/analysis/critical_path.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe;

TEST_CASE("with one microbatch everything is on the critical path, in order") {
  const test::TwoRanks two;
  const CriticalPath path = critical_path(two.schedule, two.timeline);
  CHECK(path.time_of_op[static_cast<std::size_t>(Op::forward)] == seconds(4));
  CHECK(path.time_of_op[static_cast<std::size_t>(Op::backward)] == seconds(6));
  CHECK(path.time_of_op[static_cast<std::size_t>(Op::pass)] == seconds(2));
  for (std::size_t i = 1; i < path.tasks.size(); ++i) {
    CHECK(two.timeline.start_of(path.tasks[i]) == two.timeline.end_of(path.tasks[i - 1]));
  }
}

TEST_CASE("tasks of a lane may be in another order than their numbers") {
  Schedule::Parts parts;
  parts.ranks = 1;
  parts.lanes = {"compute", "copy"};
  for (int t = 0; t < 3; ++t) parts.tasks.push_back({.op = Op::forward, .rank = Rank{0}});
  parts.dependencies = {{0, 0, 0, 0}, {}};
  parts.program = {{0, 3, 3}, {TaskId{0}, TaskId{2}, TaskId{1}}};
  const Schedule schedule{Workload::abstract(1, 1), std::move(parts)};
  const auto at = [](int time) { return TimePoint{Duration{time}}; };
  const Timeline timeline{{at(0), at(3), at(1)}, {at(1), at(9), at(3)}};
  CHECK(critical_path(schedule, timeline).tasks == std::vector<TaskId>{TaskId{0}, TaskId{2}, TaskId{1}});
}

TEST_CASE("of several tasks before one that end together, the first lane's is on the critical path") {
  ScheduleBuilder builder{"test", Workload::abstract(1, 1), 2, {"compute", "copy"}};
  const GroupId both = builder.group({Rank{1}, Rank{0}});
  builder.add({.op = Op::forward, .rank = Rank{1}}, {});
  builder.add({.op = Op::forward, .rank = Rank{0}}, {});
  builder.add({.op = Op::all_reduce, .rank = Rank{1}, .group = both}, {});
  const Schedule schedule = builder.build();
  const auto at = [](int time) { return TimePoint{Duration{time}}; };
  const Timeline timeline{{at(0), at(0), at(2)}, {at(2), at(2), at(3)}};
  CHECK(critical_path(schedule, timeline).tasks == std::vector<TaskId>{TaskId{1}, TaskId{2}});
}

TEST_CASE("the parts of a critical path add up to the makespan") {
  const test::TwoRanks two;
  for (const int microbatches : {2, 5, 9}) {
    const Schedule schedule = schedules::gpipe(Workload::abstract(2, microbatches), 2);
    const FixedCost cost{
        .forward = seconds(2), .backward_input = seconds(2), .backward_weight = seconds(1), .transfer = seconds(7)};
    const Timeline timeline = simulate(schedule, two.cluster, cost);
    Duration sum;
    for (const Duration time : critical_path(schedule, timeline).time_of_op) sum += time;
    CHECK(sum == timeline.makespan());
  }
}
