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

/// The text of the config.json of a model. Its torch_dtype is `model.dtype`.
/// Source of the keys: LlamaConfig, https://github.com/huggingface/transformers
inline std::string huggingface_config_text(const Transformer& model, const DecoderConstants& constants) {
  const nlohmann::ordered_json json = {
      {"architectures", nlohmann::ordered_json::array({"LlamaForCausalLM"})},
      {"model_type", "llama"},
      {"_name_or_path", model.name},
      {"hidden_size", model.hidden},
      {"num_hidden_layers", model.layers},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.kv_heads},
      {"head_dim", model.head_size()},
      {"intermediate_size", model.intermediate},
      {"vocab_size", model.vocab},
      {"tie_word_embeddings", model.tied},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"attention_dropout", 0.0},
      {"rms_norm_eps", constants.norm_epsilon},
      {"rope_theta", constants.rope_theta},
      {"rope_scaling", nullptr},
      {"max_position_embeddings", constants.positions},
      {"initializer_range", 0.02},
      {"use_cache", true},
      {"torch_dtype", name(model.dtype)},
  };
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// The values of a config.json that a computation needs.
struct DecoderConfig {
  Transformer model;
  DecoderConstants constants;
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
  constants = {.rope_theta = 10000, .norm_epsilon = 1e-6, .positions = 2048};  // as in LlamaConfig
  if (const auto theta = json.find_given("rope_theta")) constants.rope_theta = theta->positive();
  if (const auto epsilon = json.find_given("rms_norm_eps")) constants.norm_epsilon = epsilon->positive_or_zero();
  if (const auto positions = json.find_given("max_position_embeddings")) constants.positions = positions->whole<std::int32_t>();
  if (const auto name = json.find_given("_name_or_path")) config.model.name = name->label();
  return config;
}

}  // namespace tawpipe::training
