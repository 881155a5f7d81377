// Every key of a config.json that is known: what it sets, that it changes nothing, or the value
// without which a model is refused.
// Not: how a key is read (model/detail/config_reading.hpp) and what follows from several keys (model/huggingface_config.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/detail/config_reading.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// What a key does.
enum class KeyRole : std::uint8_t {
  sizes,    ///< changes what is predicted
  numbers,  ///< changes what is computed, and no time or memory
  note,     ///< is not modelled, and said so
  only,     ///< is refused but with a value that changes nothing
  nothing,  ///< changes nothing
};

/// One key, of some types of models. A null is a key left out.
struct ConfigKey {
  std::string_view key;
  KeyRole role;
  std::string_view types = {};  ///< separated by spaces; none: all
  /// only: the values that change nothing, separated by spaces, and what others are
  std::string_view values = {};
  std::string_view why = {};
  void (*read)(ConfigReading&, JsonValue) = nullptr;
  bool required = false;
  bool may_be_null = false;  ///< a required key
};

namespace config_types {
inline constexpr std::string_view dense = "llama mistral qwen2 qwen3 phi3";
inline constexpr std::string_view experts =
    "mixtral qwen2_moe qwen3_moe olmoe minimax_m2 deepseek_v2 deepseek_v3 kimi_k2 glm4_moe";
inline constexpr std::string_view moe_width = "qwen2_moe qwen3_moe deepseek_v2 deepseek_v3 kimi_k2 glm4_moe";
inline constexpr std::string_view deepseek = "deepseek_v2 deepseek_v3 kimi_k2";
inline constexpr std::string_view first_dense = "deepseek_v2 deepseek_v3 kimi_k2 glm4_moe";
inline constexpr std::string_view grouped =
    "llama mistral qwen2 qwen3 phi3 mixtral qwen2_moe qwen3_moe olmoe minimax_m2 glm4_moe";
/// whose transformers class has another default than as many as heads
inline constexpr std::string_view kv_required = "mistral qwen2 qwen3 mixtral qwen2_moe qwen3_moe minimax_m2 glm4_moe";
inline constexpr std::string_view own_window = "mistral mixtral phi3 minimax_m2";
inline constexpr std::string_view window_switch = "qwen2 qwen3";
inline constexpr std::string_view no_window = "qwen2_moe qwen3_moe";
}  // namespace config_types

inline constexpr std::string_view takes_turns =
    "layers with and without experts that take turns are not modelled; it must be 1, for experts in every layer";
inline constexpr std::string_view is_mixture =
    "describes a mixture of experts, which is modelled where model_type is mixtral, qwen2_moe, qwen3_moe, olmoe, minimax_m2, "
    "deepseek_v2, deepseek_v3, kimi_k2 or glm4_moe; give one of these or a dense decoder";
inline constexpr std::string_view no_dropout = "dropout is not modelled; it must be 0";
inline constexpr std::string_view no_bias = "biases are not modelled in this type of model; it must be false";

