// A LLaMA's config.json, as `transformers` reads and writes it.
// Not: the sizes alone, of any supported model (model/huggingface_config.hpp), nor weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/detail/json_object.hpp"
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

/// What a config.json says that a computation needs.
struct DecoderConfig {
  Transformer model;
  DecoderConstants constants;
};

/// Reads the config.json of weights that are going to be computed with: everything must be what the decoder computes.
/// @throws InputError  as read_huggingface_config(); or if the model has biases, scaled rotary embedding or another activation.
inline DecoderConfig read_decoder_config(const std::string& path) {
  DecoderConfig config{.model = read_huggingface_config(path), .constants = {}};
  const auto json = detail::JsonObject::read(path, 1'000'000);
  for (const char* key : {"attention_bias", "mlp_bias", "use_qkv_bias"}) {
    if (json.has(key) && json.boolean(key)) json.fail(key, "is true; biases are not computed");
  }
  if (json.has("rope_scaling")) json.fail("rope_scaling", "is given; scaled rotary embedding is not computed");
  if (json.has("hidden_act") && json.text("hidden_act") != "silu") json.fail("hidden_act", "must be 'silu'");
  // What LlamaConfig takes where a key is missing.
  config.constants = {
      .rope_theta = json.has("rope_theta") ? json.number("rope_theta") : 10000,
      .norm_epsilon = json.has("rms_norm_eps") ? json.number("rms_norm_eps") : 1e-6,
      .positions = json.has("max_position_embeddings") ? json.count<std::int32_t>("max_position_embeddings") : 2048};
  if (!(config.constants.rope_theta > 0)) json.fail("rope_theta", "must be above 0");
  if (!(config.constants.norm_epsilon >= 0)) json.fail("rms_norm_eps", "must be at least 0");
  if (json.has("_name_or_path")) config.model.name = json.text("_name_or_path");
  return config;
}

}  // namespace tawpipe::training
