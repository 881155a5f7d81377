// A LLaMA's config.json, as `transformers` reads and writes it.
// Not: only the sizes of a supported model (model/huggingface_config.hpp), nor weights.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/training_state.hpp"

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

/// The values of a config.json that a computation needs.
struct DecoderConfig {
  Transformer model;
  DecoderConstants constants;
  std::string type = {};  ///< model_type, "mixtral"; empty where it is not given
};

/// Reads the config.json of weights for computation: everything must match what the decoder
/// computes.
/// @throws InputError  as read_huggingface_config(); or if the model has biases, scaled rotary
/// embedding or a different activation.
inline DecoderConfig read_decoder_config(const std::string& path) {
  DecoderConfig config{.model = read_huggingface_config(path), .constants = {}};
  const JsonDocument document = read_json_file(path, "config", 1, JsonLimits{.depth = 32});
  const JsonValue json = document.root();
  for (const char* key : {"attention_bias", "mlp_bias", "use_qkv_bias"}) {
    const auto bias = json.find_given(key);
    if (bias && bias->boolean()) bias->fail("biases are not computed");
  }
  if (const auto scaling = json.find_given("rope_scaling")) scaling->fail("scaled rotary embedding is not computed");
  const auto activation = json.find_given("hidden_act");
  if (activation && activation->text() != "silu") activation->expected("'silu'");
  DecoderConstants& constants = config.constants;
  if (const auto type = json.find_given("model_type")) config.type = type->text();
  constants = {.rope_theta = 10000, .norm_epsilon = 1e-6, .positions = 2048};  // as in LlamaConfig
  if (config.type == "mixtral")
    constants = {.rope_theta = 1e6, .norm_epsilon = 1e-5, .positions = 131072};  // as in MixtralConfig
  if (const auto theta = json.find_given("rope_theta")) constants.rope_theta = theta->positive();
  if (const auto epsilon = json.find_given("rms_norm_eps")) constants.norm_epsilon = epsilon->positive_or_zero();
  if (const auto positions = json.find_given("max_position_embeddings")) constants.positions = positions->whole<std::int32_t>();
  if (const auto name = json.find_given("_name_or_path")) config.model.name = name->label();
  return config;
}

}  // namespace tawpipe::training
