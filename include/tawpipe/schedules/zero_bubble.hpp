// Zero-bubble pipelines with fixed orders: ZB-H1, ZB-H2, and interleaved 1F1B with split backwards.
// Not: the automatic pipelines under a memory limit (zero_bubble_auto.hpp) nor those of V shape
// (zero_bubble_v.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/interleaved_one_f_one_b.hpp"
#include "tawpipe/schedules/searched_order.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of interleaved_zero_bubble(). With one chunk it is ZB-H1: rank r warms up with p-1-r
/// forwards and runs each backward_weight r backward_inputs late, so that no rank holds more than p
/// activations.
TAWPIPE_INLINE PipelineProgram interleaved_zero_bubble_program(int ranks, std::int32_t microbatches, int chunks);

/// The order of zb_h2(): rank r warms up with 2(p-1-r) forwards and runs each backward_weight 2r
/// backward_inputs late.
TAWPIPE_INLINE PipelineProgram zb_h2_program(int ranks, std::int32_t microbatches);

/// ZB-H1: 1F1B with split backwards in 1F1B's memory. For m >= 2p its time is mS + (p-1)(F+B-W) +
/// 4(p-1)c, where B and W are backward_input and backward_weight; it holds p activations a rank.
/// Source: Qi et al. 2024, arXiv:2401.10241, section 2.1.
TAWPIPE_INLINE Schedule zb_h1(const Workload& workload, int ranks);

/// ZB-H2: more forwards in advance, so that with F = B = W no rank waits between its first and last
/// computation. The largest span of a rank is mS + (p-1)(F+B-2W) + 2(p-1)c for m >= 2p; holds 2p-1
/// activations a rank.
/// Source: Qi et al. 2024, arXiv:2401.10241, section 2.2.
TAWPIPE_INLINE Schedule zb_h2(const Workload& workload, int ranks);

/// Interleaved 1F1B with split backwards, as PyTorch's ScheduleInterleavedZeroBubble orders it:
/// (v-1)p + p-1-r forwards in advance, each backward_weight r backward_inputs late.
/// Source: Qi et al. 2024, arXiv:2401.10241; torch.distributed.pipelining.
TAWPIPE_INLINE Schedule interleaved_zero_bubble(const Workload& workload, int ranks, const SearchedChunkOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE PipelineProgram interleaved_zero_bubble_program(int ranks, std::int32_t microbatches, int chunks) {
  PipelineProgram program;
  detail::place_looped(program, ranks, chunks);
  for (int r = 0; r < ranks; ++r) {
    const auto warm_up = static_cast<std::size_t>((chunks - 1) * ranks + ranks - 1 - r);
    program.actions.push_back(detail::looped_actions(
        {.rank = r, .warm_up = warm_up, .split = true, .delay = static_cast<std::size_t>(r)}, ranks, microbatches, chunks));
  }
  keep_microbatches(program, microbatches);
  return program;
}

TAWPIPE_INLINE PipelineProgram zb_h2_program(int ranks, std::int32_t microbatches) {
  PipelineProgram program;
  detail::place_looped(program, ranks, 1);
  for (int r = 0; r < ranks; ++r) {
    const auto warm_up = static_cast<std::size_t>(2 * (ranks - 1 - r));
    program.actions.push_back(detail::looped_actions(
        {.rank = r, .warm_up = warm_up, .split = true, .delay = static_cast<std::size_t>(2 * r)}, ranks, microbatches, 1));
  }
  keep_microbatches(program, microbatches);
  return program;
}

TAWPIPE_INLINE Schedule zb_h1(const Workload& workload, int ranks) {
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  return pipeline("zb-h1", workload, interleaved_zero_bubble_program(ranks, microbatches, 1), {});
}

TAWPIPE_INLINE Schedule zb_h2(const Workload& workload, int ranks) {
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  return pipeline("zb-h2", workload, zb_h2_program(ranks, microbatches), {});
}

TAWPIPE_INLINE Schedule interleaved_zero_bubble(const Workload& workload, int ranks, const SearchedChunkOptions& options) {
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  return detail::paper_or_searched("interleaved-zb", workload,
                                   interleaved_zero_bubble_program(ranks, microbatches, options.chunks), options);
}

}  // namespace tawpipe::schedules
#endif
