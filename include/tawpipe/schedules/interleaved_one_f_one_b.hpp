// Interleaved 1F1B: every rank has several chunks of the model, assigned to ranks round-robin.
// Not: the form with split backwards (zero_bubble.hpp), nor the one with all microbatches of a
// chunk at once (looped_bfs.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of interleaved_one_f_one_b(). A number of microbatches that the ranks do not divide
/// gets the order of the next multiple, with the surplus removed: a smaller last group in the same
/// turns would deadlock.
/// @param pairs  InterleavedOptions::pairs
TAWPIPE_INLINE PipelineProgram interleaved_one_f_one_b_program(int ranks, std::int32_t microbatches, int chunks,
                                                               bool pairs = false);

/// Interleaved 1F1B over `ranks` ranks with some chunks each; with one chunk it is 1F1B. The number
/// of microbatches need not be a multiple of the ranks.
///
/// If the number of ranks divides m and the latency c of a hop is short, the makespan is mS +
/// (p-1)S/v + 2(pv-1)c, S = F+B of a device's whole share: the first microbatch's path through all
/// pv stages and back pays every hop. Rank 0 holds p(1 + (p-1)/(pv)) microbatches' activations.
/// Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Megatron-LM's warm-up of (v-1)p +
/// 2(p-1-r) forwards.
TAWPIPE_INLINE Schedule interleaved_one_f_one_b(const Workload& workload, int ranks, const InterleavedOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>
#include <vector>

namespace tawpipe::inline v0::schedules {

namespace detail {

/// A chunk index on a rank, and a microbatch.
struct ChunkStep {
  std::int32_t chunk;
  std::int32_t microbatch;
};

/// The order in which every rank runs its forwards: `ranks` microbatches through the first chunk,
/// then the same through the next, and so on; then the next `ranks` microbatches. The last of these
/// groups is padded beyond `microbatches`.
inline std::vector<ChunkStep> grouped_steps(std::int32_t ranks, std::int32_t microbatches, std::int32_t chunks) {
  std::vector<ChunkStep> steps;
  for (std::int32_t base = 0; base < microbatches; base += ranks) {
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
      for (std::int32_t m = base; m < base + ranks; ++m) steps.push_back({chunk, m});
    }
  }
  return steps;
}

/// Stage s on rank s mod ranks.
inline void place_looped(PipelineProgram& program, int ranks, int chunks) {
  for (int s = 0; s < ranks * chunks; ++s) program.rank_of_stage.push_back(s % ranks);
}

/// One rank of a looped 1F1B: `warm_up` forwards, then forwards and backwards alternately. With
/// split backwards, each backward_weight follows its own backward_input by `delay` backward_inputs.
struct LoopedRank {
  int rank = 0;
  std::size_t warm_up = 0;
  bool split = false;
  std::size_t delay = 0;
  bool pairs = false;  ///< a forward and the backward after it are one block
};

inline std::vector<Action> looped_actions(const LoopedRank& rank, int ranks, std::int32_t microbatches, int chunks) {
  const auto steps = grouped_steps(ranks, microbatches, chunks);
  const auto forward = [&](std::size_t i) {
    return Action{Op::forward, steps[i].chunk * ranks + rank.rank, steps[i].microbatch};
  };
  const auto backward = [&](Op op, std::size_t i) {
    return Action{op, (chunks - 1 - steps[i].chunk) * ranks + rank.rank, steps[i].microbatch};
  };
  std::vector<Action> actions;
  std::size_t forwards = 0;
  std::size_t weights = 0;
  while (forwards < std::min(rank.warm_up, steps.size())) actions.push_back(forward(forwards++));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (forwards < steps.size()) {
      actions.push_back(forward(forwards++));
      actions.back().joined = rank.pairs;
    }
    actions.push_back(backward(rank.split ? Op::backward_input : Op::backward, i));
    if (rank.split && i >= rank.delay) actions.push_back(backward(Op::backward_weight, weights++));
  }
  while (rank.split && weights < steps.size()) actions.push_back(backward(Op::backward_weight, weights++));
  return actions;
}

}  // namespace detail

TAWPIPE_INLINE PipelineProgram interleaved_one_f_one_b_program(int ranks, std::int32_t microbatches, int chunks, bool pairs) {
  PipelineProgram program;
  detail::place_looped(program, ranks, chunks);
  for (int r = 0; r < ranks; ++r) {
    const int warm_up = (chunks == 1 ? ranks - 1 - r : (chunks - 1) * ranks + 2 * (ranks - 1 - r)) + (pairs ? 1 : 0);
    program.actions.push_back(detail::looped_actions({.rank = r, .warm_up = static_cast<std::size_t>(warm_up), .pairs = pairs},
                                                     ranks, microbatches, chunks));
  }
  keep_microbatches(program, microbatches);
  return program;
}

TAWPIPE_INLINE Schedule interleaved_one_f_one_b(const Workload& workload, int ranks, const InterleavedOptions& options) {
  const InterleavedOptions chosen = options.resolved(workload, ranks);
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  return pipeline("interleaved-1f1b", workload, interleaved_one_f_one_b_program(ranks, microbatches, chosen.chunks, chosen.pairs),
                  {.p2p = *chosen.p2p}, option_texts(chosen));
}

}  // namespace tawpipe::schedules
#endif
