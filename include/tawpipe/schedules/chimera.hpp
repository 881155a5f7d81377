// Chimera: two 1F1B pipelines in opposite directions share the ranks, each filling the other's
// bubbles.
// Not: DualPipe, which also splits backwards and overlaps blocks (dualpipe.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules {

/// The order of chimera(). A unit is p microbatches; its microbatch 2j goes down and 2j+1 up the
/// ranks. On a grid in which a forward and a backward take a slot each, microbatch j of the down
/// pipeline meets stage s forward in slot s + 2j and backward in slot 2p-1-s + 2j; the up pipeline
/// is its mirror image. The two never collide, and a unit 2p slots later fits after without gaps.
/// @throws InputError  unless `ranks` is even.
TAWPIPE_INLINE PipelineProgram chimera_program(int ranks, std::int32_t microbatches);

/// Chimera over an even number of ranks: each stage lives on two ranks, whose gradients are summed
/// at the end. Units of p microbatches follow each other without a gap. With equal forwards and
/// backwards of one slot, hops of no latency and p dividing m, the makespan is 2m + p - 2 slots;
/// with a backward of two forwards, direct concatenation leaves gaps between units. Holds between
/// p/2 + 1 and p activations.
/// @throws InputError  unless `ranks` is even.
/// Source: Li and Hoefler 2021, arXiv:2107.06925, section 3 (two pipelines, direct concatenation).
TAWPIPE_INLINE Schedule chimera(const Workload& workload, int ranks);

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <vector>

#include "tawpipe/schedules/detail/slots.hpp"
#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE PipelineProgram chimera_program(int ranks, std::int32_t microbatches) {
  if (ranks % 2 != 0) {
    throw InputError(concat("chimera feeds microbatches from both ends and needs an even number of ranks, not ", ranks));
  }
  PipelineProgram program;
  for (int s = 0; s < ranks; ++s) {
    program.rank_of_stage.push_back(s);
    program.second_rank_of_stage.push_back(ranks - 1 - s);
  }
  for (int r = 0; r < ranks; ++r) {
    std::vector<detail::Slotted> slotted;
    for (std::int32_t m = 0; m < microbatches; ++m) {
      const int stage = m % 2 == 0 ? r : ranks - 1 - r;
      const std::int64_t start = std::int64_t{m / ranks} * 2 * ranks + m % ranks / 2 * 2;
      slotted.push_back({start + stage, {Op::forward, stage, m}});
      slotted.push_back({start + 2 * ranks - 1 - stage, {Op::backward, stage, m}});
    }
    program.actions.push_back(detail::in_order(std::move(slotted)));
  }
  return program;
}

TAWPIPE_INLINE Schedule chimera(const Workload& workload, int ranks) {
  const auto microbatches = static_cast<std::int32_t>(workload.microbatches());
  return pipeline("chimera", workload, chimera_program(ranks, microbatches), {});
}

}  // namespace tawpipe::schedules
#endif
