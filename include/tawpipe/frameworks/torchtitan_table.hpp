// The settings of torchtitan that a plan knows, as a table.
// Not: what they mean for a plan (torchtitan.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0 {

/// The settings that a plan knows, with torchtitan's defaults.
/// Source: pytorch/torchtitan, torchtitan/config/job_config.py (0.2.2, the last version whose
/// configuration is TOML).
struct TorchtitanSettings {
  std::string model = "llama3";
  std::string flavor = "debugmodel";
  std::string converters;
  std::int64_t local_batch = 8;
  std::int64_t global_batch = -1;
  std::int64_t sequence = 2048;
  bool cpu_offload = false;
  std::string dtype = "float32";
  std::string parameters = "bfloat16";
  int replicate = 1;
  int shard = -1;
  std::string reshard = "default";
  int tensor = 1;
  bool async_tensor = false;
  int pipeline = 1;
  std::string schedule = "1F1B";
  std::int64_t microbatch = 1;
  int layers_a_stage = 0;
  int first_less = 1;
  int last_less = 1;
  int context = 1;
  std::string rotate = "allgather";
  int expert = 1;
  int expert_tensor = 1;
  std::string expert_backend = "standard";
  std::string recompute = "selective";
  std::string selective = "2";
  bool early_stop = false;
  bool compile = false;
  std::string components = "model loss";  ///< what is compiled
  bool float8_gathers = false;
  std::string float8_recipe;
  std::string float8_kept;

  bool compiles_model() const { return compile && detail::among("model", components); }
};

inline const SettingsTable<TorchtitanSettings>& torchtitan_table() {
  using S = TorchtitanSettings;
  constexpr std::string_view cut = "stages of given modules are not modelled";
  static const SettingsTable<S> table{
      .kind = "torchtitan setting",
      .fields = {{"model.name", &S::model},
                 {"model.flavor", &S::flavor},
                 {"model.converters",
                  &S::converters,
                  {"quantize.linear.float8", "float8", "mx", "quantize.linear.mx", "quantize.grouped_mm.float8",
                   "quantize.grouped_mm.mx"},
                  true},
                 {"training.local_batch_size", &S::local_batch},
                 {"training.global_batch_size", &S::global_batch},
                 {"training.seq_len", &S::sequence},
                 {"training.enable_cpu_offload", &S::cpu_offload},
                 {"training.dtype", &S::dtype, {"bfloat16", "float32"}},
                 {"training.mixed_precision_param", &S::parameters, {"bfloat16", "float32"}},
                 {"parallelism.data_parallel_replicate_degree", &S::replicate},
                 {"parallelism.data_parallel_shard_degree", &S::shard},
                 {"parallelism.fsdp_reshard_after_forward", &S::reshard, {"default", "always", "never"}},
                 {"parallelism.tensor_parallel_degree", &S::tensor},
                 {"parallelism.enable_async_tensor_parallel", &S::async_tensor},
                 {"parallelism.pipeline_parallel_degree", &S::pipeline},
                 {"parallelism.pipeline_parallel_schedule", &S::schedule},
                 {"parallelism.pipeline_parallel_microbatch_size", &S::microbatch},
                 {"parallelism.pipeline_parallel_layers_per_stage", &S::layers_a_stage},
                 {"parallelism.pipeline_parallel_first_stage_less_layers", &S::first_less},
                 {"parallelism.pipeline_parallel_last_stage_less_layers", &S::last_less},
                 {"parallelism.context_parallel_degree", &S::context},
                 {"parallelism.context_parallel_rotate_method", &S::rotate, {"allgather", "alltoall"}},
                 {"parallelism.expert_parallel_degree", &S::expert},
                 {"parallelism.expert_tensor_parallel_degree", &S::expert_tensor},
                 {"parallelism.expert_parallel_comm_backend", &S::expert_backend, {"standard", "deepep", "hybridep"}},
                 {"activation_checkpoint.mode", &S::recompute, {"selective", "full", "none", "memory_budget"}},
                 {"activation_checkpoint.selective_ac_option", &S::selective},
                 {"activation_checkpoint.early_stop", &S::early_stop},
                 {"compile.enable", &S::compile},
                 {"compile.components", &S::components, {"model", "loss"}, true},
                 {"quantize.linear.float8.enable_fsdp_float8_all_gather", &S::float8_gathers},
                 {"quantize.linear.float8.recipe_name", &S::float8_recipe, {"tensorwise", "rowwise", "rowwise_with_gw_hp"}},
                 {"quantize.linear.float8.filter_fqns", &S::float8_kept, {}, true}},
      .foreign = {{"experimental.pipeline_parallel_microbatches", "",
                   "an old setting; it is parallelism.pipeline_parallel_microbatch_size now, in sequences"},
                  {"float8.enable_float8_linear", "false",
                   "an old setting; it is model.converters = [\"quantize.linear.float8\"] now"},
                  {"parallelism.module_fqns_per_model_part", "[]", cut},
                  {"parallelism.pipeline_parallel_split_points", "[]", cut},
                  {"parallelism.pipeline_parallel_schedule_csv", "[]",
                   "a schedule of a file is simulated by simulate --schedule-file"},
                  {"parallelism.disable_loss_parallel", "false", "simulated with the loss in parts of the vocabulary", false},
                  {"optimizer.early_step_in_backward", "false", "simulated with the update after all backwards", false},
                  {"fault_tolerance.enable", "false", "simulated without", false}},
      .skipped =
          "job.* profiling.* metrics.* optimizer.* lr_scheduler.* checkpoint.* comm.* memory_estimation.* "
          "experimental.custom_import experimental.custom_args_module experimental.custom_model_path "
          "validation.* debug.* quantize.* mx.* fault_tolerance.* compile.backend "
          "model.hf_assets_path model.tokenizer_path "
          "model.print_after_conversion training.dataset training.dataset_path training.max_norm training.steps "
          "training.mixed_precision_reduce training.gc_freq training.gc_debug training.dataloader.* training.seed "
          "training.deterministic training.warmup_steps dataset.* model.norm_type parallelism.enable_compiled_autograd "
          "parallelism.context_parallel_load_balancer parallelism.pipeline_parallel_expert_parallel_overlap "
          "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns "
          "activation_checkpoint.memory_budget activation_checkpoint.preserve_rng_state "
          "activation_checkpoint.visualize_memory_budget_pareto activation_checkpoint.determinism_check "
          "activation_checkpoint.debug",
      .renamed = {
          {"float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather"},
          {"float8.precompute_float8_dynamic_scale_for_fsdp", "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"},
          {"float8.recipe_name", "quantize.linear.float8.recipe_name"},
          {"float8.filter_fqns", "quantize.linear.float8.filter_fqns"},
          {"training.batch_size", "training.local_batch_size"},
          {"training.compile", "compile.enable"},
          {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
          {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
          {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
          {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
          {"experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
          {"experimental.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule"},
          {"experimental.pipeline_parallel_layers_per_stage", "parallelism.pipeline_parallel_layers_per_stage"},
          {"experimental.pipeline_parallel_split_points", "parallelism.pipeline_parallel_split_points"},
          {"experimental.pipeline_parallel_schedule_csv", "parallelism.pipeline_parallel_schedule_csv"},
          {"experimental.context_parallel_degree", "parallelism.context_parallel_degree"},
          {"experimental.context_parallel_rotate_method", "parallelism.context_parallel_rotate_method"},
          {"experimental.enable_compiled_autograd", "parallelism.enable_compiled_autograd"},
          {"experimental.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"}}};
  return table;
}

}  // namespace tawpipe
