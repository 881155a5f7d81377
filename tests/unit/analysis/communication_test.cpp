// Communication time of a schedule worked out by hand.
#include "tawpipe/analysis/communication.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"

using namespace tawpipe;

TEST_CASE("both ranks are in two hops of one second, and compute nothing meanwhile") {
  const test::TwoRanks two;
  const Communication found = communication(two.schedule, two.timeline);
  CHECK(found.busy_s == doctest::Approx(2));
  CHECK(found.exposed_s == doctest::Approx(2));
}

TEST_CASE("a lane counts its own transfers, as a mean over the ranks") {
  const test::TwoRanks two;
  const Communication found = communication(two.schedule, two.timeline);
  CHECK(two.schedule.lanes()[1] == "send_next");
  CHECK(found.lane_busy_s[0] == 0);                        // computes
  CHECK(found.lane_busy_s[1] == doctest::Approx(0.5));     // rank 0 sends 1 s, rank 1 nothing
  CHECK(found.lane_exposed_s[1] == doctest::Approx(0.5));  // no rank computes
}

TEST_CASE("what computation hides is busy and not exposed") {
  // Two microbatches: rank 0's second forward (2 .. 4 s) hides the first hop (2 .. 3 s).
  const test::TwoRanks two;
  const Schedule schedule = schedules::gpipe(Workload::abstract(2, 2), 2);
  const FixedCost cost{
      .forward = seconds(2), .backward_input = seconds(2), .backward_weight = seconds(1), .transfer = seconds(1)};
  const Communication found = communication(schedule, simulate(schedule, two.cluster, cost));
  // Rank 0 sends 2 s, of which the second hop (4 .. 5 s) is exposed.
  CHECK(found.lane_busy_s[1] == doctest::Approx(1));
  CHECK(found.lane_exposed_s[1] == doctest::Approx(0.5));
  CHECK(found.exposed_s < found.busy_s);
}
