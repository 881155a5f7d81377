// Automatic zero-bubble pipelines: the order with the shortest span that a heuristic finds under a
// memory limit.
// Not: the heuristic (detail/zero_bubble_planner.hpp) nor the fixed orders (zero_bubble.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/searched_order.hpp"

namespace tawpipe::inline v0::schedules {

/// The order with the shortest span, first to last computation of any rank, among the eight
/// variants of the heuristic, then made shorter: `tries` times one to three choices of the best are
/// flipped at random, and kept if nothing is lost. The same arguments give the same order on every
/// machine.
///
/// @param hop  time of a transfer, in the stages' unit
/// @throws InputError  if a stage's limit is below one activation.
/// Complexity: O((8 + tries) * stages * microbatches); tries are bounded so that this stays below
/// 2^26.
TAWPIPE_INLINE PipelineProgram zb_auto_program(const std::vector<ZeroBubbleStage>& stages, std::int64_t hop,
                                               std::int32_t microbatches, std::int64_t tries = 0);

/// An automatic zero-bubble pipeline over `ranks` stages, one a rank. With a limit of p activations
/// it takes ZB-H1's time, mS + (p-1)(F+B-W) + 4(p-1)c; from 2p on almost no time is lost if
/// backward_input releases much of an activation. A searched order has the shortest makespan found;
/// the paper's order has a short span of each rank, and is ZB-H1's where that is no longer and ends
/// sooner, as with more stages than layers.
/// @throws InputError  if the limit is below one microbatch's activations.
/// Source: Qi et al. 2024, arXiv:2401.10241, section 3 (ZB-1p, ZB-2p).
TAWPIPE_INLINE Schedule zb_auto(const Workload& workload, int ranks, const ZeroBubbleOptions& options = {});

namespace detail {
/// The stages of a workload as the heuristic sees them.
TAWPIPE_INLINE std::vector<ZeroBubbleStage> zero_bubble_stages(const Workload& workload, int ranks,
                                                               const ZeroBubbleOptions& options);
}  // namespace detail

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>
#include <limits>

#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/schedules/detail/zero_bubble_planner.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// Numbers that look random, the same on every machine.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_{seed} {}
  std::size_t below(std::size_t end) {
    const std::uint64_t bits = splitmix64(state_);
    state_ += splitmix64_step;
    return static_cast<std::size_t>(bits % end);
  }

 private:
  std::uint64_t state_;
};

}  // namespace detail

TAWPIPE_INLINE PipelineProgram zb_auto_program(const std::vector<ZeroBubbleStage>& stages, std::int64_t hop,
                                               std::int32_t microbatches, std::int64_t tries) {
  for (const ZeroBubbleStage& stage : stages) {
    if (stage.limit < stage.saved) {
      throw InputError("the memory limit of a zero-bubble pipeline must hold at least one microbatch's activations");
    }
  }
  PipelineProgram program;
  for (std::size_t s = 0; s < stages.size(); ++s) program.rank_of_stage.push_back(static_cast<int>(s));
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  detail::ZeroBubbleChoices best{stages.size(), microbatches, false, false, false};
  for (int way = 0; way < 8; ++way) {
    const detail::ZeroBubbleChoices choices{stages.size(), microbatches, (way & 1) != 0, (way & 2) != 0, (way & 4) != 0};
    detail::ZeroBubblePlanner planner{stages, hop, microbatches, choices};
    planner.run();
    if (planner.span() >= shortest) continue;
    shortest = planner.span();
    program.actions = planner.actions();
    best = choices;
  }
  detail::SplitMix random{1};
  const auto most = (std::int64_t{1} << 26) / (static_cast<std::int64_t>(stages.size()) * microbatches);
  for (std::int64_t i = 0; i < std::min(tries, most); ++i) {
    std::size_t turned[3] = {};
    const std::size_t count = 1 + random.below(3);
    for (std::size_t t = 0; t < count; ++t) {
      // half of the flips among the first choices, one a stage, which matter most
      turned[t] = random.below(random.below(2) == 0 ? stages.size() : best.size());
      best.flip(turned[t]);
    }
    detail::ZeroBubblePlanner planner{stages, hop, microbatches, best};
    planner.run();
    if (planner.span() < shortest) program.actions = planner.actions();
    if (planner.span() <= shortest) {
      shortest = planner.span();
    } else {
      for (std::size_t t = 0; t < count; ++t) best.flip(turned[t]);
    }
  }
  return program;
}

