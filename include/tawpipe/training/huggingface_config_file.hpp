// A decoder's config.json, as `transformers` reads and writes it.
// Not: only the sizes of a supported model (model/huggingface_config.hpp), nor weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/check_constants.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::training {

/// The model_type whose code in `transformers` computes such a decoder. A shared expert without a gate
/// of its own, beside a softmax, is in none; it is written as a Qwen2 with experts, for checkpoints only.
/// @throws InputError  if there is none
/// Source: modeling_*.py of these types, https://github.com/huggingface/transformers
inline std::string_view huggingface_type(const Transformer& model, const DecoderConstants& constants) {
  if (model.has_kinds())
    throw InputError(concat("model ", quote(model.name), " has layers of several kinds, which are not written"));
  if (!model.mtp.empty())
    throw InputError(concat("model ", quote(model.name), " has layers that predict further tokens, which are not written"));
  const bool alike = model.qkv_bias == model.output_bias;  // as attention_bias says
  const bool none = alike && !model.qkv_bias;
  const bool head_norms = model.qk_norm == QkNorm::head;
  const bool whole_shared = model.shared_width % model.intermediate == 0;
  if (model.is_latent()) {
    if (model.is_routed() && constants.router.sigmoid && whole_shared) return "deepseek_v3";
  } else if (model.is_routed() && constants.router.sigmoid) {
    if (model.qk_norm != QkNorm::width && !model.output_bias && model.window == 0 && whole_shared) return "glm4_moe";
  } else if (model.is_routed()) {
    if (model.shared_width > 0) return "qwen2_moe";
    if (head_norms && alike && model.window == 0) return "qwen3_moe";
    if (model.dense_layers == 0 && model.qk_norm == QkNorm::width && alike && model.window == 0) return "olmoe";
    if (model.dense_layers == 0 && model.qk_norm == QkNorm::none && none) return "mixtral";
  } else if (head_norms) {
    if (alike && !model.mlp_bias) return "qwen3";
  } else if (model.qk_norm == QkNorm::none) {
    if (alike && model.window == 0) return "llama";
    if (none && !model.mlp_bias) return "mistral";
    if (model.qkv_bias && !model.output_bias && !model.mlp_bias) return "qwen2";
  }
  throw InputError(concat("model ", quote(model.name), " has biases, norms of queries and keys, a window, or experts that no ",
                          "model of transformers has together"));
}

