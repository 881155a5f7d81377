// Megatron-LM's flags of sharded model states, and the schedule that follows from them.
// Not: the other flags of a job (frameworks/megatron.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"

namespace tawpipe::inline v0::detail {

/// Whether a job's mesh shards gradients or weights around experts that devices have whole.
inline bool is_megatron_fsdp_of_experts(const FrameworkJob& job) {
  return job.choice.schedule == "ddp" && job.mesh.pipeline == 1 && job.mesh.whole_experts &&
         job.sharding > StateSharding::optimizer;
}
/// Whether a job shards gradients or weights, as Megatron-LM does without pipelines only.
inline bool is_megatron_fsdp(const FrameworkJob& job) {
  return job.is_one_of({"fsdp", "zero2"}) || is_megatron_fsdp_of_experts(job);
}
inline bool is_torch_fsdp2(const FrameworkJob& job) {
  return job.choice.schedule == "fsdp" && option_of(job.choice, "reshard", "on") == "off";
}

/// Takes how states are sharded, and the schedule. @pre the mesh has its tensor, context, expert and data axes
///
/// Around experts on devices of their own the schedule is of one rank, and the mesh shards: dense parameters over
/// all data- and context-parallel devices, experts over those that have the same (expert data parallelism).
/// Source: NVIDIA/Megatron-LM, megatron/core/distributed/fsdp/mcore_fsdp_adapter.py, _init_dist_index (dp_cp_group,
/// expt_dp_group) and __init__ (gradient_accumulation_fusion); megatron/training/arguments.py, validate_args
/// (use_torch_fsdp2).
/// @param chunks  of a pipeline's device
inline void read_megatron_sharding(ReadSettings<MegatronFlags>& read, FrameworkJob& job, int chunks) {
  constexpr std::string_view strategy = "--data-parallel-sharding-strategy";
  constexpr std::string_view torch = "--use-torch-fsdp2";
  MegatronFlags& flags = read.values;
  const bool fsdp = flags.megatron_fsdp || flags.custom_fsdp;
  if (fsdp && flags.sharding.starts_with("optim_grads")) {  // which turns overlap on by itself
    flags.overlap_gradients = true;
    flags.overlap_gathers = flags.overlap_gathers || flags.sharding == "optim_grads_params";
  }
  if (flags.torch_fsdp2 && !flags.unfused_accumulation)
    read.fail(torch, "needs --no-gradient-accumulation-fusion, without which Megatron-LM stops");
  if (flags.torch_fsdp2 && flags.distributed_optimizer) read.fail("--use-distributed-optimizer", "not with --use-torch-fsdp2");
  if (flags.torch_fsdp2 && job.mesh.whole_experts)
    read.fail(torch, "not with --expert-model-parallel-size above 1, where Megatron-LM stops; --use-megatron-fsdp takes it");
  const std::string sharding = flags.torch_fsdp2 ? "optim_grads_params" : fsdp ? flags.sharding : "";
  if (!fsdp && flags.sharding != "no_shard") read.fail(strategy, "needs --use-megatron-fsdp");
  if (flags.overlap_gathers && !flags.distributed_optimizer && !fsdp)
    read.fail("--overlap-param-gather", "needs --use-distributed-optimizer");
  if (flags.overlap_gathers && !flags.overlap_gradients) read.fail("--overlap-param-gather", "needs --overlap-grad-reduce");
  if (flags.tensor_overlap && !flags.sequence_parallel && flags.tensor > 1)
    read.fail("--tp-comm-overlap", "needs --sequence-parallel");
  const bool shards = flags.distributed_optimizer || flags.torch_fsdp2 || (fsdp && flags.sharding != "no_shard");
  job.sharding = shards ? StateSharding::optimizer : StateSharding::none;
  const bool splits = sharding == "optim_grads_params" || sharding == "optim_grads";
  if (splits && flags.pipeline > 1)
    read.fail(flags.torch_fsdp2 ? torch : strategy, "sharded weights and gradients in a pipeline are not modelled");
  if (splits && job.mesh.whole_experts) {
    if (!flags.unfused_accumulation && job.mesh.data > 1) {
      read.note(strategy,
                "of experts that several devices have, Megatron-LM since 2026 stops without "
                "--no-gradient-accumulation-fusion; simulated with it fused");
    }
    job.sharding = sharding == "optim_grads" ? StateSharding::gradients : StateSharding::parameters;
    job.choice = {"ddp"};
  } else if (splits) {
    job.mesh.data = 1;
    const bool ahead = flags.torch_fsdp2 || flags.overlap_gathers;
    job.choice = sharding == "optim_grads"
                     ? ScheduleChoice{"zero2"}
                     : ScheduleChoice{"fsdp", {{"prefetch", ahead ? "1" : "0"}, {"reshard", flags.keep_gathered ? "off" : "on"}}};
  } else if (flags.pipeline == 1) {
    job.choice = {"ddp"};
  } else {
    job.choice = chunks > 1 ? ScheduleChoice{"interleaved-1f1b", {{"chunks", std::to_string(chunks)}}}
                            : ScheduleChoice{"1f1b", {{"overlap", "off"}}};
  }
}

/// Why Megatron-LM cannot shard the job's states.
inline void need_for_megatron_sharding(Reasons& reasons, const FrameworkJob& job) {
  const bool fsdp = job.choice.schedule == "fsdp";
  const bool by_schedule = fsdp || job.choice.schedule == "zero2";
  const bool by_mesh = is_megatron_fsdp_of_experts(job);
  const bool fsdp2 = is_torch_fsdp2(job);
  reasons.add_if(!by_schedule && !by_mesh && job.mesh.data * job.mesh.context * job.mesh.expert > 1 &&
                     job.sharding > StateSharding::optimizer,
                 "gradients and parameters are sharded without pipelines only, as zero2 and fsdp (--shard-states optimizer)");
  reasons.add_if(by_schedule && job.mesh.whole_experts,
                 "FSDP around experts that devices have whole is ddp of one rank (--shard-states parameters)");
  reasons.add_if(by_schedule && job.mesh.data > 1, "Megatron-LM's FSDP is over all data-parallel devices");
  reasons.add_if(fsdp && option_of(job.choice, "prefetch", "0") != "1", "FSDP gathers one layer ahead (prefetch=1)");
  reasons.add_if(by_mesh && job.reshard == Reshard::step,
                 "Megatron-FSDP frees a layer's weights after its forward (--reshard auto)");
  reasons.add_if(by_mesh && job.mesh.data > 1 && job.model && job.model->fuses_accumulation(),
                 "Megatron-FSDP of experts that several devices have is without gradient accumulation fusion "
                 "(--layer-code megatron-unfused)");
  reasons.add_if(fsdp2 && job.model && (job.model->tied || job.model->dtype == Dtype::f16),
                 "--use-torch-fsdp2 takes neither tied embeddings nor float16");
  reasons.add_if(fsdp2 && job.model && job.model->fuses_accumulation(),
                 "--use-torch-fsdp2 is without gradient accumulation fusion (--layer-code megatron-unfused)");
}

/// @pre Megatron-LM can run the job
inline void write_megatron_sharding(const FrameworkJob& job, MegatronFlags& flags) {
  const bool fsdp2 = is_torch_fsdp2(job);
  const bool sharded = is_megatron_fsdp(job);
  const bool weights =
      sharded && job.choice.schedule != "zero2" && (job.choice.schedule == "fsdp" || job.sharding == StateSharding::parameters);
  flags.distributed_optimizer = (job.shards() || sharded) && !fsdp2;
  flags.overlap_gradients = (job.overlap_gradients || sharded) && !fsdp2;
  flags.overlap_gathers = flags.distributed_optimizer && (job.overlap_gathers || weights);
  flags.torch_fsdp2 = flags.keep_gathered = fsdp2;
  flags.megatron_fsdp = sharded && !fsdp2;
  if (!flags.megatron_fsdp) return;
  flags.sharding = weights ? "optim_grads_params" : "optim_grads";
  flags.checkpoint_format = "fsdp_dtensor";
}

}  // namespace tawpipe::v0::detail
