// Every key of a config.json that is known: what it means, by all its names; the value without which
// a model is refused; or that it changes nothing.
// Not: what follows from them (model/detail/config_parts.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "tawpipe/model/detail/decoder_types.hpp"

namespace tawpipe::inline v0::detail {

/// A key that is read, and other names of it. Source of the names: attribute_map in
/// configuration_*.py of transformers, and published files.
struct ConfigKey {
  std::string_view key;
  std::string_view aliases = {};  ///< separated by spaces
};

inline constexpr ConfigKey config_keys[] = {
    // ---- sizes ----
    {"num_hidden_layers", "n_layer n_layers num_layers"},
    {"hidden_size", "n_embd n_embed d_model"},
    {"num_attention_heads", "n_head n_heads num_heads"},
    {"num_key_value_heads", "num_kv_heads n_kv_heads n_head_kv multi_query_group_num num_query_groups"},
    {"multi_query", "multi_query_attention"},
    {"head_dim", "kv_channels attention_head_dim"},
    {"intermediate_size", "n_inner ffn_dim ffn_hidden_size d_ff block_ff_dim"},
    {"vocab_size", "padded_vocab_size"},
    {"tie_word_embeddings", "tie_embedding"},
    {"torch_dtype", "dtype"},
    // ---- latent attention ----
    {"q_lora_rank"},
    {"kv_lora_rank"},
    {"qk_rope_head_dim"},
    {"qk_nope_head_dim"},
    {"v_head_dim"},
    // ---- layers that differ ----
    {"sliding_window", "sliding_window_size window_size"},
    {"use_sliding_window"},
    {"max_window_layers"},
    {"layer_types", "layers_block_type"},
    {"hybrid_override_pattern"},
    {"hybrid_layer_pattern"},
    {"full_attention_interval"},
    {"attn_layer_indices"},
    {"sliding_window_pattern", "global_attn_every_n_layers"},
    {"attention_chunk_size"},
    {"attn_type_list"},
    {"no_rope_layers"},
    {"no_rope_layer_interval", "nope_layer_interval"},
    // ---- biases, norms ----
    {"attention_bias"},
    {"attention_out_bias"},
    {"mlp_bias"},
    {"qkv_bias", "use_qkv_bias add_qkv_bias"},
    {"use_bias", "bias add_bias_linear"},
    {"use_qk_norm", "qk_layernorm qk_norm"},
    {"qk_norm_type"},
    {"rms_norm_eps", "layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon rms_norm_epsilon"},
    {"use_parallel_residual", "parallel_attn"},
    {"hidden_act", "hidden_activation activation_function activation mlp_hidden_act"},
    // ---- positions ----
    {"max_position_embeddings", "n_positions max_seq_len seq_length model_max_length max_sequence_length"},
    {"rope_theta", "rotary_emb_base"},
    {"rope_scaling"},
    {"rope_parameters"},
    {"partial_rotary_factor", "rotary_pct rope_pct"},
    {"rotary_dim"},
    // ---- experts ----
    {"num_experts", "num_local_experts n_routed_experts moe_num_experts num_routed_experts"},
    {"num_experts_per_tok", "moe_topk moe_k moe_top_k num_experts_per_token top_k_experts experts_per_token moe_num_active"},
    {"moe_intermediate_size", "expert_ffn_hidden_size moe_ffn_hidden_size expert_intermediate_size"},
    {"n_shared_experts", "num_shared_experts num_shared_expert moe_num_shared_experts"},
    {"shared_expert_intermediate_size",
     "moe_shared_expert_intermediate_size shared_intermediate_size share_expert_dim shared_expert_ffn_hidden_size"},
    {"shared_expert_gate"},  // tawpipe's own
    {"first_k_dense_replace", "moe_layer_start_index num_dense_layers"},
    {"mlp_layer_types"},
    {"intermediate_size_mlp", "dense_intermediate_size"},
    {"moe_layer_freq", "decoder_sparse_step interleave_moe_layer_step moe_layer_interval expert_interval"},
    {"mlp_only_layers"},
    {"moe_layers"},
    {"moe_layer_end_index"},
    {"n_group", "num_expert_group"},
    {"topk_group"},
    {"norm_topk_prob", "moe_renormalize"},
    {"router_aux_loss_coef"},
    {"output_router_logits"},
    // ---- layers that predict further tokens ----
    {"num_nextn_predict_layers", "num_mtp_layers mtp_num_hidden_layers"},
    {"num_mtp_modules"},
    // ---- attention of other sizes within windows, gates ----
    {"swa_num_attention_heads"},
    {"swa_num_key_value_heads"},
    {"swa_head_dim"},
    {"swa_v_head_dim"},
    {"add_swa_attention_sink_bias"},
    {"add_full_attention_sink_bias"},
    {"attn_output_gate", "attention_output_gate"},
    // ---- recurrent layers ----
    {"linear_num_key_heads"},
    {"linear_num_value_heads"},
    {"linear_key_head_dim"},
    {"linear_value_head_dim"},
    {"linear_conv_kernel_dim"},
    {"mamba_num_heads", "mamba_n_heads n_mamba_heads"},
    {"mamba_head_dim", "mamba_d_head mamba_headdim"},
    {"n_groups", "mamba_n_groups mamba_ngroups"},
    {"ssm_state_size", "mamba_d_state"},
    {"conv_kernel", "mamba_d_conv"},
    {"expand", "mamba_expand"},
    {"use_conv_bias", "mamba_conv_bias"},
    {"mamba_proj_bias"},
    {"moe_latent_size"},
    // ---- attention to keys that an index picks ----
    {"index_topk"},
    {"index_head_dim"},
    {"index_n_heads"},
    // ---- how it is stored ----
    {"_name_or_path"},
    {"architectures"},
    {"quantization_config", "compression_config quantization"},
};

/// @return null: not one that is read
inline const ConfigKey* find_config_key(std::string_view key) {
  const auto* found = std::find_if(std::begin(config_keys), std::end(config_keys),
                                   [&](const ConfigKey& one) { return one.key == key || has_word(one.aliases, key); });
  return found == std::end(config_keys) ? nullptr : found;
}

/// Keys that are refused but with a value that changes nothing.
struct OnlyKey {
  std::string_view keys;    ///< separated by spaces
  std::string_view values;  ///< that change nothing, separated by spaces
  std::string_view why;
};
inline constexpr OnlyKey only_keys[] = {
    {"is_encoder_decoder tie_encoder_decoder", "false", "an encoder and a decoder are not modelled; it must be false"},
    {"add_cross_attention", "false", "attention to an encoder is not modelled; it must be false"},
    {"chunk_size_feed_forward", "0", "an MLP in chunks of tokens is not modelled; it must be 0"},
    {"pruned_heads per_layer_config", "{}", "heads and layers that differ are not modelled; it must be empty"},
    {"clip_qkv", "", "clipped queries, keys and values are not modelled; leave it out"},
    {"alibi", "false", "scores with a bias by distance (ALiBi) are not modelled; it must be false"},
    {"use_bidirectional_attention", "false \"vision\"", "attention to later tokens is not modelled; it must be false"},
    {"apply_residual_connection_post_layernorm", "false", "sums after a norm are not modelled; it must be false"},
    {"lm_head_bias", "false", "a bias of the head is not modelled; it must be false"},
    {"use_mrope use_mem_rope", "false", "it must be false"},
};

/// Dropout, which predictions leave out with a note, and training refuses.
inline constexpr std::string_view dropout_keys =
    "attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop residual_dropout embedding_dropout attn_dropout_prob "
    "emb_dropout_prob hidden_dropout_prob attention_probs_dropout_prob emb_pdrop dropout resid_dropout layerdrop";

/// Factors and bounds that change what is computed, and not how long it takes: the values of no effect.
struct ScaledKey {
  std::string_view key;
  std::string_view neutral;  ///< separated by spaces
};
inline constexpr ScaledKey scaled_keys[] = {
    {"embedding_multiplier", "1 1.0"},
    {"logits_scaling", "1 1.0"},
    {"residual_multiplier", "1 1.0"},
    {"attention_multiplier", ""},
    {"logit_scale", "1 1.0"},
    {"scale_emb", "1 1.0"},
    {"scale_depth", ""},
    {"dim_model_base", ""},
    {"mup_enabled", "false"},
    {"query_pre_attn_scalar", ""},
    {"attn_logit_softcapping", ""},
    {"final_logit_softcapping", ""},
    {"swiglu_limit", ""},
    {"swiglu_alpha", ""},
    {"attn_temperature_tuning", "false 0"},
    {"attention_value_scale", "1 1.0"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"use_logn_attn use_dynamic_ntk", "false"},
    {"rope_local_base_freq", ""},
    {"swa_rope_theta", ""},
    {"use_gemma_norm", "false"},
};

/// Keys by which parts are known that no decoder here has, by how they begin, or whole.
struct StructureKey {
  std::string_view begins;
  std::string_view what;
};
inline constexpr StructureKey structure_keys[] = {
    {"mamba_", "state-space layers (Mamba)"},
    {"ssm_", "state-space layers (Mamba)"},
    {"linear_", "linear attention (gated delta nets)"},
    {"conv_L_cache", "convolutions between layers"},
    {"sparse_attention", "attention to blocks of keys that are picked"},
    {"compress_", "compressed keys"},
    {"hc_mult", "several residual streams"},
    {"altup", "several residual streams"},
    {"kda_", "linear attention (Kimi delta attention)"},
    {"block_configs", "layers of sizes of their own"},
    {"global_head_dim", "attention of other sizes in some of the layers"},
    {"routed_expert_hidden_size", "experts of vectors of another width"},
};

/// Keys that change nothing in any model here: names, tokens, generation, labels, runs of
/// transformers, how a router scores experts (they are taken to get equally many; training takes of a
/// router like DeepSeek-V3's what read_sigmoid_router() reads), towers that a decoder's file does not need.
inline constexpr std::string_view idle_keys =
    "model_type name_or_path _commit_hash transformers_version auto_map torchscript return_dict use_return_dict "
    "output_attentions output_hidden_states use_cache use_bfloat16 initializer_range pretraining_tp gradient_checkpointing "
    "attn_implementation _attn_implementation _attn_implementation_autoset _experts_implementation experts_implementation "
    "_flash_attn_2_enabled unsloth_version unsloth_fixed tf_legacy_loss is_decoder cross_attention_hidden_size "
    "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id eod_token_id decoder_start_token_id mask_token_id "
    "tokenizer_class prefix task_specific_params problem_type finetuning_task id2label label2id num_labels "
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p min_p "
    "typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "num_return_sequences return_dict_in_generate output_scores forced_bos_token_id forced_eos_token_id remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens max_new_tokens generation_config "
    "tie_last_hidden_states cache_implementation num_logits_to_keep _from_model_config is_llama_config use_flash_attn "
    "use_flash_attention flash_attn flash_rotary fused_dense img_processor embd_layer vision_config audio_config "
    "transformers.js_config runner_max_sequence_length fp32_residual_connection residual_in_fp32 attention_softmax_in_fp32 "
    "scale_attention_softmax_in_fp32 scale_attn_weights reorder_and_upcast_attn softmax_in_fp32 bf16 fp16 fp32 init_device "
    "summary_type summary_use_proj summary_activation summary_first_dropout summary_proj_to_labels n_ctx n_special "
    "predict_special_tokens classifier_dropout bias_dropout_fusion apply_query_key_layer_scaling rmsnorm post_layer_norm "
    "original_rope rotary rope_interleaved rope_interleave norm_type mlp_type qk_head_dim ep_size no_bias rope_ratio "
    "prefix_projection pre_seq_len quantization_bit classifier_config position_embedding_type use_rope_scaling bos_token "
    "eos_token softmax_scale floor_scale attn_scale initial_context_length original_max_position_embeddings use_mtp "
    "mtp_transformer_layers mtp_use_dedicated_embeddings context_window_size prefill_chunk_size attention_sink_size "
    "tensor_parallel_shards full_attn_mod interpolate_factor slow_but_exact init_std mup_width moe_norm_min "
    // how experts are chosen and weighted
    "chunk_size mamba_chunk_size mamba_hidden_act mamba_ssm_cache_dtype mamba_ssm_dtype time_step_floor time_step_limit "
    "time_step_max time_step_min time_step_rank use_mamba_kernels rescale_prenorm_residual moe_shared_expert_overlap "
    "mtp_hybrid_override_pattern mtp_layers_block_type output_gate_type "
    "scoring_func topk_method routed_scaling_factor route_scale router_scaling_factor aux_loss_alpha seq_aux use_routing_bias "
    "moe_router_use_expert_bias moe_router_enable_expert_bias use_expert_bias use_moe_router_bias moe_router_activation_func "
    "moe_router_scaling_factor moe_router_dtype use_grouped_topk router_jitter_noise input_jitter_noise score_func "
    "router_z_loss_coef z_loss_coefficient num_experts_per_layer moe_aux_loss_coef load_balance_coeff aux_loss_coef "
    "index_share_for_mtp_iteration index_skip_topk_offset index_topk_freq index_topk_pattern indexer_rope_interleave "
    "indexer_types enable_moe_fp32_combine moe_use_aux_free moe_use_aux_free_bias moe_capacity";

}  // namespace tawpipe::detail
