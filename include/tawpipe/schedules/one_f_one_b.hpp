// 1F1B: after a warm-up, each rank alternates one forward and one backward.
// Not: the interleaved form with several chunks a rank.
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules {

/// 1F1B over `ranks` stages, one a rank; rank r warms up with p - 1 - r forwards. Where p divides m
/// the makespan is (m+p-1)(F+B) + c[2(p-1)m/p + 2(p-2)]; a rank holds at most p activations.
/// Source: Narayanan et al. 2019, PipeDream, and 2021, arXiv:2104.04473, section 2.2.
TAWPIPE_INLINE Schedule one_f_one_b(const Workload& workload, int ranks, const BlockingOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>

#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE Schedule one_f_one_b(const Workload& workload, int ranks, const BlockingOptions& options) {
  const BlockingOptions chosen = options.resolved(workload);
  PipelineProgram program;
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  for (int r = 0; r < ranks; ++r) {
    program.rank_of_stage.push_back(r);
    std::vector<Action> actions;
    const std::int32_t warm_up = std::min<std::int32_t>(ranks - 1 - r, microbatches);
    for (std::int32_t m = 0; m < warm_up; ++m) actions.push_back({Op::forward, r, m});
    for (std::int32_t m = 0; m < microbatches; ++m) {
      if (m + warm_up < microbatches) actions.push_back({Op::forward, r, m + warm_up});
      actions.push_back({Op::backward, r, m});
    }
    program.actions.push_back(std::move(actions));
  }
  return pipeline("1f1b", workload, std::move(program), {.overlap = *chosen.overlap}, option_texts(chosen));
}

}  // namespace tawpipe::schedules
#endif
