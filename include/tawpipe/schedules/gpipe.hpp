// GPipe: all forwards, then all backwards.
// Not: 1F1B, which bounds the activations it keeps (one_f_one_b.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules {

/// GPipe over `ranks` stages, one a rank. Makespan (m+p-1)(F+B) + 2(p-1)c; holds m activations a
/// rank.
/// Source: Huang et al. 2019, arXiv:1811.06965.
TAWPIPE_INLINE Schedule gpipe(const Workload& workload, int ranks, const BlockingOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE Schedule gpipe(const Workload& workload, int ranks, const BlockingOptions& options) {
  const BlockingOptions chosen = options.resolved(workload);
  PipelineProgram program;
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  for (int r = 0; r < ranks; ++r) {
    program.rank_of_stage.push_back(r);
    std::vector<Action> actions;
    for (std::int32_t m = 0; m < microbatches; ++m) actions.push_back({Op::forward, r, m});
    for (std::int32_t m = 0; m < microbatches; ++m) actions.push_back({Op::backward, r, m});
    program.actions.push_back(std::move(actions));
  }
  return pipeline("gpipe", workload, std::move(program), {.overlap = *chosen.overlap}, option_texts(chosen));
}

}  // namespace tawpipe::schedules
#endif
