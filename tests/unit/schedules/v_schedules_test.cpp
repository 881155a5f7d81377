// Tests of schedules/v_schedules.hpp: the memory that their paper promises, and what it costs.
// Not: ZB-V (zero_bubble_v_test.cpp).
#include "tawpipe/schedules/v_schedules.hpp"

#include <doctest/doctest.h>

#include "support/pipelines.hpp"
#include "tawpipe/schedules/detail/v_program.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Workload;
using namespace tawpipe::schedules;

TEST_CASE("V-Half keeps (p+2)/2 and V-Min (p+4)/3 microbatches' activations, rounded down, two stages each") {
  for (int p = 2; p <= 24; ++p) {
    CAPTURE(p);
    CHECK(support::max_saved(v_half_program(p, 4 * p)) == (p + 2) / 2 * 2);
    CHECK(support::max_saved(v_min_program(p, 4 * p)) == (p + 4) / 3 * 2);
  }
}

TEST_CASE("with F = B = W V-Half loses S(p/2 - 2/3), V-Min S(2p/3 - 5/6), or S(2p/3 - 1/2) where 3 divides p") {
  const FixedCost cost{12_s, 12_s, 12_s, 0_s};
  const auto s = support::whole(cost);  // 36 s: sixths are whole
  for (int p = 3; p <= 16; ++p) {
    for (const int m : {2 * p, 3 * p + 1, 6 * p}) {
      CAPTURE(p);
      CAPTURE(m);
      const auto half = support::run_pipeline(v_half(Workload::abstract(p, m), p), cost);
      CHECK(half.makespan == s * m + s * (3 * p - 4) / 6);
      const auto least = support::run_pipeline(v_min(Workload::abstract(p, m), p), cost);
      CHECK(least.makespan == s * m + s * (4 * p - (p % 3 == 0 ? 3 : 5)) / 6);
    }
  }
}

TEST_CASE("both lose less than 1F1B's S(p-1) also where a backward_weight is shorter") {
  const FixedCost cost{30_s, 30_s, 20_s, 0_s};
  for (const int p : {4, 8, 12}) {
    CAPTURE(p);
    const int m = 4 * p;
    CHECK(support::run_pipeline(v_half(Workload::abstract(p, m), p), cost).makespan < 80_s * (m + p - 1));
  }
}

TEST_CASE("a building block that fits no number of ranks is refused") {
  // four ways in lock-step over two ranks and three slots: four computations cannot have different
  // slots
  tawpipe::schedules::detail::VBlock block{.down = 1, .up = 1, .back_down = 1, .back_up = 1, .period = 3};
  CHECK_THROWS_WITH_AS(block.settle(2), "no building block of this shape repeats every 3 slots on 2 ranks",
                       tawpipe::ScheduleError);
}
