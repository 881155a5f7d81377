// Tables of the files of programs around the Hugging Face Trainer: LLaMA-Factory, axolotl, Accelerate.
// Not: what they mean for a plan (frameworks/trainer.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0 {

/// What a plan knows of them; 0 and "" where a file does not say it.
struct TrainerSettings {
  std::string model;
  std::string method;  ///< what is trained
  std::string purpose;
  std::int64_t sequence = 0;
  std::int64_t microbatch = 0;
  std::int64_t accumulation = 0;
  std::int64_t batch = 0;
  std::string bf16;
  std::string fp16;
  std::string precision;  ///< Accelerate's word for both
  std::string checkpointing;
  bool no_checkpointing = false;
  bool fsdp_checkpointing = false;
  std::string optimizer;
  std::string deepspeed;  ///< a file
  std::string distribution;
  std::string fsdp_words;  ///< "full_shard auto_wrap"
  std::string sharding;
  std::string reshard;
  bool offload = false;
  bool packing = false;
  bool padding = false;
  std::string compile;
  int tensor = 1;
  int context = 1;
  std::string context_kind;
  int shard = 0;      ///< devices that share a copy's states; 0: all
  int replicate = 1;  ///< copies
  std::int64_t processes = 0;
  int zero_stage = -1;  ///< of Accelerate without a file; -1: none
  std::string optimizer_device = "none";
  std::string parameter_device = "none";
};

