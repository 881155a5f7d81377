// DualPipe and DualPipeV: a forward of one microbatch overlaps a backward of another, so that each
// hides the other's communication.
// Not: the gain from the overlap, which is up to a cost model.
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of dualpipe(). Even microbatches go down the ranks, odd ones up. Orders of fewer than
/// 2p microbatches, or an odd number, are those of the next valid number, with the surplus removed.
/// @throws InputError  unless `ranks` is even.
TAWPIPE_INLINE PipelineProgram dualpipe_program(int ranks, std::int32_t microbatches);

/// The order of dualpipe_v(): stage r is rank r's first, 2p-1-r its second.
TAWPIPE_INLINE PipelineProgram dualpipe_v_program(int ranks, std::int32_t microbatches);

/// DualPipe over an even number of ranks. Each stage lives on two ranks, whose gradients are summed
/// at the end. An overlapped forward and backward is one block that takes the sum of their times
/// (Action::joined). With hops of no latency and m >= 2p, an even number, a rank waits (p/2 -
/// 1)(F&B + B - 3W) in all, where F&B is a block and B a whole backward; it holds p+1 activations.
/// @throws InputError  unless `ranks` is even.
/// Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.2.1 and
/// table 2.
inline Schedule dualpipe(const Workload& workload, int ranks) {
  return pipeline("dualpipe", workload, dualpipe_program(ranks, static_cast<std::int32_t>(workload.microbatches())), {});
}

/// DualPipeV over `ranks` ranks: DualPipe cut in half, its two ends on one rank, so that each stage
/// exists once. Holds 2p+1 stages' activations, which are p + 1/2 microbatches'.
/// Source: deepseek-ai/DualPipe, "cut in half" (Sea AI Lab 2025).
inline Schedule dualpipe_v(const Workload& workload, int ranks) {
  return pipeline("dualpipe-v", workload, dualpipe_v_program(ranks, static_cast<std::int32_t>(workload.microbatches())), {});
}

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>
#include <utility>

#include "tawpipe/schedules/detail/v_shape.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// One rank's order, for `depth` ranks up to the turn and position `place` = 0 .. depth-1, each
/// side with `count` microbatches, in eight phases. Source: DeepSeek-AI 2024, arXiv:2412.19437,
/// section 3.2.1; the phases as deepseek-ai/DualPipe counts them.
inline void dualpipe_order(TwoStageRank& rank, int depth, int place, int count) {
  const int rest = depth - 1 - place;
  for (int i = 0; i < 2 * rest; ++i) rank.forward(0);
  for (int i = 0; i <= place; ++i) {
    rank.forward(0);
    rank.forward(1);
  }
  for (int i = 0; i < rest; ++i) {
    rank.input(1);
    rank.weight();
    rank.forward(1);
  }
  for (int i = 0; i < count - 2 * depth + place + 1; ++i) {
    if (i == 0 && rest == 0) {  // at the turn both belong to one microbatch's path and cannot overlap
      rank.forward(0);
      rank.backward(1);
    } else {
      rank.block(0, 1);
    }
    rank.block(1, 0);
  }
  for (int i = 0; i < rest; ++i) {
    rank.backward(1);
    rank.block(1, 0);
  }
  for (int i = 0; i < 2 * (place + 1); ++i) {  // the second half of these is split
    const int side = i % 2 == 0 ? 1 : 0;
    if (i <= place) {
      rank.backward(side);
    } else {
      rank.input(side);
    }
  }
  for (int i = 0; i < rest; ++i) {
    rank.weight();
    rank.input(0);
  }
  for (int i = 0; i <= place; ++i) rank.weight();
}

}  // namespace detail

TAWPIPE_INLINE PipelineProgram dualpipe_program(int ranks, std::int32_t microbatches) {
  if (ranks % 2 != 0) {
    throw InputError(concat("dualpipe feeds microbatches from both ends and needs an even number of ranks, not ", ranks));
  }
  PipelineProgram program;
  for (int s = 0; s < ranks; ++s) {
    program.rank_of_stage.push_back(s);
    program.second_rank_of_stage.push_back(ranks - 1 - s);
  }
  const int count = std::max((microbatches + 1) / 2, ranks);
  for (int r = 0; r < ranks; ++r) {
    const detail::TwoStageRank::Side down{.stage = r, .offset = 0, .stride = 2};
    const detail::TwoStageRank::Side up{.stage = ranks - 1 - r, .offset = 1, .stride = 2};
    const bool first_half = r < ranks / 2;
    detail::TwoStageRank rank{first_half ? down : up, first_half ? up : down};
    detail::dualpipe_order(rank, ranks / 2, first_half ? r : ranks - 1 - r, count);
    program.actions.push_back(std::move(rank.actions()));
  }
  keep_microbatches(program, microbatches);
  return program;
}

TAWPIPE_INLINE PipelineProgram dualpipe_v_program(int ranks, std::int32_t microbatches) {
  PipelineProgram program;
  detail::place_v(program, ranks);
  for (int r = 0; r < ranks; ++r) {
    detail::TwoStageRank rank{{.stage = r}, {.stage = 2 * ranks - 1 - r}};
    detail::dualpipe_order(rank, ranks, r, std::max(microbatches, 2 * ranks));
    program.actions.push_back(std::move(rank.actions()));
  }
  keep_microbatches(program, microbatches);
  return program;
}

}  // namespace tawpipe::schedules
#endif
