// Tests of schedules/zero_bubble_auto.hpp: limits, and what more memory buys.
// Not: the published bubble rates (oracle/zero_bubble_test.cpp).
#include "tawpipe/schedules/zero_bubble_auto.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "support/pipelines.hpp"
#include "tawpipe/schedules/detail/zero_bubble_planner.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Workload;
using namespace tawpipe::schedules;

namespace {

constexpr FixedCost cost{310_s, 290_s, 180_s, 7_s};
constexpr ZeroBubbleTimes times{310, 290, 180, 7};

support::PipelineRun run(int ranks, int microbatches, std::int64_t limit, tawpipe::Share kept = {}) {
  return support::run_pipeline(zb_auto(Workload::abstract(ranks, microbatches), ranks,
                                       {.limit = {.activations = limit}, .kept = kept, .times = times, .tries = 0}),
                               cost);
}

}  // namespace

TEST_CASE("under p activations the automatic schedule takes ZB-H1's time") {
  for (int p = 1; p <= 12; ++p) {
    for (const int m : {2 * p, 3 * p + 1, 6 * p}) {
      CAPTURE(p);
      CAPTURE(m);
      CHECK(run(p, m, p).span == support::run_pipeline(zb_h1(Workload::abstract(p, m), p), cost).span);
    }
  }
}

TEST_CASE("under 2p activations, most of each released by backward_input, less than two computations of a rank are lost") {
  for (const int p : {4, 8, 16}) {
    CAPTURE(p);
    const auto lost = run(p, 4 * p, 2 * p, {2, 5}).span - support::whole(cost) * (4 * p);
    CHECK(lost < cost.forward * 2);
  }
}

TEST_CASE("a slow first stage holds back the forwards of those behind it") {
  // Before its first backward arrives at 17 the second stage has time for all three forwards (from
  // 11, one unit each); the first starts its second at 10 and has only two.
  const std::vector<ZeroBubbleStage> stages{{.forward = 10, .limit = 3}, {.limit = 3}, {.backward_input = 5, .limit = 3}};
  const PipelineProgram program = zb_auto_program(stages, 0, 3);
  for (const auto& actions : program.actions) CHECK(actions.size() == 9);  // three kinds of three microbatches
  CHECK(support::run_pipeline(pipeline("plan", Workload::abstract(3, 3), program, {}), cost).makespan > 0_s);
}

TEST_CASE("the plan's own span is the simulated one") {
  const std::vector<ZeroBubbleStage> stages(6, {310, 290, 180, 5, 2, 50});
  for (const bool wait : {false, true}) {
    const tawpipe::schedules::detail::ZeroBubbleChoices choices{6, 20, wait, wait, !wait};
    tawpipe::schedules::detail::ZeroBubblePlanner planner{stages, 7, 20, choices};
    planner.run();
    PipelineProgram program;
    for (int s = 0; s < 6; ++s) program.rank_of_stage.push_back(s);
    program.actions = planner.actions();
    const auto simulated = support::run_pipeline(pipeline("plan", Workload::abstract(6, 20), program, {}), cost);
    CHECK(simulated.span == 1_s * planner.span());
  }
}

TEST_CASE("no rank holds more than the limit, down to one activation, which is one microbatch after the other") {
  for (int p = 1; p <= 8; ++p) {
    for (const std::int64_t limit : {1, 2, p, 2 * p, 100}) {
      CAPTURE(p);
      CAPTURE(limit);
      const int m = 3 * p;
      const std::vector<ZeroBubbleStage> stages(static_cast<std::size_t>(p), {310, 290, 180, 1, 1, limit});
      for (const int peak : peak_saved(zb_auto_program(stages, 7, m))) CHECK(peak <= std::min<std::int64_t>(limit, m));
    }
  }
  // stage 0 cannot start a forward before the backward_weight of the one before
  const auto alone = run(4, 3, 1);
  CHECK(alone.span >= (cost.forward * 4 + cost.backward_input * 4 + cost.backward_weight + cost.transfer * 6) * 3);
}

TEST_CASE("tries make the order no longer, the same way each time, and shorter where the heuristic leaves room") {
  const auto span = [](std::int64_t limit, int tries) {
    // the 1.5B model of the paper on 8 ranks with 32 microbatches
    const ZeroBubbleOptions options{.limit = {.activations = limit},
                                    .kept = {32 * 2304, 34 * 2304 + 5 * 24 * 1024},
                                    .times = {18513, 18086, 9331, 626},
                                    .tries = tries};
    return support::run_pipeline(zb_auto(Workload::abstract(8, 32), 8, options), {18513_us, 18086_us, 9331_us, 626_us}).span;
  };
  for (const std::int64_t limit : {4, 8, 12, 16}) {
    CHECK(span(limit, 50) <= span(limit, 0));
    CHECK(span(limit, 200) <= span(limit, 50));
    CHECK(span(limit, 200) == span(limit, 200));
  }
  // the paper's 0.0039 of the whole falls below 0.0025
  const auto work = 45930_us * 32;
  CHECK(1 - work / span(16, 0) > 0.0038);
  CHECK(1 - work / span(16, 256) < 0.0025);
}

TEST_CASE("stages may differ: a longer last stage bounds the span from below") {
  std::vector<ZeroBubbleStage> stages(4, {100, 100, 60, 1, 1, 8});
  stages.back() = {150, 150, 80, 1, 1, 8};
  const tawpipe::schedules::detail::ZeroBubbleChoices choices{4, 16, false, false, false};
  tawpipe::schedules::detail::ZeroBubblePlanner planner{stages, 1, 16, choices};
  planner.run();
  CHECK(planner.span() >= 16 * 380);
  CHECK(planner.span() < 17 * 380 + 3 * 260);
}

TEST_CASE("real models are planned by their operations") {
  const Workload work = support::transformer(8, 12);
  const auto schedule = zb_auto(work, 4, {.limit = {.activations = 8}, .tries = 0});
  CHECK(schedule.stages().size() == 4);
  // a limit in bytes: two microbatches of the largest stage, more of a smaller one
  tawpipe::Bytes largest;
  for (const auto& stage : schedule.stages()) largest = std::max(largest, stage.saved);
  const auto program =
      zb_auto_program(tawpipe::schedules::detail::zero_bubble_stages(work, 4, {.limit = {.bytes = largest * 2}}), 0, 12);
  const auto peaks = peak_saved(program);
  for (std::size_t s = 0; s < peaks.size(); ++s) CHECK(schedule.stages()[s].saved * peaks[s] <= largest * 2);
  CHECK(peaks[0] >= 2);
}

TEST_CASE("a limit below one activation is refused") {
  CHECK_THROWS_WITH_AS(zb_auto(Workload::abstract(2, 4), 2, {.limit = {.bytes = 999_KB}}),
                       "the memory limit of a zero-bubble pipeline must hold at least one microbatch's activations",
                       tawpipe::InputError);
}
