// V-Half and V-Min: two chunks a rank in a V, in half or a third of 1F1B's activation memory.
// Not: ZB-V, which has no bubbles in 1F1B's memory (zero_bubble_v.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/searched_order.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of v_half().
TAWPIPE_INLINE PipelineProgram v_half_program(int ranks, std::int32_t microbatches);

/// The order of v_min().
TAWPIPE_INLINE PipelineProgram v_min_program(int ranks, std::int32_t microbatches);

/// V-Half over `ranks` ranks and 2p stages: holds (p+2)/2 microbatches' activations a rank, rounded
/// down. With F = B = W and hops of no latency it loses S(p/2 - 2/3) (p >= 3, m >= p), about half
/// of what 1F1B loses.
/// Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362,
/// section 3.
TAWPIPE_INLINE Schedule v_half(const Workload& workload, int ranks, const SearchedOptions& options = {});

/// V-Min over `ranks` ranks and 2p stages: holds (p+4)/3 microbatches' activations a rank, rounded
/// down. With F = B = W and hops of no latency it loses about S 2p/3, less than 1F1B; with unequal
/// times its steady state loses some too.
/// Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362,
/// section 3.
TAWPIPE_INLINE Schedule v_min(const Workload& workload, int ranks, const SearchedOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include "tawpipe/schedules/detail/v_program.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE PipelineProgram v_half_program(int ranks, std::int32_t microbatches) {
  return detail::v_program(ranks, microbatches, {.down = 2, .up = 1, .back_down = 2, .back_up = 1}, (ranks + 2) / 2 * 2);
}

TAWPIPE_INLINE PipelineProgram v_min_program(int ranks, std::int32_t microbatches) {
  return detail::v_program(ranks, microbatches, {.down = 1, .up = 1, .back_down = 1, .back_up = 1}, (ranks + 4) / 3 * 2);
}

TAWPIPE_INLINE Schedule v_half(const Workload& workload, int ranks, const SearchedOptions& options) {
  return detail::paper_or_searched("v-half", workload, v_half_program(ranks, static_cast<std::int32_t>(workload.microbatches())),
                                   options);
}

TAWPIPE_INLINE Schedule v_min(const Workload& workload, int ranks, const SearchedOptions& options) {
  return detail::paper_or_searched("v-min", workload, v_min_program(ranks, static_cast<std::int32_t>(workload.microbatches())),
                                   options);
}

}  // namespace tawpipe::schedules
#endif
