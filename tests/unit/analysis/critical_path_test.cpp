// The chain that the makespan waits for, worked out by hand.
#include "tawpipe/analysis/critical_path.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"

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
