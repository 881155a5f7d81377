// What a published run measured, and whose code ran it.
// Not: the problem that it poses (truth.cpp).
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "truth.hpp"

namespace tawpipe::sim {

Software software_of(const TruthRow& row) {
  if (row.is_torchtitan()) return Software::torchtitan;
  if (row.is_mpt()) return Software::composer;
  struct Known {
    std::string_view part;
    Software software;
  };
  // NeMo, MLPerf's submissions of these models and NVIDIA's benchmarks run Megatron-Core; zero bubble's
  // and Korthikanti's papers are of Megatron-LM, and SimuMax measured it.
  for (const Known known :
       {Known{"jax", Software::jax}, Known{"maxtext", Software::jax}, Known{"internevo", Software::internevo},
        Known{"megatron", Software::megatron}, Known{"nemo", Software::megatron}, Known{"mlperf", Software::megatron},
        Known{"dgxc", Software::megatron}, Known{"zero_bubble", Software::megatron}, Known{"korthikanti", Software::megatron},
        Known{"simumax", Software::megatron}, Known{"vtrain", Software::megatron}}) {
    if (lower_case(row.source).find(known.part) != std::string::npos) return known.software;
  }
  return Software::unknown;
}

double measured_seconds(const TruthRow& row, const Problem& problem) {
  if (row.step_time_s > 0 || row.tflops_per_gpu <= 0) return row.step_time_s;
  const Workload work{*problem.model, Batch{problem.sequence, 1, problem.global_batch}};
  // model_flops() counts causal attention at half; utilization is defined with all pairs (PaLM,
  // arXiv:2204.02311, appendix B).
  const double tokens = static_cast<double>(problem.global_batch) * static_cast<double>(problem.sequence);
  const double other_half = 6.0 * problem.model->layers * static_cast<double>(problem.sequence) *
                            static_cast<double>(problem.model->query_width()) * tokens;
  return (work.model_flops().value() + other_half) / (row.tflops_per_gpu * 1e12) / row.gpus;
}

}  // namespace tawpipe::sim