inline constexpr ConfigKey config_keys[] = {
    // ---- sizes ----
    {"num_hidden_layers", KeyRole::sizes, {}, {}, {}, read_size<&Transformer::layers>, true},
    {"hidden_size", KeyRole::sizes, {}, {}, {}, read_size<&Transformer::hidden>, true},
    {"num_attention_heads", KeyRole::sizes, {}, {}, {}, read_size<&Transformer::heads>, true},
    {"intermediate_size",
     KeyRole::sizes,
     "llama mistral qwen2 qwen3 phi3 mixtral olmoe minimax_m2",
     {},
     {},
     read_size<&Transformer::intermediate>,
     true},
    {"intermediate_size", KeyRole::sizes, config_types::first_dense, {}, {}, keep<&ConfigReading::dense_width>},
    {"intermediate_size", KeyRole::nothing, config_types::moe_width},  // of layers without experts, and there are none
    {"moe_intermediate_size", KeyRole::sizes, config_types::moe_width, {}, {}, read_size<&Transformer::intermediate>, true},
    {"vocab_size", KeyRole::sizes, {}, {}, {}, read_size<&Transformer::vocab>, true},
    {"num_local_experts", KeyRole::sizes, "mixtral minimax_m2", {}, {}, read_positive<&Transformer::experts>, true},
    {"num_experts", KeyRole::sizes, "qwen2_moe olmoe", {}, {}, read_positive<&Transformer::experts>, true},
    // its name in published files, and as transformers 5 writes it
    {"num_experts", KeyRole::sizes, "qwen3_moe", {}, {}, read_experts},
    {"num_local_experts", KeyRole::sizes, "qwen3_moe", {}, {}, read_experts},
    {"n_routed_experts", KeyRole::sizes, config_types::first_dense, {}, {}, read_positive<&Transformer::experts>, true},
    {"num_experts_per_tok", KeyRole::sizes, config_types::experts, {}, {}, read_positive<&Transformer::experts_per_token>, true},
    {"shared_expert_intermediate_size", KeyRole::sizes, "qwen2_moe", {}, {}, read_size<&Transformer::shared_width>, true},
    {"shared_expert_gate", KeyRole::sizes, "qwen2_moe", {}, {}, read_flag<&Transformer::shared_gate>},  // tawpipe's own
    {"first_k_dense_replace", KeyRole::sizes, config_types::first_dense, {}, {}, read_size<&Transformer::dense_layers>, true},
    {"n_shared_experts", KeyRole::sizes, config_types::first_dense, {}, {}, keep<&ConfigReading::shared_experts>, true, true},
    {"n_group", KeyRole::sizes, config_types::first_dense, {}, {}, read_positive<&Transformer::expert_groups>},
    {"topk_group", KeyRole::sizes, config_types::first_dense, {}, {}, read_positive<&Transformer::groups_per_token>},
    {"q_lora_rank", KeyRole::sizes, config_types::deepseek, {}, {}, read_width<&Transformer::query_rank, 1>, true, true},
    {"kv_lora_rank", KeyRole::sizes, config_types::deepseek, {}, {}, read_width<&Transformer::key_value_rank, 1>, true},
    {"qk_rope_head_dim", KeyRole::sizes, config_types::deepseek, {}, {}, read_width<&Transformer::rope_width, 0>, true},
    {"qk_nope_head_dim",
     KeyRole::sizes,
     config_types::deepseek,
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.unturned = value.whole<int>(0, Transformer::max_hidden); },
     true},
    {"v_head_dim", KeyRole::sizes, config_types::deepseek, {}, {}, read_width<&Transformer::value_size, 1>, true},
    {"head_dim", KeyRole::nothing, config_types::deepseek},  // qk_nope_head_dim and qk_rope_head_dim say it
    {"qk_head_dim", KeyRole::nothing, config_types::deepseek},
    {"head_dim",
     KeyRole::sizes,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.model().head_dim = value.whole<int>(); }},
    {"num_key_value_heads", KeyRole::sizes, config_types::kv_required, {}, {}, read_size<&Transformer::kv_heads>, true, true},
    {"num_key_value_heads", KeyRole::sizes, {}, {}, {}, read_size<&Transformer::kv_heads>},
    {"tie_word_embeddings", KeyRole::sizes, {}, {}, {}, read_flag<&Transformer::tied>},
    {"torch_dtype",
     KeyRole::sizes,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_stored_dtype(reading, "torch_dtype", value); }},
    {"dtype",
     KeyRole::sizes,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_stored_dtype(reading, "dtype", value); }},

    // ---- windows ----
    {"sliding_window",
     KeyRole::sizes,
     "mistral mixtral phi3 minimax_m2 qwen2 qwen3",
     {},
     {},
     read_positive<&Transformer::window>},
    {"sliding_window", KeyRole::nothing, config_types::no_window},  // without use_sliding_window
    {"use_sliding_window", KeyRole::sizes, config_types::window_switch, {}, {}, keep<&ConfigReading::use_window>},
    {"use_sliding_window", KeyRole::only, config_types::no_window, "false",
     "windows of a mixture of this type are in some layers, which is not modelled; it must be false"},
    {"max_window_layers", KeyRole::sizes, config_types::window_switch, {}, {}, keep<&ConfigReading::first_window_layer>},
    {"max_window_layers", KeyRole::nothing, config_types::no_window},
    {"layer_types", KeyRole::sizes, {}, {}, {}, keep<&ConfigReading::layer_types>},

    // ---- biases, norms ----
    {"attention_bias", KeyRole::sizes, "llama qwen3 qwen3_moe olmoe glm4_moe", {}, {}, read_attention_bias},
    {"attention_bias", KeyRole::only, {}, "false", no_bias},
    {"qkv_bias", KeyRole::sizes, "qwen2_moe", {}, {}, read_flag<&Transformer::qkv_bias>},
    {"qkv_bias", KeyRole::only, {}, "false", no_bias},
    {"use_qkv_bias", KeyRole::only, {}, "false", no_bias},
    {"mlp_bias", KeyRole::sizes, "llama", {}, {}, read_flag<&Transformer::mlp_bias>},
    {"mlp_bias", KeyRole::only, {}, "false", no_bias},
    {"use_qk_norm",
     KeyRole::sizes,
     "glm4_moe",
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.model().qk_norm = value.boolean() ? QkNorm::head : QkNorm::none; }},
    {"use_qk_norm", KeyRole::only, "qwen3 qwen3_moe minimax_m2", "true", "this type of model has these norms; it must be true"},
    {"use_qk_norm", KeyRole::only, {}, "false", "this type of model has no norms of queries and keys; it must be false"},
    {"qk_norm_type", KeyRole::only, "minimax_m2", "\"per_layer\"", "norms of queries and keys are of all heads: per_layer"},
    {"rms_norm_eps",
     KeyRole::numbers,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.constants().norm_epsilon = value.positive_or_zero(); }},
    {"hidden_act", KeyRole::numbers, {}, {}, {}, read_activation},
    {"clip_qkv", KeyRole::only, "olmoe", {}, "clipped queries, keys and values are not modelled; leave it out"},

    // ---- positions ----
    {"max_position_embeddings",
     KeyRole::numbers,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.constants().positions = value.whole<std::int32_t>(); }},
    {"rope_theta", KeyRole::numbers, {}, {}, {}, keep<&ConfigReading::rope_theta>},
    {"rope_scaling",
     KeyRole::numbers,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_rotary_once(reading, "rope_scaling", value); }},
    {"rope_parameters",
     KeyRole::numbers,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_rotary_once(reading, "rope_parameters", value); }},
    {"partial_rotary_factor",
     KeyRole::numbers,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.constants().rotary_part = value.positive(); }},
    {"rotary_dim",
     KeyRole::numbers,
     "minimax_m2",
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.turned = value.whole<int>(1); }},
    {"original_max_position_embeddings", KeyRole::nothing, "phi3"},  // of longrope, which is not computed
    {"rope_interleave", KeyRole::nothing, "deepseek_v3 kimi_k2"},    // the order of a head's numbers

    // ---- experts ----
    {"num_local_experts", KeyRole::only, config_types::dense, "0 1", is_mixture},
    {"num_experts", KeyRole::only, config_types::dense, "0 1", is_mixture},
    {"n_routed_experts", KeyRole::only, config_types::dense, "0 1", is_mixture},
    {"moe_intermediate_size", KeyRole::only, config_types::dense, "0 1", is_mixture},
    {"num_experts_per_tok", KeyRole::only, config_types::dense, "0 1", is_mixture},
    {"shared_expert_intermediate_size", KeyRole::only, "qwen3_moe", "0", "a shared expert is not of this type of model"},
    {"shared_intermediate_size", KeyRole::only, "minimax_m2", "0", "a shared expert is not modelled in this type of model"},
    {"decoder_sparse_step", KeyRole::only, {}, "1", takes_turns},
    {"moe_layer_freq", KeyRole::only, {}, "1", takes_turns},
    {"interleave_moe_layer_step", KeyRole::only, {}, "1", takes_turns},
    {"mlp_only_layers",
     KeyRole::only,
     {},
     "[]",
     "single layers without experts are not modelled; it must be empty, for experts in every layer"},
    {"norm_topk_prob",
     KeyRole::numbers,
     "qwen2_moe qwen3_moe olmoe deepseek_v2 deepseek_v3 kimi_k2 glm4_moe",
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.constants().router.sum_to_one = value.boolean(); }},
    {"norm_topk_prob", KeyRole::only, "mixtral minimax_m2", "true", "the weights of this type's experts have the sum 1; true"},
    {"router_aux_loss_coef", KeyRole::numbers, config_types::experts, {}, {}, keep<&ConfigReading::balance>},
    {"output_router_logits",
     KeyRole::numbers,
     config_types::experts,
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.balances = value.boolean(); }},
    {"router_jitter_noise", KeyRole::only, config_types::experts, "0 0.0", "noise of a router is not modelled; it must be 0"},
    // which experts are chosen, and their weights: predictions take them to get equally many
    {"scoring_func", KeyRole::nothing, config_types::experts},
    {"topk_method", KeyRole::nothing, config_types::experts},
    {"routed_scaling_factor", KeyRole::nothing, config_types::experts},
    {"aux_loss_alpha", KeyRole::nothing, config_types::experts},
    {"seq_aux", KeyRole::nothing, config_types::experts},
    {"use_routing_bias", KeyRole::nothing, "minimax_m2"},
    {"ep_size", KeyRole::nothing, config_types::experts},  // of inference
    {"attn_type_list", KeyRole::only, "minimax_m2", {}, {}, read_attention_types},

    // ---- layers that predict further tokens ----
    {"num_nextn_predict_layers",
     KeyRole::note,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_further_layers(reading, "num_nextn_predict_layers", value); }},
    {"num_mtp_layers",
     KeyRole::note,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_further_layers(reading, "num_mtp_layers", value); }},
    {"num_mtp_modules",
     KeyRole::note,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { read_further_layers(reading, "num_mtp_modules", value); }},
    {"use_mtp", KeyRole::nothing, "minimax_m2"},  // num_mtp_modules says how many
    {"mtp_transformer_layers", KeyRole::nothing, "minimax_m2"},

    // ---- how it is stored and trained ----
    {"_name_or_path",
     KeyRole::nothing,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue value) { reading.read.stored_name = value.label(); }},
    {"architectures", KeyRole::note, {}, {}, {}, read_architectures},
    {"quantization_config",
     KeyRole::note,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue) { read_quantization(reading, "quantization_config"); }},
    {"compression_config",
     KeyRole::note,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue) { read_quantization(reading, "compression_config"); }},
    {"quantization",
     KeyRole::note,
     {},
     {},
     {},
     [](ConfigReading& reading, JsonValue) { read_quantization(reading, "quantization"); }},
    {"attention_dropout", KeyRole::only, {}, "0 0.0", no_dropout},
    {"hidden_dropout", KeyRole::only, {}, "0 0.0", no_dropout},
    {"resid_pdrop", KeyRole::only, {}, "0 0.0", no_dropout},
    {"embd_pdrop", KeyRole::only, {}, "0 0.0", no_dropout},
    {"is_encoder_decoder", KeyRole::only, {}, "false", "an encoder and a decoder are not modelled; it must be false"},
    {"add_cross_attention", KeyRole::only, {}, "false", "attention to an encoder is not modelled; it must be false"},
    {"tie_encoder_decoder", KeyRole::only, {}, "false", "an encoder and a decoder are not modelled; it must be false"},
    {"chunk_size_feed_forward", KeyRole::only, {}, "0", "an MLP in chunks of tokens is not modelled; it must be 0"},
    {"pruned_heads", KeyRole::only, {}, "{}", "layers of different heads are not modelled; it must be empty"},
    {"per_layer_config", KeyRole::only, {}, "{}", "layers that differ are not modelled; it must be empty"},
};

