// Tables of the kinds of YAML that have Megatron-LM's arguments: which keys are arguments by their own
// names, which by others, and which change nothing.
// Not: reading them (frameworks/megatron_yaml.hpp).
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// A key as an argument. All rules of a key whose values fit apply; a value that none has is an error.
struct YamlRule {
  std::string_view key;            ///< "*.name": of any section
  std::string_view values;         ///< separated by spaces; "": any
  std::string_view argument = {};  ///< "": changes nothing; "!": refused; "@...": no argument
  std::string_view value = {};     ///< of the argument; "": the key's; of "!" the reason
};

struct YamlArguments {
  std::string_view kind;
  /// keys that begin so are arguments by their own names; later ones count
  std::vector<std::string_view> sections;
  std::vector<YamlRule> rules = {};
  std::string_view skipped = {};  ///< keys that change nothing, separated by spaces
  /// arguments that the program sets where the file does not
  std::vector<std::pair<std::string_view, std::string_view>> defaults = {};
  bool complete = false;  ///< as take_megatron_arguments() has it
  std::string_view launched_by = {};
};

/// Source: NVIDIA/Megatron-LM, tests/functional_tests and examples/moe_recipes; its MoE model zoo.
inline const YamlArguments& megatron_test_kind() {
  static const YamlArguments kind{.kind = "Megatron-LM", .sections = {"MODEL_ARGS.", "ARGS."}};
  return kind;
}

/// Source: AMD-AGI/Primus, primus/configs/modules/megatron/pre_trainer.yaml and models/megatron/language_model.yaml; the
/// models' own files have no dropout.
inline YamlArguments primus_kind(std::string_view section) {
  return {.kind = "Primus",
          .sections = {section},
          .skipped = "stderr_sink_level file_sink_level sink_level trainable disable_last_saving auto_continue_train",
          .defaults = {{"bf16", "true"},
                       {"use_distributed_optimizer", "true"},
                       {"sequence_parallel", "true"},
                       {"attention_dropout", "0"},
                       {"hidden_dropout", "0"}}};
}
/// Source: NVIDIA/NeMo (1.x), examples/nlp/language_modeling/conf/megatron_gpt_config.yaml, and
/// NeMo-Framework-Launcher, launcher_scripts/conf/training.
inline const YamlArguments& nemo_kind() {
  static const YamlArguments kind{
      .kind = "NeMo",
      .sections = {"model."},
      .rules = {{"trainer.precision", "bf16 bf16-mixed bf16-true", "bf16", "true"},
                {"trainer.precision", "16 16-mixed 16-true", "fp16", "true"},
                {"trainer.precision", "32 32-true"},
                {"trainer.devices", "", "@devices"},
                {"trainer.num_nodes", "", "@nodes"},
                {"model.encoder_seq_length", "", "seq_length"},
                {"model.activation", "swiglu fast-swiglu", "swiglu", "true"},
                {"model.activation", "gelu"},
                {"model.normalization", "rmsnorm RMSNorm", "normalization", "RMSNorm"},
                {"model.normalization", "layernorm layernorm1p low_precision_layernorm LayerNorm", "normalization", "LayerNorm"},
                {"model.bias", "false", "add_bias_linear", "false"},
                {"model.bias", "true"},
                {"model.share_embeddings_and_output_weights", "false", "untie_embeddings_and_output_weights", "true"},
                {"model.share_embeddings_and_output_weights", "true"},
                {"model.num_query_groups", "", "num_query_groups"},
                {"model.num_query_groups", "", "group_query_attention", "true"},
                {"model.num_moe_experts", "", "num_experts"},
                {"model.activations_checkpoint_granularity", "", "recompute_granularity"},
                {"model.activations_checkpoint_method", "", "recompute_method"},
                {"model.activations_checkpoint_num_layers", "", "recompute_num_layers"},
                {"model.fp8", "true false"},
                {"model.fp8_hybrid", "true", "fp8", "hybrid"},
                {"model.fp8_hybrid", "false"},
                {"model.fp8_e4m3", "true", "fp8", "e4m3"},
                {"model.fp8_e4m3", "false"},
                {"model.ub_tp_comm_overlap", "", "tp_comm_overlap"},
                {"model.use_flash_attention", "", "use_flash_attn"},
                {"model.transformer_engine", "false", "transformer_impl", "local"},
                {"model.transformer_engine", "true"},
                {"model.optim.name", "distributed_fused_adam mcore_distributed_optim", "use_distributed_optimizer", "true"},
                {"model.optim.name", "", "optimizer", "adam"},
                {"model.optim.overlap_grad_sync", "", "overlap_grad_reduce"},
                {"model.optim.overlap_param_sync", "", "overlap_param_gather"},
                {"model.optim.grad_sync_dtype", "bf16 torch.bfloat16", "grad_reduce_in_bf16", "true"},
                {"model.optim.grad_sync_dtype", ""},
                {"model.tokenizer.type", "", "tokenizer_model"},
                {"model.peft.peft_scheme", "none None false"},
                {"model.peft.peft_scheme", "lora qlora adapter ia3 ptuning canonical_lora", "!", out_of_scope("lora")},
                {"model.fsdp", "false"},
                {"model.fsdp", "true", "!", "NeMo's FSDP is not read; --use-megatron-fsdp of Megatron-LM is"},
                {"restore_from_path", "", "@model"}},
      .skipped =
          "model.mcore_gpt model.use_scaled_init_method model.pre_process model.post_process model.persist_layer_norm "
          "model.normalize_attention_scores model.megatron_amp_O2 model.grad_div_ar_fusion model.bias_activation_fusion "
          "model.bias_dropout_add_fusion model.masked_softmax_fusion model.gradient_as_bucket_view model.apply_rope_fusion "
          "model.get_attention_mask_from_fusion model.batch_p2p_comm model.overlap_p2p_comm model.sync_batch_comm "
          "model.reduce_amax model.fp8_params model.data.* model.exp_manager.* model.nsys_profile.*",
      .complete = true,
      .launched_by = "trainer.devices x trainer.num_nodes"};
  return kind;
}

