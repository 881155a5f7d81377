// torchtitan's mixtures of experts: which are known, and their expert parallelism.
// Not: the other settings of a job (frameworks/torchtitan.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/torchtitan_table.hpp"

namespace tawpipe::inline v0::detail {

/// Source: torchtitan, models/<name>/__init__.py (0.2.2).
inline bool has_torchtitan_experts(std::string_view name, std::string_view flavor) {
  const bool some = flavor.ends_with("_moe") || flavor.find("-A") != flavor.npos;  // 30B-A3B
  return name == "deepseek_v3" || name == "llama4" || name == "gpt_oss" || (name == "qwen3" && some);
}

/// The mixture as it is simulated. Experts are known as Megatron-LM runs them (Transformer::check): autograd adds
/// gradients of microbatches, as it does there without fusion.
inline void run_torchtitan_experts(ReadSettings<TorchtitanSettings>& read, FrameworkJob& job) {
  const TorchtitanSettings& s = read.values;
  if (!has_torchtitan_experts(s.model, s.flavor)) return;
  if (!job.model) {
    read.fail("model.flavor", concat(s.model, " ", s.flavor,
                                     ": of mixtures of experts qwen3 30B-A3B and 235B-A22B, deepseek_v3 16B, 236B and 671B are "
                                     "known; give such a one"));
  }
  job.code = job.model->code = LayerCode::megatron_unfused;
  job.model->fused_swiglu = job.model->gated && s.compiles_model();
  read.note("model.flavor", "the layers of a mixture of experts are simulated with Megatron-LM's kernels");
}

/// Shares the experts out over the mesh: expert-parallel devices are those of tensor and context parallelism and,
/// next to them, some of the data-parallel ones; FSDP shards experts over what is left of these (efsdp), and all else
/// over all of them.
/// Source: pytorch/torchtitan, distributed/parallel_dims.py (ParallelDims._validate, build_mesh) and
/// models/llama4/infra/parallelize.py (apply_fsdp): experts are wrapped also where one device has them alone.
/// @pre the mesh has the tensor, context and data parallelism of a dense model
inline void share_torchtitan_experts(const ReadSettings<TorchtitanSettings>& read, FrameworkJob& job) {
  constexpr std::string_view parallel = "parallelism.expert_parallel_degree";
  constexpr std::string_view tensor = "parallelism.expert_tensor_parallel_degree";
  const TorchtitanSettings& s = read.values;
  if (s.expert == 1) return;
  if (!job.model || !job.model->is_routed()) {
    read.fail(parallel, job.model ? concat(s.model, " ", s.flavor, " has no experts; leave it out")
                                  : "needs a mixture of experts that is known by model.name and model.flavor");
  }
  const int sharing = s.tensor * s.context;
  if (s.expert_tensor != 1) read.fail(tensor, "experts that are also split by tensor parallelism are not modelled; give 1");
  if (s.expert < 1 || job.model->experts % s.expert != 0)
    read.fail(parallel, concat(s.expert, " does not divide the ", job.model->experts, " experts"));
  if (s.expert % sharing != 0) {
    read.fail(parallel, concat(s.expert, " must be a multiple of tensor ", s.tensor, " x context ", s.context, " = ", sharing,
                               ", whose devices have experts of their own"));
  }
  if (s.replicate > 1) {
    read.fail("parallelism.data_parallel_replicate_degree",
              "replicas of states sharded around experts on devices of their own are not modelled");
  }
  job.mesh.whole_experts = true;
  job.mesh.expert = s.expert / sharing;
  if (job.mesh.data % job.mesh.expert != 0) {
    read.fail(parallel, concat(s.expert, " does not divide the ", job.mesh.data * sharing, " devices of a stage, tensor ",
                               s.tensor, " x context ", s.context, " x shard ", job.mesh.data));
  }
  job.mesh.data /= job.mesh.expert;
  job.expert_dispatch = s.expert_backend == "standard" ? ExpertDispatch::all_to_all : ExpertDispatch::deepep;
}

/// @pre the job's devices have whole experts
inline void write_torchtitan_experts(const FrameworkJob& job, TorchtitanSettings& settings) {
  settings.expert = job.mesh.expert_parts();
  if (job.expert_dispatch == ExpertDispatch::deepep) settings.expert_backend = "deepep";
}

}  // namespace tawpipe::v0::detail
