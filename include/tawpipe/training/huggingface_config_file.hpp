// A LLaMA's config.json, as `transformers` reads and writes it.
// Not: only the sizes of a supported model (model/huggingface_config.hpp), nor weights.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::training {

/// The text of the config.json of a model. Its torch_dtype is `model.dtype`. A mixture of experts is
/// a Mixtral; with a shared expert, which no published type computes like ours, it has the keys of a
/// Qwen2 with experts and no architecture, for checkpoints only.
/// Source of the keys: LlamaConfig, MixtralConfig, https://github.com/huggingface/transformers
inline std::string huggingface_config_text(const Transformer& model, const DecoderConstants& constants) {
  const bool mixtral = model.is_routed() && model.shared_width == 0;
  nlohmann::ordered_json json;
  if (model.shared_width == 0)
    json["architectures"] = nlohmann::ordered_json::array({mixtral ? "MixtralForCausalLM" : "LlamaForCausalLM"});
  json["model_type"] = mixtral ? "mixtral" : model.is_routed() ? "qwen2_moe" : "llama";
  json["_name_or_path"] = model.name;
  json["hidden_size"] = model.hidden;
  json["num_hidden_layers"] = model.layers;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.kv_heads;
  json["head_dim"] = model.head_size();
  json["intermediate_size"] = model.intermediate;
  if (mixtral) json["num_local_experts"] = model.experts;
  if (model.shared_width > 0) {
    json["num_experts"] = model.experts;
    json["moe_intermediate_size"] = model.intermediate;
    json["shared_expert_intermediate_size"] = model.shared_width;
    json["shared_expert_gate"] = model.shared_gate;
    json["qkv_bias"] = model.qkv_bias;
    json["norm_topk_prob"] = constants.router.sum_to_one;
  }
  if (model.is_routed()) json["num_experts_per_tok"] = model.experts_per_token;
  if (mixtral) {
    json["output_router_logits"] = false;  // no loss that balances experts
    json["sliding_window"] = nullptr;
  }
  json["vocab_size"] = model.vocab;
  json["tie_word_embeddings"] = model.tied;
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["rms_norm_eps"] = constants.norm_epsilon;
  json["rope_theta"] = constants.rope_theta;
  json["rope_scaling"] = nullptr;
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
  const auto refuse = [&](std::string_view why) { throw InputError(concat("config ", quote(path), ": ", why)); };
  if (!config.not_computed.empty()) refuse(join(config.not_computed, "; "));
  const Transformer& model = config.model;
  if (model.bias_parameters() > 0) refuse("biases are not computed (attention_bias, qkv_bias, mlp_bias, or of this model_type)");
  if (model.qk_norm != QkNorm::none) refuse("norms of queries and keys are not computed, which this model_type has");
  if (model.shared_gate) refuse("the gate of a shared expert is not computed, which this model_type has");
  if (model.window > 0) refuse("sliding_window: attention within a window is not computed");
  if (config.constants.scaling.kind != RotaryScaling::Kind::none) refuse("scaled rotary embedding is not computed");
  if (config.constants.rotary_part != 1) refuse("partial_rotary_factor: heads that are turned in part are not computed");
  config.model.dtype = config.stored;
  if (!config.stored_name.empty()) config.model.name = config.stored_name;
  return config;
}

}  // namespace tawpipe::training
