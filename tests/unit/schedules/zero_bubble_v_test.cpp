// Tests of schedules/zero_bubble_v.hpp: no bubbles in 1F1B's memory.
// Not: V-Half and V-Min (v_schedules_test.cpp).
#include "tawpipe/schedules/zero_bubble_v.hpp"

#include <doctest/doctest.h>

#include "support/pipelines.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Workload;
using namespace tawpipe::schedules;

TEST_CASE("with F = B = W no rank of ZB-V waits, and the makespan is p-1 chunk forwards more, for m >= 2p-1") {
  const FixedCost cost{30_s, 30_s, 30_s, 0_s};
  for (int p = 1; p <= 16; ++p) {
    for (const int m : {2 * p - 1, 2 * p, 5 * p}) {
      CAPTURE(p);
      CAPTURE(m);
      const auto run = support::run_pipeline(zb_v(Workload::abstract(p, m), p), cost);
      CHECK(run.span == 90_s * m);
      CHECK(run.span_rate == 0);
      CHECK(run.makespan == 90_s * m + 15_s * (p - 1));
    }
  }
}

TEST_CASE("ZB-V keeps p microbatches' activations on every rank, two stages each") {
  for (int p = 1; p <= 9; ++p) {
    for (const int peak : peak_saved(zb_v_program(p, 3 * p))) CHECK(peak == 2 * p);
  }
}

TEST_CASE("ZB-V's two ranks, by hand") {
  const auto orders = zb_v_program(2, 3).actions;
  constexpr Op f = Op::forward, i = Op::backward_input, w = Op::backward_weight;
  CHECK(orders[0] == std::vector<Action>{{f, 0, 0},
                                         {f, 0, 1},
                                         {f, 0, 2},
                                         {f, 3, 0},
                                         {i, 3, 0},
                                         {w, 3, 0},
                                         {f, 3, 1},
                                         {i, 3, 1},
                                         {w, 3, 1},
                                         {i, 0, 0},
                                         {w, 0, 0},
                                         {f, 3, 2},
                                         {i, 3, 2},
                                         {w, 3, 2},
                                         {i, 0, 1},
                                         {w, 0, 1},
                                         {i, 0, 2},
                                         {w, 0, 2}});
  CHECK(orders[1] == std::vector<Action>{{f, 1, 0},
                                         {f, 2, 0},
                                         {f, 1, 1},
                                         {f, 2, 1},
                                         {i, 2, 0},
                                         {w, 2, 0},
                                         {f, 1, 2},
                                         {i, 1, 0},
                                         {w, 1, 0},
                                         {f, 2, 2},
                                         {i, 2, 1},
                                         {w, 2, 1},
                                         {i, 1, 1},
                                         {i, 2, 2},
                                         {i, 1, 2},
                                         {w, 1, 1},
                                         {w, 2, 2},
                                         {w, 1, 2}});
}
