// DeepSpeed's settings that do not affect the layout.
// Not: the settings that a plan has, and those that it lacks (frameworks/deepspeed.hpp).
#pragma once

#include <string_view>

namespace tawpipe::inline v0::detail {

/// Source: deepspeedai/DeepSpeed, docs/_pages/config-json.md (0.18); a few are from earlier
/// versions.
inline constexpr std::string_view deepspeed_skipped =
    "_comment optimizer.* scheduler.* prescale_gradients gradient_predivide_factor "
    "sparse_gradients "
    "gradient_clipping steps_per_print wall_clock_breakdown dump_state memory_breakdown disable_allgather "
    "managed_gradient_accumulation seq_parallel_communication_data_type zero_allow_untested_optimizer "
    "zero_force_ds_cpu_optimizer bf16.immediate_grad_update bf16.check_grad_overflow "
    "fp16.auto_cast "
    "fp16.loss_scale fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.consecutive_hysteresis "
    "fp16.min_loss_scale amp.opt_level torch_autocast.dtype torch_autocast.lower_precision_safe_modules checkpoint.* aio.* "
    "flops_profiler.* "
    "tensorboard.* wandb.* csv_monitor.* comet.* comms_logger.* logging.* elasticity.* autotuning.* data_efficiency.* "
    "curriculum_learning.* compression_training.* sparse_attention.* hybrid_engine.* expert_parallel.* "
    "tensor_parallel.dtype "
    "tensor_parallel.tp.* tensor_parallel.tensor_parallel.* tensor_parallel.injection_policy_tuple "
    "tensor_parallel.partition_config.* tensor_parallel.preset_model tensor_parallel.keep_module_on_host "
    "tensor_parallel.replace_with_kernel_inject tensor_parallel.kernel_inject activation_checkpointing.* "
    "zero_optimization.contiguous_gradients zero_optimization.reduce_bucket_size "
    "zero_optimization.use_multi_rank_bucket_allreduce zero_optimization.allgather_partitions "
    "zero_optimization.allgather_bucket_size zero_optimization.load_from_fp32_weights zero_optimization.elastic_checkpoint "
    "zero_optimization.sub_group_size zero_optimization.cpu_offload_use_pin_memory zero_optimization.zenflow.* "
    "zero_optimization.offload_param.nvme_path zero_optimization.offload_param.buffer_count "
    "zero_optimization.offload_param.buffer_size zero_optimization.offload_param.max_in_cpu "
    "zero_optimization.offload_param.pin_memory zero_optimization.offload_optimizer.nvme_path "
    "zero_optimization.offload_optimizer.buffer_count zero_optimization.offload_optimizer.pin_memory "
    "zero_optimization.offload_optimizer.pipeline_read zero_optimization.offload_optimizer.pipeline_write "
    "zero_optimization.offload_optimizer.pipeline zero_optimization.offload_optimizer.fast_init "
    "zero_optimization.offload_optimizer.super_offload zero_optimization.offload_optimizer.convert_grad_on_cpu "
    "zero_optimization.offload_optimizer.cpuadam_cores_perc zero_optimization.stage3_prefetch_bucket_size "
    "zero_optimization.stage3_param_persistence_threshold zero_optimization.stage3_model_persistence_threshold "
    "zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.stage3_module_granularity_threshold "
    "zero_optimization.stage3_use_all_reduce_for_fetch_params zero_optimization.stage3_allgather_sequential "
    "zero_optimization.stage3_partition_stream_chunk_size zero_optimization.stage3_gather_fp16_weights_on_model_save "
    "zero_optimization.prefetch_bucket_size zero_optimization.param_persistence_threshold "
    "zero_optimization.model_persistence_threshold zero_optimization.max_live_parameters "
    "zero_optimization.max_reuse_distance zero_optimization.gather_16bit_weights_on_model_save "
    "zero_optimization.module_granularity_threshold zero_optimization.use_all_reduce_for_fetch_params "
    "zero_optimization.allgather_sequential zero_optimization.partition_stream_chunk_size "
    "zero_optimization.ignore_unused_parameters zero_optimization.legacy_stage1 zero_optimization.round_robin_gradients "
    "zero_optimization.zero_quantized_nontrainable_weights zero_optimization.zeropp_loco_param.* "
    "zero_optimization.mics_hierarchical_params_gather zero_optimization.memory_efficient_linear "
    "zero_optimization.pipeline_loading_checkpoint zero_optimization.override_module_apply "
    "zero_optimization.log_trace_cache_warnings zero_optimization.enable_sanity_checks "
    "zero_optimization.save_muon_momentum_buffer_in_memory zero_optimization.leaf_module.* pipeline.* compile.* "
    "monitor_config.* timers.* eigenvalue.* "
    "quantize_training.* progressive_layer_drop.* dataloader_drop_last use_data_before_expert_parallelism_ nebula.* "
    "graph_harvesting load_universal_checkpoint wall_clock_breakdown_*";

}  // namespace tawpipe::v0::detail