/// The keys of NeMo 2 and Megatron-Bridge, whose classes are Megatron Core's, with their sections.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py and
/// core/distributed/distributed_data_parallel_config.py; NVIDIA-NeMo/Megatron-Bridge,
/// training/mixed_precision.py.
inline constexpr std::string_view core_skipped =
    " apply_rope_fusion barrier_with_L1_time batch_p2p_comm batch_p2p_sync overlap_p2p_comm bias_activation_fusion "
    "bias_dropout_fusion clone_scatter_output_in_embedding cpu_offloading_activations deallocate_pipeline_outputs fp8_wgrad "
    "masked_softmax_fusion parallel_output perform_initialization persist_layer_norm scatter_embedding_sequence_parallel "
    "use_mamba_mem_eff_path should_pad_vocab rotary_interleaved cross_entropy_fusion tp_comm_overlap_ag tp_comm_overlap_rs "
    "tp_comm_bulk_dgrad tp_comm_bulk_wgrad tp_comm_split_ag tp_comm_split_rs gradient_reduce_div_fusion "
    "average_in_collective check_for_nan_in_grad align_param_gather align_grad_reduce use_gloo_process_groups "
    "fsdp_all_gather_in_start_param_sync pin_cpu_grads pin_cpu_params decoupled_weight_decay store_param_remainders "
    "autocast_enabled variable_seq_lengths moe_shared_expert_gate enable_megatron_core_experimental manual_gc manual_gc_eval "
    "check_optimizer_step_success flight_recorder_dump_on_timeout flight_recorder_extra_dump_on_exec "
    "flight_recorder_include_only_active attention_softmax_in_fp32 use_cpu_initialization te_rng_tracker ";

inline std::vector<YamlRule> core_rules() {
  return {{"*.num_moe_experts", "", "num_experts"},
          {"*.gated_linear_unit", "", "swiglu"},
          {"*.share_embeddings_and_output_weights", "false", "untie_embeddings_and_output_weights", "true"},
          {"*.share_embeddings_and_output_weights", "true"},
          {"*.num_query_groups", "", "num_query_groups"},
          {"*.num_query_groups", "", "group_query_attention", "true"},
          {"*.num_layers_in_first_pipeline_stage", "", "decoder_first_pipeline_num_layers"},
          {"*.num_layers_in_last_pipeline_stage", "", "decoder_last_pipeline_num_layers"},
          {"*.use_te_rng_tracker", "", "te_rng_tracker"},
          {"*.grad_reduce_in_fp32", "true", "accumulate_allreduce_grads_in_fp32", "true"},
          {"*.grad_reduce_in_fp32", "true", "grad_reduce_in_bf16", "false"},
          {"*.grad_reduce_in_fp32", "false", "accumulate_allreduce_grads_in_fp32", "false"},
          {"*.grad_reduce_in_fp32", "false", "grad_reduce_in_bf16", "true"},
          {"*.bucket_size", "", "ddp_bucket_size"}};
}

/// Source: NVIDIA/NeMo (2.x), nemo/collections/llm and lightning/pytorch/strategies/megatron_strategy.py.
inline const YamlArguments& nemo_2_kind() {
  static const YamlArguments kind = [] {
    YamlArguments made{.kind = "NeMo",
                       .sections = {"optim.config.", "model.config.", "trainer.strategy.", "trainer.strategy.ddp."},
                       .rules = core_rules(),
                       .skipped = core_skipped,
                       .complete = true,
                       .launched_by = "trainer.devices x trainer.num_nodes"};
    const std::vector<YamlRule> more{{"data.seq_length", "", "seq_length"},
                                     {"data.micro_batch_size", "", "micro_batch_size"},
                                     {"data.global_batch_size", "", "global_batch_size"},
                                     {"trainer.devices", "", "@devices"},
                                     {"trainer.num_nodes", "", "@nodes"},
                                     {"trainer.plugins.precision", "bf16 bf16-mixed bf16-true", "bf16", "true"},
                                     {"trainer.plugins.precision", "16 16-mixed 16-true", "fp16", "true"},
                                     {"trainer.plugins.precision", "32 32-true"},
                                     {"trainer.plugins.fp8", "", "fp8"},
                                     {"trainer.plugins.fp8_recipe", "", "fp8_recipe"},
                                     {"peft._target_", "", "!", out_of_scope("lora")}};
    made.rules.insert(made.rules.end(), more.begin(), more.end());
    return made;
  }();
  return kind;
}

