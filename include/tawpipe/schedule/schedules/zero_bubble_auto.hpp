// Automatic zero-bubble pipelines: the order with the shortest span that a heuristic finds under a memory limit.
// Not: the heuristic (detail/zero_bubble_planner.hpp) nor the orders made by hand (zero_bubble.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedules/detail/zero_bubble_planner.hpp"
#include "tawpipe/schedule/schedules/pipeline.hpp"

namespace tawpipe::schedules {

/// The order with the shortest span, first to last computation of any rank, among the heuristic's eight ways.
/// @param hop  what a transfer takes, in the stages' unit of time
/// @throws InputError  if a stage's limit is below one activation.
/// Complexity: O(stages * microbatches).
inline PipelineProgram zb_auto_program(const std::vector<ZeroBubbleStage>& stages, std::int64_t hop, std::int32_t microbatches) {
  for (const ZeroBubbleStage& stage : stages) {
    if (stage.limit < stage.saved) {
      throw InputError("the memory limit of a zero-bubble pipeline must hold at least one microbatch's activations");
    }
  }
  PipelineProgram program;
  for (std::size_t s = 0; s < stages.size(); ++s) program.rank_of_stage.push_back(static_cast<int>(s));
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int way = 0; way < 8; ++way) {
    detail::ZeroBubblePlanner planner{
        stages,
        hop,
        microbatches,
        {.wait_for_first = (way & 1) != 0, .skip_forwards = (way & 2) != 0, .fill_small_gaps = (way & 4) != 0}};
    planner.run();
    if (planner.span() >= shortest) continue;
    shortest = planner.span();
    program.actions = planner.actions();
  }
  return program;
}

/// Times to plan with, in any unit: of a device's whole share and one microbatch.
struct ZeroBubbleTimes {
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t transfer = 0;
};

struct ZeroBubbleOptions {
  /// In activations of one microbatch on each rank; 0: `limit_bytes`.
  std::int64_t limit = 0;
  Bytes limit_bytes = {};  ///< of saved activations on each rank, where `limit` is 0
  /// Of a saved activation, what backward_weight still needs. All of it is what frameworks keep today.
  Share kept = {};
  /// All zero: in proportion to the stages' operations, transfers free.
  ZeroBubbleTimes times = {0, 0, 0, 0};
};

namespace detail {

inline std::vector<ZeroBubbleStage> zero_bubble_stages(const Workload& workload, int ranks, const ZeroBubbleOptions& options) {
  const std::vector<StageWork> works = workload.split(ranks);
  const bool timed = options.times.forward > 0 || options.times.backward_input > 0 || options.times.backward_weight > 0;
  std::vector<ZeroBubbleStage> stages;
  for (const StageWork& work : works) {
    ZeroBubbleStage stage;
    if (timed) {
      stage.forward = options.times.forward;
      stage.backward_input = options.times.backward_input;
      stage.backward_weight = options.times.backward_weight;
    } else if (!workload.is_abstract()) {
      const auto mega = [](Flops flops) { return static_cast<std::int64_t>(flops.value() * 1e-6) + 1; };
      stage.forward = mega(work.forward);
      stage.backward_input = mega(work.recompute + work.backward_input);
      stage.backward_weight = mega(work.backward_weight);
    }
    // A stage without a layer saves nothing; the planner wants something to count. More than all is no limit.
    stage.saved = std::max<std::int64_t>(work.saved.value(), 1);
    stage.kept = stage.saved * options.kept.numerator / options.kept.denominator;
    stage.limit = options.limit > 0 ? stage.saved * std::min<std::int64_t>(options.limit, workload.microbatches())
                                    : options.limit_bytes.value();
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace detail

/// An automatic zero-bubble pipeline over `ranks` stages, one a rank. With a limit of p activations it takes ZB-H1's time,
/// mS + (p-1)(F+B-W) + 4(p-1)c; from 2p on nearly none is lost, where backward_input releases much of an activation.
/// @throws InputError  if the limit is below one microbatch's activations.
/// Source: Qi et al. 2024, arXiv:2401.10241, section 3 (ZB-1p, ZB-2p).
inline Schedule zb_auto(const Workload& workload, int ranks, const ZeroBubbleOptions& options,
                        std::vector<std::pair<std::string, std::string>> named_options = {}) {
  PipelineProgram program = zb_auto_program(detail::zero_bubble_stages(workload, ranks, options), options.times.transfer,
                                            static_cast<std::int32_t>(workload.microbatches()));
  program.kept = options.kept;
  return pipeline("zb-auto", workload, program, {}, std::move(named_options));
}

}  // namespace tawpipe::schedules
