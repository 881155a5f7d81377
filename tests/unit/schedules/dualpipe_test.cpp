// Tests of schedules/dualpipe.hpp: bubbles, memory, copies, and the order that PyTorch has.
// Not: what every pipeline must do (properties/pipelines_test.cpp).
#include "tawpipe/schedules/dualpipe.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "support/pipelines.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Workload;
using namespace tawpipe::schedules;

TEST_CASE("DualPipe waits (p/2-1)(F&B + B - 3W) where a block is its parts' sum and F is as long as backward_input") {
  for (const FixedCost& cost : {FixedCost{30_s, 30_s, 30_s, 0_s}, FixedCost{30_s, 30_s, 18_s, 0_s}}) {
    const auto s = support::whole(cost);
    const auto idle = s + (cost.backward_input + cost.backward_weight) - cost.backward_weight * 3;
    for (int p = 2; p <= 12; p += 2) {
      for (const int m : {2 * p, 2 * p + 2, 6 * p}) {
        CAPTURE(p);
        CAPTURE(m);
        CHECK(support::run_pipeline(dualpipe(Workload::abstract(p, m), p), cost).makespan == s * m + idle * (p / 2 - 1));
        // each of DualPipeV's two stages a rank takes half as long, and p ranks are the half of
        // DualPipe's 2p
        CHECK(support::run_pipeline(dualpipe_v(Workload::abstract(p, m), p), cost).makespan == s * m + idle * (p - 1) / 2);
      }
    }
  }
}

TEST_CASE("where F and backward_input differ the wait is (p/2-1)(F&B + F - 2W)") {
  // the published form has backward_input + W = B where the critical path has F + W
  for (const FixedCost& cost : {FixedCost{20_s, 18_s, 10_s, 0_s}, FixedCost{18_s, 20_s, 10_s, 0_s}}) {
    const auto idle = support::whole(cost) + cost.forward - cost.backward_weight * 2;
    CHECK(support::run_pipeline(dualpipe(Workload::abstract(8, 16), 8), cost).makespan == support::whole(cost) * 16 + idle * 3);
  }
}

TEST_CASE("DualPipe keeps p+1 microbatches' activations, DualPipeV 2p+1 stages'") {
  for (int p = 2; p <= 12; p += 2) {
    CHECK(support::max_saved(dualpipe_program(p, 3 * p)) == p + 1);
    CHECK(support::max_saved(dualpipe_v_program(p, 3 * p)) == 2 * p + 1);
  }
}

TEST_CASE("DualPipe has each stage on two ranks and sums the copies' gradients") {
  const auto schedule = dualpipe(Workload::abstract(4, 8), 4);
  const auto sums = std::ranges::count_if(schedule.tasks(), [](const auto& task) { return task.op == Op::all_reduce; });
  const auto updates = std::ranges::count_if(schedule.tasks(), [](const auto& task) { return task.op == Op::update; });
  CHECK(sums == 4);
  CHECK(updates == 8);
}

TEST_CASE("DualPipeV's blocks and order are PyTorch's") {
  std::ifstream file{TAWPIPE_SHARED "/reference/pytorch_pipeline_csv/dualpipev_4rank_10mb.csv"};
  if (!file.is_open()) {
    MESSAGE("the reference order is not here");
    return;
  }
  CHECK(support::read_orders(file) == dualpipe_v_program(4, 10).actions);
}

TEST_CASE("DualPipeV on one rank, by hand") {
  // depth 1: forwards of both sides, one backward apart, a block, then what is left of both sides
  constexpr Op f = Op::forward, b = Op::backward, i = Op::backward_input, w = Op::backward_weight;
  CHECK(dualpipe_v_program(1, 2).actions[0] ==
        std::vector<Action>{
            {f, 0, 0}, {f, 1, 0}, {f, 0, 1}, {b, 1, 0}, {f, 1, 1, true}, {b, 0, 0}, {b, 1, 1}, {i, 0, 1}, {w, 0, 1}});
}

TEST_CASE("fewer microbatches than 2p or an odd number keep each direction's share") {
  const auto program = dualpipe_program(4, 3);
  // microbatches 0 and 2 enter at rank 0, 1 at rank 3
  CHECK(program.actions[0].front() == Action{Op::forward, 0, 0});
  CHECK(program.actions[3].front() == Action{Op::forward, 0, 1});
  CHECK(program.actions[0].size() == 3 * 2 + static_cast<std::size_t>(std::ranges::count_if(
                                                 program.actions[0], [](const auto& a) { return a.op == Op::backward_weight; })));
}

TEST_CASE("DualPipe refuses an odd number of ranks and says what would do") {
  CHECK_THROWS_WITH_AS(dualpipe(Workload::abstract(3, 6), 3),
                       "dualpipe feeds microbatches from both ends and needs an even number of ranks, not 3",
                       tawpipe::InputError);
}
