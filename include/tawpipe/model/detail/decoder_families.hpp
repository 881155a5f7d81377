// The decoders that a config.json may describe, by model_type.
// Not: what a field of them means (model/detail/decoder_types.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/detail/dense_families.hpp"

namespace tawpipe::inline v0::detail {

// What several families read.
inline constexpr std::uint32_t deepseek_reads =
    experts | expert_width | shared_experts | dense_layers | layers_in_turn | expert_groups;
inline constexpr std::uint32_t qwen_moe_reads = experts | expert_width | layers_in_turn;
inline constexpr std::string_view sigmoids = "chooses by sigmoids";

inline constexpr DecoderType other_types[] = {
    // ---- mixtures of experts ----
    {.names = "mixtral", .reads = experts | window, .epsilon = 1e-5, .positions = 131072, .theta = 1e6, .kv_heads = 8},
    {.names = "phimoe",
     .reads = attention_bias | experts | window,
     .epsilon = 1e-5,
     .positions = 131072,
     .theta = 1e6,
     .kv_heads = 8,
     .norm_weights = NormWeights::scale_and_shift,
     .router = "chooses by sparse mixing"},
    {.names = "granitemoe", .reads = attention_bias | experts | scaled_states},
    {.names = "granitemoeshared", .reads = attention_bias | experts | shared_experts | scaled_states},
    {.names = "qwen2_moe",
     .reads = qwen_moe_reads | shared_experts | qkv_bias | window | window_switch,
     .positions = 32768,
     .kv_heads = 16,
     .window = 4096,
     .layers = "sf",
     .qkv_bias = true,
     .shared_gate = true,
     .sum_to_one = false},
    {.names = "qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text qwen3_omni_moe_thinker_text",
     .reads = qwen_moe_reads | attention_bias | window | window_switch,
     .positions = 32768,
     .kv_heads = 4,
     .window = 4096,
     .layers = "s",
     .qk_norm = QkNorm::head,
     .sum_to_one = false,
     .sizes = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24,
                  "num_attention_heads": 32, "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
                  "moe_intermediate_size": 768})"},
    {.names = "olmoe",
     .reads = attention_bias | experts,
     .epsilon = 1e-5,
     .positions = 4096,
     .qk_norm = QkNorm::width,
     .sum_to_one = false,
     .balance = 0.01},
    {.names = "minimax_m2",
     .reads = experts | window | qk_norms,
     .positions = 196608,
     .theta = 5e6,
     .head_dim = 128,
     .kv_heads = 8,
     .qk_norm = QkNorm::width,
     .router = sigmoids},
    {.names = "hunyuan_v1_moe hunyuan",
     .reads = attention_bias | qk_norms | experts | expert_width | shared_experts,
     .epsilon = 1e-5,
     .qk_norm = QkNorm::head},
    {.names = "ernie4_5_moe",
     .reads = use_bias | experts | expert_width | shared_experts | dense_layers | layers_in_turn,
     .tied = true,
     .epsilon = 1e-5,
     .positions = 131072,
     .theta = 5e5,
     .kv_heads = 4},
    {.names = "dots1",
     .reads = deepseek_reads | attention_bias | window | window_switch,
     .kv_heads = 32,
     .qk_norm = QkNorm::head,
     .sum_to_one = false,
     .sigmoid = true},
    {.names = "glm4_moe glm4v_moe_text",
     .reads = deepseek_reads | input_bias | qk_norms,
     .epsilon = 1e-5,
     .positions = 131072,
     .rotary_part = 0.5,
     .kv_heads = 8,
     .sigmoid = true},
    {.names = "solar_open",
     .reads = deepseek_reads | input_bias,
     .epsilon = 1e-5,
     .positions = 131072,
     .head_dim = 128,
     .kv_heads = 8,
     .sigmoid = true},
    {.names = "bailing_moe bailing_moe_v2",
     .reads = deepseek_reads | qkv_bias | use_bias | qk_norms,
     .positions = 16384,
     .kv_heads = 4,
     .router = sigmoids},
    {.names = "deepseek", .reads = deepseek_reads | attention_bias, .positions = 4096, .sum_to_one = false},
    {.names = "llama4_text llama4",
     .reads = attention_bias | experts | layers_in_turn | no_positions | scaled_states | qk_norms,
     .epsilon = 1e-5,
     .positions = 131072,
     .theta = 5e5,
     .head_dim = 128,
     .kv_heads = 8,
     .layers = "cccf",
     .sum_to_one = false,
     .router = sigmoids,
     .sizes = R"({"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
                  "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "num_experts": 16,
                  "num_experts_per_tok": 1, "attention_chunk_size": 8192})"},

    {.names = "gpt_oss",
     .reads = attention_bias | experts | window,
     .epsilon = 1e-5,
     .positions = 131072,
     .theta = 1.5e5,
     .head_dim = 64,
     .kv_heads = 8,
     .window = 128,
     .layers = "sf",
     .sinks = true,
     .qkv_bias = true,
     .output_bias = true,
     .expert_bias = true,
     .router = "is not computed with biases"},
    {.names = "afmoe",
     .reads = experts | expert_width | shared_experts | dense_layers | window | scaled_states,
     .epsilon = 1e-5,
     .positions = 16384,
     .head_dim = 128,
     .window = 1024,
     .layers = "sssf",
     .output_gate = true,
     .qk_norm = QkNorm::head,
     .norms = NormPlace::both,
     .router = sigmoids},
    {.names = "mimo_v2_flash",
     .reads = deepseek_reads | attention_bias | window | scaled_states | value_size,
     .positions = 262144,
     .theta = 5e6,
     .head_dim = 192,
     .kv_heads = 4,
     .window = 128,
     .layers = "fsssss",
     .router = sigmoids},
    {.names = "step3p7 step3p5",
     .reads = deepseek_reads | window | qk_norms,
     .epsilon = 1e-5,
     .positions = 65536,
     .kv_heads = 8,
     .window = 512,
     .layers = "fsss",
     .router = sigmoids},

    // ---- latent attention ----
    {.names = "deepseek_v2",
     .reads = deepseek_reads | latent,
     .sum_to_one = false,
     .router = "scales the weights of a softmax, and chooses groups by it"},
    {.names = "deepseek_v3 kimi_k2", .reads = deepseek_reads | latent, .positions = 4096, .sigmoid = true, .router_scale = 2.5},
    {.names = "glm4_moe_lite",
     .reads = deepseek_reads | latent,
     .epsilon = 1e-5,
     .positions = 202752,
     .sigmoid = true,
     .router_scale = 1.8},
    {.names = "deepseek_v32", .reads = deepseek_reads | latent | indexed, .positions = 4096, .router = sigmoids},
    {.names = "glm_moe_dsa",
     .reads = deepseek_reads | latent | indexed,
     .epsilon = 1e-5,
     .positions = 202752,
     .theta = 1e6,
     .router = sigmoids},
    {.names = "minicpm3", .reads = latent | scaled_states, .tied = true, .positions = 32768},
    {.names = "youtu youtu_llm", .reads = latent, .tied = true, .positions = 131072},

    // ---- recurrent layers among those with attention ----
    {.names = "qwen3_next",
     .reads = qwen_moe_reads | shared_experts | attention_bias | delta_nets,
     .positions = 32768,
     .rotary_part = 0.25,
     .head_dim = 256,
     .kv_heads = 2,
     .layers = "lllf",
     .output_gate = true,
     .qk_norm = QkNorm::head,
     .shared_gate = true},
    {.names = "qwen3_5_moe_text",
     .reads = qwen_moe_reads | shared_experts | attention_bias | delta_nets,
     .positions = 262144,
     .rotary_part = 0.25,
     .head_dim = 256,
     .kv_heads = 2,
     .layers = "lllf",
     .output_gate = true,
     .qk_norm = QkNorm::head,
     .shared_gate = true,
     .sizes = R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
                  "num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
                  "shared_expert_intermediate_size": 512, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                  "linear_key_head_dim": 128, "linear_value_head_dim": 128})"},
    {.names = "qwen3_5_text",
     .reads = attention_bias | delta_nets,
     .positions = 262144,
     .rotary_part = 0.25,
     .head_dim = 256,
     .kv_heads = 4,
     .layers = "lllf",
     .output_gate = true,
     .qk_norm = QkNorm::head,
     .sizes = R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
                  "num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_key_heads": 16,
                  "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128})"},
    {.names = "nemotron_h",
     .reads = attention_bias | mlp_bias | experts | expert_width | shared_experts | expert_groups | mamba,
     .gated = false,
     .epsilon = 1e-5,
     .positions = 4096,
     .kv_heads = 8,
     .one_part = true,
     .router = sigmoids},
    {.names = "granitemoehybrid", .reads = attention_bias | experts | shared_experts | mamba | scaled_states, .layers = "m"},
    {.names = "bamba",
     .reads = attention_bias | mlp_bias | mamba,
     .epsilon = 1e-5,
     .positions = 262144,
     .rotary_part = 0.5,
     .kv_heads = 8,
     .layers = "m"},
};

/// All of them, in the order of docs/models.md.
inline constexpr auto decoder_types = [] {
  std::array<DecoderType, std::size(dense_types) + std::size(other_types)> all{};
  std::copy(std::begin(other_types), std::end(other_types),
            std::copy(std::begin(dense_types), std::end(dense_types), all.begin()));
  return all;
}();

/// @return null: not one that is read
constexpr const DecoderType* find_decoder_type(std::string_view name) {
  for (const DecoderType& type : decoder_types) {
    if (has_word(type.names, name)) return &type;
  }
  return nullptr;
}

/// Why a type is not read, as the end of a sentence; empty: it is not known what it is.
constexpr std::string_view why_refused(std::string_view name) {
  for (const RefusedType& refused : refused_types) {
    if (has_word(refused.names, name)) return refused.what;
  }
  return {};
}

}  // namespace tawpipe::detail
