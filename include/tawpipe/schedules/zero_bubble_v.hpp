// ZB-V: zero bubbles in 1F1B's memory, with two chunks a rank in a V.
// Not: its relatives with less memory (v_schedules.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/searched_order.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of zb_v(). Rank r: 2(p-r)-1 forwards of its first stage; r times one of its second and
/// one of its first; p-r times a forward and a split backward of its second; then, while forwards
/// are left, forward and split backward of the first and the same of the second; r pairs of
/// backward_input, p-r split backwards of the first, and the rest. Orders of fewer than 2p-1
/// microbatches are those of 2p-1 with the surplus removed.
TAWPIPE_INLINE PipelineProgram zb_v_program(int ranks, std::int32_t microbatches);

/// ZB-V over `ranks` ranks and 2p stages. With F = B = W and m >= 2p-1 no rank waits between its
/// first and last computation; the makespan is that plus p-1 forwards of a stage. Holds p
/// microbatches' activations a rank.
/// Source: Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv:2405.15362.
TAWPIPE_INLINE Schedule zb_v(const Workload& workload, int ranks, const SearchedOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>
#include <utility>

#include "tawpipe/schedules/detail/v_shape.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE PipelineProgram zb_v_program(int ranks, std::int32_t microbatches) {
  PipelineProgram program;
  detail::place_v(program, ranks);
  const int count = std::max(microbatches, 2 * ranks - 1);
  for (int r = 0; r < ranks; ++r) {
    detail::TwoStageRank rank{{.stage = r}, {.stage = 2 * ranks - 1 - r}};
    const auto split = [&](int side) {
      rank.input(side);
      rank.weight_of(side);
    };
    for (int i = 0; i < 2 * (ranks - r) - 1; ++i) rank.forward(0);
    for (int i = 0; i < r; ++i) {
      rank.forward(1);
      rank.forward(0);
    }
    for (int i = 0; i < ranks - r; ++i) {
      rank.forward(1);
      split(1);
    }
    while (rank.forwards(1) < rank.forwards(0) || rank.forwards(0) < count) {
      if (rank.forwards(0) < count) rank.forward(0);
      split(0);
      rank.forward(1);
      split(1);
    }
    for (int i = 0; i < r; ++i) {
      rank.input(0);
      rank.input(1);
    }
    for (int i = 0; i < ranks - r; ++i) split(0);
    while (rank.weight_of(1)) {
    }
    while (rank.weight_of(0)) {
    }
    program.actions.push_back(std::move(rank.actions()));
  }
  keep_microbatches(program, microbatches);
  return program;
}

TAWPIPE_INLINE Schedule zb_v(const Workload& workload, int ranks, const SearchedOptions& options) {
  return detail::paper_or_searched("zb-v", workload, zb_v_program(ranks, static_cast<std::int32_t>(workload.microbatches())),
                                   options);
}

}  // namespace tawpipe::schedules
#endif