/// The text of the config.json of a model. Its torch_dtype is `model.dtype`.
/// @throws InputError  as huggingface_type()
/// Source of the keys: configuration_*.py, https://github.com/huggingface/transformers
inline std::string huggingface_config_text(const Transformer& model, const DecoderConstants& constants) {
  struct Class {
    std::string_view type;
    std::string_view name;
  };
  constexpr Class classes[] = {
      {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"},        {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"}, {"mixtral", "MixtralForCausalLM"},        {"qwen3_moe", "Qwen3MoeForCausalLM"},
      {"olmoe", "OlmoeForCausalLM"}, {"deepseek_v3", "DeepseekV3ForCausalLM"}, {"glm4_moe", "Glm4MoeForCausalLM"}};
  const std::string_view type = huggingface_type(model, constants);
  const bool sigmoids = type == "deepseek_v3" || type == "glm4_moe";
  nlohmann::ordered_json json;
  for (const Class& one : classes) {
    if (one.type == type) json["architectures"] = nlohmann::ordered_json::array({one.name});
  }
  json["model_type"] = type;
  json["_name_or_path"] = model.name;
  json["hidden_size"] = model.hidden;
  json["num_hidden_layers"] = model.layers;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.kv_heads;
  if (!model.is_latent()) json["head_dim"] = model.head_size();
  json["intermediate_size"] = model.dense_layers > 0 ? model.dense_width : model.intermediate;
  if (model.is_latent()) {
    json["q_lora_rank"] = model.query_rank > 0 ? nlohmann::ordered_json(model.query_rank) : nlohmann::ordered_json(nullptr);
    json["kv_lora_rank"] = model.key_value_rank;
    json["qk_rope_head_dim"] = model.rope_width;
    json["qk_nope_head_dim"] = model.head_size() - model.rope_width;
    json["v_head_dim"] = model.value_size;
    json["rope_interleave"] = true;
  }
  if (model.is_routed()) {
    json[type == "mixtral" ? "num_local_experts" : sigmoids ? "n_routed_experts" : "num_experts"] = model.experts;
    json["num_experts_per_tok"] = model.experts_per_token;
    if (type != "mixtral") json["norm_topk_prob"] = constants.router.sum_to_one;
  }
  if (model.is_routed() && !sigmoids) {
    json["output_router_logits"] = constants.router.balance != 0;
    if (constants.router.balance != 0) json["router_aux_loss_coef"] = constants.router.balance;
  }
  if (type == "qwen2_moe" || type == "qwen3_moe" || sigmoids) json["moe_intermediate_size"] = model.intermediate;
  if (sigmoids) {
    json["n_shared_experts"] = model.shared_width / model.intermediate;
    json["first_k_dense_replace"] = model.dense_layers;
    json["n_group"] = model.expert_groups;
    json["topk_group"] = model.groups_per_token;
    json["routed_scaling_factor"] = constants.router.scale;
  }
  if (type == "glm4_moe") {
    json["use_qk_norm"] = model.qk_norm == QkNorm::head;
    json["partial_rotary_factor"] = 1.0;
  }
  if (!sigmoids && model.dense_layers > 0) {
    std::vector<int> dense;
    for (int layer = 0; layer < model.dense_layers; ++layer) dense.push_back(layer);
    json["mlp_only_layers"] = dense;
  }
  if (type == "qwen2_moe") {
    json["shared_expert_intermediate_size"] = model.shared_width;
    json["shared_expert_gate"] = model.shared_gate;
    json["qkv_bias"] = model.qkv_bias;
  }
  if (type == "qwen2" || type == "qwen3") {
    json["use_sliding_window"] = model.window > 0;
    json["max_window_layers"] = 0;
    json["layer_types"] = std::vector<std::string>(static_cast<std::size_t>(model.layers),
                                                   model.window > 0 ? "sliding_attention" : "full_attention");
  }
  if (type != "llama" && type != "olmoe" && !sigmoids) {
    json["sliding_window"] = model.window > 0 ? nlohmann::ordered_json(model.window) : nlohmann::ordered_json(nullptr);
  }
  json["vocab_size"] = model.vocab;
  json["tie_word_embeddings"] = model.tied;
  json["hidden_act"] = constants.activation;
  json["attention_bias"] = type == "glm4_moe" ? model.qkv_bias : model.output_bias;
  if (!sigmoids) json["mlp_bias"] = model.mlp_bias;
  json["attention_dropout"] = 0.0;
  json["rms_norm_eps"] = constants.norm_epsilon;
  json["rope_theta"] = constants.rope_theta;
  const RotaryScaling& scaling = constants.scaling;
  nlohmann::ordered_json scaled = nullptr;
  if (scaling.kind == RotaryScaling::Kind::linear) scaled = {{"rope_type", "linear"}, {"factor", scaling.factor}};
  if (scaling.kind == RotaryScaling::Kind::llama3) {
    scaled = {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", static_cast<std::int64_t>(scaling.original_positions)}};
  }
  json["rope_scaling"] = std::move(scaled);
  json["max_position_embeddings"] = constants.positions;
  json["initializer_range"] = 0.02;
  json["use_cache"] = true;
  json["torch_dtype"] = name(model.dtype);
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// Reads the config.json of weights for computation: everything must match what the decoder
/// computes.
/// @throws InputError  as read_huggingface_config(); or naming the keys that no computation here
/// takes.
inline HuggingFaceConfig read_decoder_config(const std::string& path) {
  HuggingFaceConfig config = read_huggingface_config(path);
  if (!config.not_computed.empty()) throw InputError(concat("config ", quote(path), ": ", join(config.not_computed, "; ")));
  layers::check_constants(config.model, config.constants);
  config.model.dtype = config.stored;
  if (!config.stored_name.empty()) config.model.name = config.stored_name;
  return config;
}

}  // namespace tawpipe::training
