// One rank's forwards and backwards in pairs: layer by layer, a microbatch's forward with the backward
// of the one before.
// Not: pairs in a pipeline (schedules/interleaved_one_f_one_b.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// The first microbatch's forward, then pairs, then the last one's backward. Each layer is a stage, so
/// that a microbatch's activations are released as the next one's are kept.
/// Source: Megatron-LM, core/pipeline_parallel/combined_1f1b.py:
/// combined_1f1b_schedule_for_no_pipelining.
inline Schedule paired_layers(std::string name, const Workload& workload,
                              const std::vector<std::pair<std::string, std::string>>& options) {
  Workload work = workload;
  int stages = 1;
  if (!work.is_abstract() && work.model().layers > 1) {
    stages = work.model().layers;
    StageCut cut;
    cut.layers.assign(static_cast<std::size_t>(stages), 1);
    work.cut_by(std::move(cut));
  }
  PipelineProgram program;
  program.rank_of_stage.assign(static_cast<std::size_t>(stages), 0);
  std::vector<Action>& actions = program.actions.emplace_back();
  const auto microbatches = static_cast<std::int32_t>(work.microbatches());
  for (std::int32_t m = 0; m <= microbatches; ++m) {
    for (int s = 0; s < stages; ++s) {
      if (m < microbatches) actions.push_back({Op::forward, s, m, m > 0});
      if (m > 0) actions.push_back({Op::backward, stages - 1 - s, m - 1});
    }
  }
  return pipeline(std::move(name), work, std::move(program), {}, options);
}

}  // namespace tawpipe::schedules::detail
