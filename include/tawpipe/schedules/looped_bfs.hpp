// Looped breadth-first pipeline: every rank has several chunks, and each chunk processes all
// microbatches before the next one.
// Not: interleaved 1F1B, which bounds the activations (interleaved_one_f_one_b.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/interleaved_one_f_one_b.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of looped_bfs().
TAWPIPE_INLINE PipelineProgram looped_bfs_program(int ranks, std::int32_t microbatches, int chunks);

/// Breadth-first pipeline over `ranks` ranks with `chunks` chunks each; with one chunk it is GPipe.
/// For m >= p and hops of no latency the makespan is mS + (p-1)S/v, as with interleaved 1F1B; it
/// holds all m activations, and in return a chunk's weights are needed for one contiguous time in
/// the forward and one in the backward.
/// Source: Lamy-Poirier 2022, arXiv:2211.05953.
TAWPIPE_INLINE Schedule looped_bfs(const Workload& workload, int ranks, int chunks);

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <vector>

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE PipelineProgram looped_bfs_program(int ranks, std::int32_t microbatches, int chunks) {
  PipelineProgram program;
  detail::place_looped(program, ranks, chunks);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Action> actions;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (std::int32_t m = 0; m < microbatches; ++m) actions.push_back({Op::forward, chunk * ranks + r, m});
    }
    for (int chunk = chunks - 1; chunk >= 0; --chunk) {
      for (std::int32_t m = 0; m < microbatches; ++m) actions.push_back({Op::backward, chunk * ranks + r, m});
    }
    program.actions.push_back(std::move(actions));
  }
  return program;
}

TAWPIPE_INLINE Schedule looped_bfs(const Workload& workload, int ranks, int chunks) {
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  return pipeline("looped-bfs", workload, looped_bfs_program(ranks, microbatches, chunks), {},
                  option_texts(ChunkOptions{chunks}));
}

}  // namespace tawpipe::schedules
#endif
