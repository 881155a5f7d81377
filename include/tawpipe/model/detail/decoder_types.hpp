// The decoders that a config.json may describe, by model_type, and what transformers takes for keys
// that a file leaves out.
// Not: the keys (model/detail/config_keys.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/model/layer_code.hpp"

namespace tawpipe::inline v0::detail {

/// One model_type. Source: Hugging Face transformers, models/*/configuration_*.py, and of biases,
/// norms and routers modeling_*.py; kimi_k2: the code published with its weights.
struct DecoderType {
  std::string_view name;
  bool experts = false;
  bool latent = false;            ///< latent attention
  bool own_width = false;         ///< experts are moe_intermediate_size wide, not intermediate_size
  double epsilon = 1e-6;          ///< rms_norm_eps
  std::int32_t positions = 2048;  ///< max_position_embeddings
  double theta = 1e4;             ///< rope_theta
  double rotary_part = 1;         ///< partial_rotary_factor
  int head_dim = 0;               ///< 0: hidden_size / num_attention_heads
  int window = 0;                 ///< sliding_window
  bool qkv_bias = false;
  QkNorm qk_norm = QkNorm::none;
  bool shared_gate = false;
  bool sum_to_one = true;        ///< norm_topk_prob
  double balance = 0.001;        ///< router_aux_loss_coef
  std::string_view router = {};  ///< why its router is not computed
};

inline constexpr DecoderType decoder_types[] = {
    {.name = "llama"},
    {.name = "mistral", .positions = 131072, .window = 4096},
    {.name = "qwen2", .positions = 32768, .window = 4096, .qkv_bias = true},
    {.name = "qwen3", .positions = 32768, .head_dim = 128, .window = 4096, .qk_norm = QkNorm::head},
    {.name = "phi3", .epsilon = 1e-5, .positions = 4096},
    {.name = "mixtral", .experts = true, .epsilon = 1e-5, .positions = 131072, .theta = 1e6},
    {.name = "qwen2_moe",
     .experts = true,
     .own_width = true,
     .positions = 32768,
     .qkv_bias = true,
     .shared_gate = true,
     .sum_to_one = false},
    {.name = "qwen3_moe", .experts = true, .own_width = true, .positions = 32768, .qk_norm = QkNorm::head, .sum_to_one = false},
    {.name = "olmoe",
     .experts = true,
     .epsilon = 1e-5,
     .positions = 4096,
     .qk_norm = QkNorm::width,
     .sum_to_one = false,
     .balance = 0.01},
    {.name = "minimax_m2",
     .experts = true,
     .positions = 196608,
     .theta = 5e6,
     .head_dim = 128,
     .qk_norm = QkNorm::width,
     .router = "chooses by sigmoids"},
    {.name = "deepseek_v2", .experts = true, .latent = true, .own_width = true, .sum_to_one = false},
    {.name = "deepseek_v3",
     .experts = true,
     .latent = true,
     .own_width = true,
     .positions = 4096,
     .router = "chooses by sigmoids"},
    {.name = "kimi_k2", .experts = true, .latent = true, .own_width = true, .positions = 4096, .router = "chooses by sigmoids"},
    {.name = "glm4_moe",
     .experts = true,
     .own_width = true,
     .epsilon = 1e-5,
     .positions = 131072,
     .rotary_part = 0.5,
     .router = "chooses by sigmoids"},
};

/// Types of which it is known why they are not read.
struct RefusedType {
  std::string_view names;  ///< separated by spaces
  std::string_view why;
};
inline constexpr RefusedType refused_types[] = {
    {"t5 mt5 umt5 longt5 bart mbart pegasus marian whisper m2m_100 nllb-moe fsmt led", "an encoder and a decoder"},
    {"bert roberta distilbert electra deberta-v2 modernbert xlm-roberta albert", "an encoder, which predicts no next token"},
    {"gpt2 gpt_neo gpt_neox gptj opt bloom falcon mpt gpt_bigcode starcoder2 phi",
     "layers with other norms, biases and positions; a GPT can be given by Megatron-LM's flags"},
    {"gpt_oss", "windows in every second layer, sinks of attention and biases of experts"},
    {"gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text cohere cohere2",
     "layers with other norms than two, or windows in some of them"},
    {"llama4 llama4_text", "layers with and without experts that take turns, or attention in chunks in some of them"},
    {"mamba mamba2 jamba bamba nemotron_h falcon_h1 zamba2 granitemoehybrid qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe "
     "qwen3_5_moe_text kimi_linear",
     "layers without attention among the others"},
    {"olmo2 olmo3", "norms after attention and MLP in place of before them"},
};

/// Whether a list of words separated by spaces has one.
constexpr bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

/// @return null: not one that is read
constexpr const DecoderType* find_decoder_type(std::string_view name) {
  for (const DecoderType& type : decoder_types) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

/// Why a type is not read, as the end of a sentence.
inline std::string why_refused(std::string_view name) {
  for (const RefusedType& refused : refused_types) {
    if (has_word(refused.names, name)) return concat("is not modelled: it has ", refused.why);
  }
  std::string known;
  for (const DecoderType& type : decoder_types) known += concat(known.empty() ? "" : ", ", type.name);
  return concat("is not modelled; known: ", known);
}

}  // namespace tawpipe::detail