namespace detail {

inline constexpr std::string_view only_sft = "only pre-training and supervised fine-tuning are modelled, with one model";
inline constexpr std::string_view whole_logits = "simulated with the logits of all tokens kept";

/// Source: hiyouga/LLaMA-Factory, src/llamafactory/hparams (of 2026), whose other keys are
/// transformers.TrainingArguments.
inline const SettingsTable<TrainerSettings>& llama_factory_table() {
  using S = TrainerSettings;
  constexpr std::string_view other = "simulated as AdamW of all parameters";
  constexpr std::string_view megatron = "Megatron-LM's keys inside LLaMA-Factory are not read; give a script with its flags";
  static const SettingsTable<S> table{
      .kind = "LLaMA-Factory setting",
      .fields = {{"model_name_or_path", &S::model},
                 {"stage", &S::purpose, {"pt", "sft", "rm", "ppo", "dpo", "kto"}},
                 {"finetuning_type", &S::method, {"full", "lora", "qlora", "oft", "freeze"}},
                 {"cutoff_len", &S::sequence},
                 {"per_device_train_batch_size", &S::microbatch},
                 {"gradient_accumulation_steps", &S::accumulation},
                 {"bf16", &S::bf16, {"true", "false"}},
                 {"fp16", &S::fp16, {"true", "false"}},
                 {"disable_gradient_checkpointing", &S::no_checkpointing},
                 {"optim", &S::optimizer},
                 {"deepspeed", &S::deepspeed},
                 {"fsdp", &S::fsdp_words, {}, true},
                 {"fsdp_config.reshard_after_forward", &S::reshard},
                 {"packing", &S::packing},
                 {"neat_packing", &S::packing},
                 {"torch_compile", &S::compile, {"true", "false"}}},
      .foreign = {{"use_mca", "false", megatron},
                  {"use_megatron_bridge", "false", megatron},
                  {"use_hyper_parallel", "false", "HyperParallel inside LLaMA-Factory is not read"},
                  {"use_kt", "false", "KTransformers is not modelled"},
                  {"quantization_bit", "", "quantized weights are not modelled"},
                  {"use_galore", "false", other, false},
                  {"use_apollo", "false", other, false},
                  {"use_badam", "false", other, false},
                  {"use_adam_mini", "false", other, false},
                  {"use_muon", "false", other, false},
                  {"use_llama_pro", "false", other, false},
                  {"mixture_of_depths", "", "simulated with all tokens in all layers", false},
                  {"enable_liger_kernel", "false", whole_logits, false},
                  {"use_unsloth", "false", "simulated with PyTorch's kernels", false},
                  {"use_unsloth_gc", "false", "simulated with kept activations on the devices", false},
                  {"fp8", "false", "simulated with products in 16 bits", false},
                  {"freeze_language_model", "false", "simulated with all parameters trained", false},
                  {"shift_attn", "false", "simulated with attention to all tokens before", false}},
      .skipped =
          "trust_remote_code template dataset dataset_dir eval_dataset max_samples overwrite_cache preprocessing_* output_dir "
          "logging_* save_* plot_loss overwrite_output_dir report_to learning_rate num_train_epochs max_steps lr_scheduler_* "
          "warmup_* ddp_timeout resume_from_checkpoint val_size per_device_eval_batch_size eval_* do_train do_eval do_predict "
          "dataloader_* flash_attn use_reentrant_gc lora_* adapter_name_or_path weight_decay max_grad_norm seed run_name "
          "adam_* max_length tokenized_path streaming buffer_size mix_strategy interleave_probs cache_dir use_fast_tokenizer "
          "resize_vocab add_tokens add_special_tokens new_special_tokens_config init_special_tokens rope_scaling hub_* "
          "push_to_hub hf_hub_token "
          "export_* infer_* vllm_* sglang_* image_* video_* use_audio_in_video audio_* freeze_vision_tower "
          "freeze_multi_modal_projector media_dir remove_unused_columns group_by_length mask_history train_on_prompt "
          "predict_with_generate compute_accuracy disable_shuffling early_stopping_steps include_* neftune_noise_alpha "
          "gradient_checkpointing_kwargs use_swanlab swanlab_* pure_bf16 upcast_* print_param_status low_cpu_mem_usage "
          "double_quantization quantization_* use_dft_loss use_asft_loss asft_alpha use_eaft_loss eaft_alpha fp8_backend "
          "fp8_enable_fsdp_float8_all_gather galore_* apollo_* badam_* freeze_trainable_* freeze_extra_modules enable_thinking "
          "default_system tool_format data_shared_file_system ignore_pad_token_for_loss ddp_find_unused_parameters local_rank "
          "data_seed tf32 fsdp_config.* moe_aux_loss_coef ray_* do_sample lr_scheduler_type additional_target create_new_adapter "
          "use_rslora use_dora use_kv_cache pissa_* loraplus_* oft_* ref_model* pref_* metric_for_best_model greater_is_better "
          "load_best_model_at_end"};
  return table;
}

/// Source: huggingface/transformers, training_args.py (of 2026).
inline const SettingsTable<TrainerSettings>& transformers_table() {
  using S = TrainerSettings;
  static const SettingsTable<S> table{.kind = "Trainer's argument",
                                      .fields = {{"per_device_train_batch_size", &S::microbatch},
                                                 {"gradient_accumulation_steps", &S::accumulation},
                                                 {"world_size", &S::processes},
                                                 {"bf16", &S::bf16, {"true", "false"}},
                                                 {"fp16", &S::fp16, {"true", "false"}},
                                                 {"gradient_checkpointing", &S::checkpointing, {"true", "false"}},
                                                 {"optim", &S::optimizer},
                                                 {"deepspeed", &S::deepspeed},
                                                 {"fsdp", &S::fsdp_words, {}, true},
                                                 {"fsdp_config.reshard_after_forward", &S::reshard},
                                                 {"fsdp_config.activation_checkpointing", &S::fsdp_checkpointing},
                                                 {"torch_compile", &S::compile, {"true", "false"}}},
                                      .foreign = {{"use_liger_kernel", "false", whole_logits, false},
                                                  {"use_peft", "false", "adapters are not modelled"},
                                                  {"load_in_4bit", "false", "quantized weights are not modelled"},
                                                  {"load_in_8bit", "false", "quantized weights are not modelled"}},
                                      .skipped = "*"};
  return table;
}

/// Source: axolotl-ai-cloud/axolotl, src/axolotl/utils/schemas (of 2026).
inline const SettingsTable<TrainerSettings>& axolotl_table() {
  using S = TrainerSettings;
  static const SettingsTable<S> table{
      .kind = "axolotl setting",
      .fields = {{"base_model", &S::model},
                 {"adapter", &S::method},
                 {"rl", &S::purpose},
                 {"sequence_len", &S::sequence},
                 {"micro_batch_size", &S::microbatch},
                 {"gradient_accumulation_steps", &S::accumulation},
                 {"batch_size", &S::batch},
                 {"bf16", &S::bf16, {"true", "false", "auto", "full"}},
                 {"fp16", &S::fp16, {"true", "false"}},
                 {"gradient_checkpointing", &S::checkpointing, {"true", "false", "offload", "offload_disk", "unsloth"}},
                 {"optimizer", &S::optimizer},
                 {"deepspeed", &S::deepspeed},
                 {"fsdp", &S::fsdp_words, {}, true},
                 {"fsdp_config.sharding_strategy", &S::sharding},
                 {"fsdp_config.reshard_after_forward", &S::reshard},
                 {"fsdp_config.offload_params", &S::offload},
                 {"fsdp_config.activation_checkpointing", &S::fsdp_checkpointing},
                 {"fsdp_config.fsdp_sharding_strategy", &S::sharding},
                 {"fsdp_config.fsdp_reshard_after_forward", &S::reshard},
                 {"fsdp_config.fsdp_offload_params", &S::offload},
                 {"fsdp_config.fsdp_activation_checkpointing", &S::fsdp_checkpointing},
                 {"sample_packing", &S::packing},
                 {"pad_to_sequence_len", &S::padding},
                 {"torch_compile", &S::compile, {"true", "false", "auto"}},
                 {"tensor_parallel_size", &S::tensor},
                 {"context_parallel_size", &S::context},
                 {"ring_attn_func", &S::context_kind},
                 {"dp_shard_size", &S::shard},
                 {"dp_replicate_size", &S::replicate}},
      .foreign = {{"expert_parallel_size", "1", "expert parallelism of axolotl is not read"},
                  {"load_in_8bit", "false", "quantized weights are not modelled"},
                  {"load_in_4bit", "false", "quantized weights are not modelled"},
                  {"reward_model", "false", only_sft},
                  {"process_reward_model", "false", only_sft},
                  {"fp8", "false", "simulated with products in 16 bits", false},
                  {"qat.weight_dtype", "", "simulated without", false},
                  {"unfrozen_parameters", "", "simulated with all parameters trained", false},
                  {"liger_fused_linear_cross_entropy", "false", whole_logits, false},
                  {"cut_cross_entropy", "false", whole_logits, false},
                  {"tiled_mlp", "false", "simulated with the MLP of all tokens at once", false},
                  {"activation_offloading", "false", "simulated with kept activations on the devices", false},
                  {"relora", "false", "simulated with all parameters trained", false}},
      .skipped =
          "base_model_config base_model_ignore_patterns model_type tokenizer_* processor_type trust_remote_code "
          "revision_of_model "
          "strict datasets test_datasets pretraining_dataset dataset_* shuffle_merged_datasets val_set_size output_dir "
          "wandb_* mlflow_* comet_* use_comet use_wandb trackio_* swanlab_* use_swanlab use_tensorboard use_otel_metrics "
          "learning_rate lr_* num_epochs max_steps warmup_* eval* evals_per_epoch saves_per_epoch save_* logging_steps "
          "weight_decay tf32 bfloat16 float16 special_tokens tokens added_tokens_overrides resume_from_checkpoint "
          "auto_resume_from_checkpoints early_stopping_patience lora_* peft_* peft.* chat_template* plugins liger_* "
          "gradient_checkpointing_kwargs.* attn_implementation flash_attention flash_attn_* xformers_attention sdp_attention "
          "flex_attention flex_attn_compile_kwargs.* eager_attention sage_attention attention train_on_inputs group_by_length "
          "debug seed local_rank ddp_* torchdistx_path torch_compile_* hub_* push_dataset_to_hub hf_use_auth_token "
          "remove_unused_columns skip_prepare_dataset eot_tokens loss_watchdog_* fsdp_config.* fsdp_version "
          "fsdp_final_state_dict_type cosine_* adam_* max_grad_norm resize_token_embeddings_to_32x low_cpu_mem_usage "
          "device_map max_memory gptq* bnb_config_kwargs.* model_config.* overrides_of_model_config.* sample_packing_* "
          "eval_sample_packing curriculum_sampling max_packed_sequence_len excess_length_strategy min_sample_len use_kernels "
          "kernels.* heads_k_stride save_first_step profiler_steps is_* include_* auto_find_batch_size noisy_embedding_alpha "
          "neftune_noise_alpha default_system_message experimental_skip_move_to_device accelerator_config.* dataloader_* "
          "optim_args optim_target_modules trl.* vllm.* num_labels loss_* total_* world_size project_name use_ray ray_* "
          "streaming* pretrain_* user_defined* fix_untrained_tokens streaming_multipack_buffer_size unsloth_* "
          "experts_implementation"};
  return table;
}

/// Source: huggingface/accelerate, src/accelerate/commands/config (of 2026).
inline const SettingsTable<TrainerSettings>& accelerate_table() {
  using S = TrainerSettings;
  static const SettingsTable<S> table{
      .kind = "Accelerate setting",
      .fields = {{"distributed_type", &S::distribution, {"FSDP", "DEEPSPEED", "MULTI_GPU", "NO"}},
                 {"mixed_precision", &S::precision, {"bf16", "fp16", "no", "false", "fp8"}},
                 {"num_processes", &S::processes},
                 {"fsdp_config.fsdp_sharding_strategy", &S::sharding},
                 {"fsdp_config.fsdp_reshard_after_forward", &S::reshard},
                 {"fsdp_config.fsdp_offload_params", &S::offload},
                 {"fsdp_config.fsdp_activation_checkpointing", &S::fsdp_checkpointing},
                 {"deepspeed_config.deepspeed_config_file", &S::deepspeed},
                 {"deepspeed_config.zero_stage", &S::zero_stage},
                 {"deepspeed_config.offload_optimizer_device", &S::optimizer_device},
                 {"deepspeed_config.offload_param_device", &S::parameter_device},
                 {"deepspeed_config.gradient_accumulation_steps", &S::accumulation},
                 {"dynamo_config.dynamo_backend", &S::compile},
                 {"parallelism_config.parallelism_config_tp_size", &S::tensor},
                 {"parallelism_config.parallelism_config_cp_size", &S::context},
                 {"parallelism_config.parallelism_config_cp_comm_strategy", &S::context_kind},
                 {"parallelism_config.parallelism_config_dp_shard_size", &S::shard},
                 {"parallelism_config.parallelism_config_dp_replicate_size", &S::replicate}},
      .foreign = {{"parallelism_config.parallelism_config_sp_size", "1", "DeepSpeed-Ulysses of Accelerate is not read"},
                  {"use_cpu", "false", "only GPUs are modelled"},
                  {"fp8_config.backend", "", "simulated with products in 16 bits", false}},
      .skipped =
          "compute_environment debug downcast_bf16 enable_cpu_affinity machine_rank main_training_function num_machines "
          "rdzv_backend same_network tpu_* gpu_ids main_process_ip main_process_port command_file commands fsdp_config.* "
          "deepspeed_config.* dynamo_config.* fp8_config.* ipex_config.* mpirun_config.* parallelism_config.* fsdp_version"};
  return table;
}

}  // namespace detail

}  // namespace tawpipe