/// Source: NVIDIA-NeMo/Megatron-Bridge, training/config.py, mixed_precision.py, comm_overlap.py and
/// recipes/common.py.
inline const YamlArguments& bridge_kind() {
  static const YamlArguments kind = [] {
    YamlArguments made{.kind = "Megatron-Bridge",
                       .sections = {"optimizer.", "model.", "dist.", "ddp.", "comm_overlap.", "mixed_precision.", "train."},
                       .rules = core_rules(),
                       .skipped = core_skipped,
                       .defaults = {{"bf16", "true"},
                                    {"use_distributed_optimizer", "true"},
                                    {"attention_dropout", "0"},
                                    {"hidden_dropout", "0"}},
                       .complete = true};
    const std::vector<YamlRule> more{
        {"optimizer.bf16", ""},
        {"optimizer.fp16", ""},
        {"model.bf16", ""},
        {"model.fp16", ""},
        {"model.hf_model_id", "", "@model"},
        {"mixed_precision",
         "bf16_mixed bf16-mixed bf16_with_fp8_delayed_scaling_mixed bf16_with_fp8_current_scaling_mixed "
         "bf16_with_fp8_subchannel_scaling_mixed bf16_with_mxfp8_mixed bf16_with_nvfp4_mixed",
         "bf16", "true"},
        {"mixed_precision", "fp16_mixed 16-mixed", "fp16", "true"},
        {"mixed_precision", "bf16_with_fp8_delayed_scaling_mixed", "fp8", "hybrid"},
        {"mixed_precision", "bf16_with_fp8_current_scaling_mixed", "fp8", "hybrid"},
        {"mixed_precision", "bf16_with_fp8_current_scaling_mixed", "fp8_recipe", "tensorwise"},
        {"mixed_precision", "bf16_with_fp8_subchannel_scaling_mixed", "fp8", "hybrid"},
        {"mixed_precision", "bf16_with_fp8_subchannel_scaling_mixed", "fp8_recipe", "blockwise"},
        {"mixed_precision", "bf16_with_mxfp8_mixed", "fp8", "hybrid"},
        {"mixed_precision", "bf16_with_mxfp8_mixed", "fp8_recipe", "mxfp8"},
        {"mixed_precision", "bf16_with_nvfp4_mixed", "fp4", "e2m1"},
        {"mixed_precision.dtype", "bf16", "bf16", "true"},
        {"mixed_precision.dtype", "fp16", "fp16", "true"},
        {"optimizer.exp_avg_dtype._target_", "torch.bfloat16", "exp_avg_dtype", "bf16"},
        {"optimizer.exp_avg_dtype._target_", "torch.float32 torch.float"},
        {"optimizer.exp_avg_sq_dtype._target_", "torch.bfloat16", "exp_avg_sq_dtype", "bf16"},
        {"optimizer.exp_avg_sq_dtype._target_", "torch.float32 torch.float"},
        {"optimizer.main_params_dtype._target_", "torch.float16", "main_params_dtype", "fp16"},
        {"optimizer.main_params_dtype._target_", "torch.float32 torch.float"},
        {"dataset.sequence_length", "", "seq_length"},
        {"dataset.seq_length", "", "seq_length"},
        {"tokenizer.tokenizer_model", "", "tokenizer_model"},
        {"checkpoint.ckpt_format", "", "ckpt_format"},
        {"peft._target_", "", "!", out_of_scope("lora")},
        {"peft.dim", "", "!", out_of_scope("lora")},
        {"peft", "lora dora qlora", "!", out_of_scope("lora")}};
    made.rules.insert(made.rules.end(), more.begin(), more.end());
    return made;
  }();
  return kind;
}

/// Source: huggingface/accelerate, commands/config/cluster.py and utils/dataclasses.py,
/// MegatronLMPlugin.
inline const YamlArguments& accelerate_megatron_kind() {
  static const YamlArguments kind{.kind = "Accelerate",
                                  .sections = {"megatron_lm_config.megatron_lm_"},
                                  .rules = {{"megatron_lm_config.megatron_lm_tp_degree", "", "tensor_model_parallel_size"},
                                            {"megatron_lm_config.megatron_lm_pp_degree", "", "pipeline_model_parallel_size"},
                                            {"megatron_lm_config.megatron_lm_sequence_parallelism", "", "sequence_parallel"},
                                            {"megatron_lm_config.megatron_lm_num_micro_batches", ""},
                                            {"megatron_lm_config.megatron_lm_gradient_clipping", ""},
                                            {"mixed_precision", "bf16", "bf16", "true"},
                                            {"mixed_precision", "fp16", "fp16", "true"},
                                            {"mixed_precision", "no false"},
                                            {"num_processes", "", "@devices"}},
                                  .launched_by = "num_processes"};
  return kind;
}

}  // namespace tawpipe::v0::detail