/// Keys that change nothing in any model here: names, tokens, generation, labels, runs of
/// transformers.
inline constexpr std::string_view idle_keys =
    "model_type name_or_path _commit_hash transformers_version auto_map torchscript return_dict use_return_dict "
    "output_attentions output_hidden_states use_cache use_bfloat16 initializer_range pretraining_tp gradient_checkpointing "
    "attn_implementation _attn_implementation _attn_implementation_autoset _experts_implementation experts_implementation "
    "_flash_attn_2_enabled unsloth_version unsloth_fixed tf_legacy_loss is_decoder cross_attention_hidden_size "
    "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id tokenizer_class prefix "
    "task_specific_params problem_type finetuning_task id2label label2id num_labels "
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p min_p "
    "typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "num_return_sequences return_dict_in_generate output_scores forced_bos_token_id forced_eos_token_id remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens max_new_tokens generation_config "
    "tie_last_hidden_states";

/// The key as a model of that type has it. @return null: unknown
inline const ConfigKey* find_config_key(std::string_view key, std::string_view type) {
  const auto* found = std::find_if(std::begin(config_keys), std::end(config_keys), [&](const ConfigKey& one) {
    return one.key == key && (one.types.empty() || has_word(one.types, type));
  });
  return found == std::end(config_keys) ? nullptr : found;
}

}  // namespace tawpipe::detail
