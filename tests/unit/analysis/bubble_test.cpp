// Idle shares of a schedule worked out by hand.
#include "tawpipe/analysis/bubble.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"

using namespace tawpipe;

TEST_CASE("the bubble is what the ranks do not work of ranks times makespan") {
  const test::TwoRanks two;
  const Bubble found = bubble(two.schedule, two.timeline);
  CHECK(two.timeline.makespan() == seconds(12));  // 2 + 1 + 2 + 3 + 1 + 3
  CHECK(found.busy[0] == seconds(5));             // 2 + 3 on each
  CHECK(found.busy[1] == seconds(5));
  CHECK(found.ratio == doctest::Approx(1 - 10.0 / 24));
}

TEST_CASE("the span rate takes the rank with the largest span from its first to its last computation") {
  const test::TwoRanks two;
  // Rank 0 spans 0 .. 12 s with 5 s of work; rank 1 spans 3 .. 8 s and has none idle.
  CHECK(bubble(two.schedule, two.timeline).span_rate() == doctest::Approx(1 - 5.0 / 12));
}