namespace detail {

TAWPIPE_INLINE std::vector<ZeroBubbleStage> zero_bubble_stages(const Workload& workload, int ranks,
                                                               const ZeroBubbleOptions& options) {
  const std::vector<StageWork> works = workload.split(ranks);
  const std::int64_t activations = options.limit.activations * (options.limit.a_rank ? ranks : 1);
  std::vector<ZeroBubbleStage> stages;
  for (const StageWork& work : works) {
    ZeroBubbleStage stage;
    OrderStage times;
    set_times(times, workload, work, options.times);
    stage.forward = times.forward;
    stage.backward_input = times.backward_input;
    stage.backward_weight = times.backward_weight;
    // A stage without a layer saves nothing, but the planner needs something to count. A limit
    // above the total is not a limit.
    stage.saved = std::max<std::int64_t>(work.saved.value(), 1);
    stage.kept = stage.saved * options.kept.numerator / options.kept.denominator;
    stage.limit = activations > 0 ? stage.saved * std::min<std::int64_t>(activations, workload.microbatches())
                                  : options.limit.bytes.value();
    stages.push_back(stage);
  }
  return stages;
}

/// Whether an order that fits has no longer a span than another, and a shorter makespan where
/// messages take at least a hundredth of the longest computation.
inline bool is_faster_order(OrderProblem problem, const std::vector<std::vector<Action>>& order,
                            const std::vector<std::vector<Action>>& other) {
  std::int64_t longest = 0;
  for (const OrderStage& stage : problem.stages) longest = std::max({longest, stage.forward, stage.backward_input});
  for (std::size_t s = 0; s + 1 < problem.stages.size(); ++s)
    problem.stages[s].hop = std::max(problem.stages[s].hop, longest / 100);
  problem = with_small_times(std::move(problem));
  const OrderWords words = words_of(problem, order);
  for (std::size_t d = 0; d < words.size(); ++d) {
    if (peak_held(problem, words[d]) > problem.limits[d]) return false;
  }
  OrderClock clock{problem};
  OrderClock clock_of_other{problem};
  if (words.empty() || !clock.run(words) || !clock_of_other.run(words_of(problem, other))) return false;
  return clock.span() <= clock_of_other.span() && clock.makespan() < clock_of_other.makespan();
}

}  // namespace detail

TAWPIPE_INLINE Schedule zb_auto(const Workload& workload, int ranks, const ZeroBubbleOptions& options) {
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  const bool searched = options.order == OrderSource::searched;
  if (!searched && options.moves != standard_moves) throw InputError("moves of zb-auto are for order=searched, others for tries");
  PipelineProgram program = zb_auto_program(detail::zero_bubble_stages(workload, ranks, options), options.times.transfer,
                                            microbatches, searched ? 0 : options.tries);
  program.kept = options.kept;
  OrderProblem problem = detail::order_problem(workload, program.rank_of_stage, ranks, program.kept, options.times);
  detail::set_limits(problem, options.limit);
  auto zb_h1 = interleaved_zero_bubble_program(ranks, microbatches, 1).actions;
  if (searched) {
    program.actions = search_order(problem, options.moves, {program.actions, zb_h1}).actions;
  } else if (detail::is_faster_order(problem, zb_h1, program.actions)) {
    program.actions = std::move(zb_h1);
  }
  return pipeline("zb-auto", workload, std::move(program), {}, option_texts(options));
}

}  // namespace tawpipe::schedules
#endif
