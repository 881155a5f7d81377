// Known models by name, and the family llama-LxH.
// Not: reading a config.json (model/huggingface_config.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::models {

/// LLaMA's rule for the width of SwiGLU: 8/3 of the hidden size, rounded up to a multiple of 256.
/// Source: Touvron et al. 2023, LLaMA, arXiv:2302.13971, section 2.2; the multiple is its published
/// code's default.
constexpr int llama_intermediate(int hidden) { return static_cast<int>((std::int64_t{8} * hidden / 3 + 255) / 256 * 256); }

/// `shape` with missing values (zero or empty) filled in: as many key-value heads as heads,
/// llama_intermediate(), a name.
/// @throws InputError  as Transformer::check.
/// Example: `models::llama({.layers = 48, .hidden = 1024, .heads = 32, .vocab = 32000})`
inline Transformer llama(Transformer shape) {
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  if (shape.intermediate == 0 && shape.hidden > 0 && shape.hidden <= Transformer::max_hidden) {
    shape.intermediate = llama_intermediate(shape.hidden);
  }
  if (shape.name.empty()) shape.name = concat("llama-", shape.layers, "x", shape.hidden);
  shape.check();
  return shape;
}

/// The family `llama-LxH`: L layers of hidden size H, vocabulary 32000, 16-bit floats, tied matrix,
/// 32 heads; heads of 16 where 32 would be narrower than that (H < 512), heads of 128 where they
/// would be wider than 256 (H > 8192).
/// @throws InputError  as Transformer::check, or if H is not a multiple of 16 (H < 512), 32 or 128
/// (H > 8192).
/// Source of the sizes: TawPipe, arXiv:2511.09741, section 5 and its published code.
inline Transformer llama_family(int layers, int hidden) {
  Transformer model{.layers = layers, .hidden = hidden, .vocab = 32000, .tied = true, .dtype = Dtype::f16};
  const int multiple = hidden < 512 ? 16 : hidden <= 8192 ? 32 : 128;
  if (hidden > 0 && hidden <= Transformer::max_hidden && hidden % multiple != 0) {
    const int below = hidden / multiple * multiple;
    throw InputError(concat("model 'llama-", layers, "x", hidden, "': a hidden size of ", hidden, " is not a multiple of ",
                            multiple, below > 0 ? concat("; the nearest are ", below, " and ") : std::string{"; the nearest is "},
                            below + multiple));
  }
  model.heads = std::max(1, hidden < 512 ? hidden / 16 : hidden <= 8192 ? 32 : hidden / 128);
  model.utilization = hidden == 1024 ? 0.34 : hidden == 2048 ? 0.49 : hidden == 4096 ? 0.55 : 0;
  if (model.utilization > 0) {
    model.utilization_source =
        "fraction of 312 TFLOPS at which TawPipe, which hides its communication, reaches its published tokens/GPU/s: hidden 1024 "
        "over sequences 4096 to 16384 (13629, 11738, 8914), hidden 2048 at 16384 (4180); hidden 4096 extrapolated";
  }
  return llama(std::move(model));
}

/// A preset: a model with its own name.
struct ModelPreset {
  std::string_view name;
  std::string_view description;
  std::string_view source;
  Transformer (*make)();
};

namespace detail {

inline Transformer decoder(std::string_view name, Dtype dtype, int layers, int hidden, int heads, int kv_heads, int intermediate,
                           int vocab) {
  return {.name = std::string{name},
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .intermediate = intermediate,
          .vocab = vocab,
          .dtype = dtype};
}

inline Transformer llama_2(std::string_view name, int layers, int hidden, int heads, int kv_heads, int intermediate) {
  return decoder(name, Dtype::f16, layers, hidden, heads, kv_heads, intermediate, 32000);
}
inline Transformer llama_3(std::string_view name, int layers, int hidden, int heads, int intermediate) {
  return decoder(name, Dtype::bf16, layers, hidden, heads, 8, intermediate, 128256);
}
/// Llama 3.2: one matrix for embedding and output.
inline Transformer tied_llama_3(std::string_view name, int layers, int hidden, int heads, int intermediate) {
  Transformer model = llama_3(name, layers, hidden, heads, intermediate);
  model.tied = true;
  return model;
}
inline Transformer qwen_25(std::string_view name, int layers, int hidden, int heads, int kv_heads, int intermediate) {
  return decoder(name, Dtype::bf16, layers, hidden, heads, kv_heads, intermediate, 152064);
}
/// GPT-3 with Megatron-LM's padded vocabulary: no gate, a tied matrix; biases and learned positions
/// are left out (Transformer).
inline Transformer gpt_3(std::string_view name, int layers, int hidden, int heads) {
  Transformer model = decoder(name, Dtype::bf16, layers, hidden, heads, heads, 4 * hidden, 51200);
  model.gated = false;
  model.tied = true;
  return model;
}
/// Qwen3: heads of 128, whatever the hidden size.
inline Transformer qwen_3(std::string_view name, int layers, int hidden, int heads, int intermediate) {
  Transformer model = decoder(name, Dtype::bf16, layers, hidden, heads, 8, intermediate, 151936);
  model.head_dim = 128;
  return model;
}
/// Experts in every layer, `width` wide each.
inline Transformer mixture(std::string_view name, int layers, int hidden, int heads, int kv_heads, int width, int vocab,
                           int experts, int experts_per_token) {
  Transformer model = decoder(name, Dtype::bf16, layers, hidden, heads, kv_heads, width, vocab);
  model.experts = experts;
  model.experts_per_token = experts_per_token;
  return model;
}
/// Qwen3 with experts: 128, 8 a token.
inline Transformer qwen_3_experts(std::string_view name, int layers, int hidden, int heads, int width) {
  Transformer model = mixture(name, layers, hidden, heads, 4, width, 151936, 128, 8);
  model.head_dim = 128;
  return model;
}
/// DeepSeek's and others' latent attention: heads of 128 and 64 turned numbers of queries and keys, 128
/// of values. Prediction of several tokens is left out.
inline Transformer latent(Transformer model, int query_rank, int dense_layers, int dense_width, int shared_width) {
  model.head_dim = 192;
  model.query_rank = query_rank;
  model.key_value_rank = 512;
  model.rope_width = 64;
  model.value_size = 128;
  model.dense_layers = dense_layers;
  model.dense_width = dense_width;
  model.shared_width = shared_width;
  return model;
}
/// DeepSeek's routers, which choose among 8 groups of experts first.
inline Transformer grouped(Transformer model, int groups_per_token) {
  model.expert_groups = 8;
  model.groups_per_token = groups_per_token;
  return model;
}
/// GLM-4.5: heads of 128, one layer or three without experts.
inline Transformer glm_45(std::string_view name, int layers, int hidden, int dense_layers, int dense_width, int width,
                          int experts) {
  Transformer model = mixture(name, layers, hidden, 96, 8, width, 151552, experts, 8);
  model.head_dim = 128;
  model.dense_layers = dense_layers;
  model.dense_width = dense_width;
  model.shared_width = width;
  return model;
}
/// gpt-oss: windows of 128 in every second layer, sinks, biases, bounded functions, and positions scaled by
/// YaRN.
inline Transformer gpt_oss_120b() {
  const Attention full{.heads = 64,
                       .kv_heads = 8,
                       .head_dim = 64,
                       .turned = 64,
                       .scaled = true,
                       .sinks = true,
                       .qkv_bias = true,
                       .output_bias = true};
  Attention window = full;
  window.window = 128;
  const Mixture experts{.experts = 128, .per_token = 4, .width = 2880, .bias = true, .bounded = true, .router_bias = true};
  return Transformer::of({.name = "gpt-oss-120b",
                          .hidden = 2880,
                          .vocab = 201088,
                          .kinds = {{.name = "window, mixture", .sublayers = {window, experts}},
                                    {.name = "full, mixture", .sublayers = {full, experts}}},
                          .pattern = repeated({0, 1}, 36)});
}
/// Grok-1: one matrix for embedding and output; two of its four norms a layer are left out.
inline Transformer grok_1() {
  Transformer model = mixture("grok-1", 64, 6144, 48, 8, 32768, 131072, 8, 2);
  model.head_dim = 128;
  model.tied = true;
  return model;
}

/// Layers and hidden size of "llama-LxH"; nothing if `text` has a different form. A number too
/// large for int is its maximum.
inline std::optional<std::pair<int, int>> parse_family(std::string_view text) {
  constexpr std::string_view prefix = "llama-";
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  const auto cross = std::min(text.find('x'), text.size());
  const auto number = [](std::string_view digits) {
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return -1;
    return to_number<int>(digits).value_or(std::numeric_limits<int>::max());
  };
  const int layers = number(text.substr(0, cross));
  const int hidden = cross == text.size() ? -1 : number(text.substr(cross + 1));
  return layers < 0 || hidden < 0 ? std::nullopt : std::optional{std::pair{layers, hidden}};
}

inline constexpr std::string_view family_source = "TawPipe, arXiv:2511.09741, section 5, and its published code";
inline constexpr std::string_view llama_2_source =
    "Touvron et al. 2023, Llama 2, arXiv:2307.09288, and its published config.json";
inline constexpr std::string_view llama_3_source =
    "Grattafiori et al. 2024, Llama 3, arXiv:2407.21783, table 3, and its published config.json";
inline constexpr std::string_view llama_32_source = "Meta, Llama 3.2, its published config.json";
inline constexpr std::string_view gpt_3_source = "Brown et al. 2020, GPT-3, arXiv:2005.14165, table 2.1";
inline constexpr std::string_view mistral_source = "Jiang et al. 2023, Mistral 7B, arXiv:2310.06825, table 1";
inline constexpr std::string_view qwen_25_source = "Qwen Team 2024, Qwen2.5, arXiv:2412.15115, and its published config.json";
inline constexpr std::string_view qwen_3_source = "Qwen Team 2025, Qwen3, arXiv:2505.09388, and its published config.json";
inline constexpr std::string_view mixtral_source = "Jiang et al. 2024, Mixtral, arXiv:2401.04088, and its published config.json";
inline constexpr std::string_view deepseek_v2_source =
    "DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, and its published config.json";
inline constexpr std::string_view deepseek_v3_source =
    "DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437, and its published config.json";
inline constexpr std::string_view kimi_source = "Kimi Team 2025, Kimi K2, arXiv:2507.20534, and its published config.json";
inline constexpr std::string_view glm_source = "GLM-4.5 Team 2025, arXiv:2508.06471, and its published config.json";
inline constexpr std::string_view gpt_oss_source = "OpenAI 2025, gpt-oss, arXiv:2508.10925, and its published config.json";
inline constexpr std::string_view mixtral_22b_source = "Mistral AI, Mixtral 8x22B v0.1, its published config.json";
inline constexpr std::string_view olmoe_source =
    "Muennighoff et al. 2024, OLMoE, arXiv:2409.02060, and its published config.json";
inline constexpr std::string_view grok_source = "xAI, Grok-1, its published code, github.com/xai-org/grok-1";

inline constexpr ModelPreset presets[] = {
    {"llama-48x1024", "0.65 billion parameters, 32 heads, tied", family_source, [] { return llama_family(48, 1024); }},
    {"llama-48x2048", "2.5 billion parameters, 32 heads, tied", family_source, [] { return llama_family(48, 2048); }},
    {"llama-48x4096", "9.8 billion parameters, 32 heads, tied", family_source, [] { return llama_family(48, 4096); }},
    {"llama-2-7b", "6.7 billion parameters", llama_2_source, [] { return llama_2("llama-2-7b", 32, 4096, 32, 32, 11008); }},
    {"llama-2-13b", "13 billion parameters", llama_2_source, [] { return llama_2("llama-2-13b", 40, 5120, 40, 40, 13824); }},
    {"llama-2-70b", "69 billion parameters, 8 key-value heads", llama_2_source,
     [] { return llama_2("llama-2-70b", 80, 8192, 64, 8, 28672); }},
    {"llama-3-8b", "8.0 billion parameters, 8 key-value heads", llama_3_source,
     [] { return llama_3("llama-3-8b", 32, 4096, 32, 14336); }},
    {"llama-3-70b", "71 billion parameters, 8 key-value heads", llama_3_source,
     [] { return llama_3("llama-3-70b", 80, 8192, 64, 28672); }},
    {"llama-3-405b", "406 billion parameters, 8 key-value heads", llama_3_source,
     [] { return llama_3("llama-3-405b", 126, 16384, 128, 53248); }},
    {"llama-3.2-1b", "1.2 billion parameters, 8 key-value heads, tied", llama_32_source,
     [] { return tied_llama_3("llama-3.2-1b", 16, 2048, 32, 8192); }},
    {"llama-3.2-3b", "3.2 billion parameters, 8 key-value heads, tied", llama_32_source,
     [] { return tied_llama_3("llama-3.2-3b", 28, 3072, 24, 8192); }},
    {"gpt-3-175b", "175 billion parameters, no gate, tied", gpt_3_source, [] { return gpt_3("gpt-3-175b", 96, 12288, 96); }},
    {"mistral-7b", "7.2 billion parameters, 8 key-value heads", mistral_source,
     [] { return decoder("mistral-7b", Dtype::bf16, 32, 4096, 32, 8, 14336, 32000); }},
    {"qwen2.5-7b", "7.6 billion parameters, 4 key-value heads", qwen_25_source,
     [] { return qwen_25("qwen2.5-7b", 28, 3584, 28, 4, 18944); }},
    {"qwen2.5-14b", "15 billion parameters, 8 key-value heads", qwen_25_source,
     [] { return qwen_25("qwen2.5-14b", 48, 5120, 40, 8, 13824); }},
    {"qwen2.5-32b", "33 billion parameters, 8 key-value heads", qwen_25_source,
     [] { return qwen_25("qwen2.5-32b", 64, 5120, 40, 8, 27648); }},
    {"qwen2.5-72b", "73 billion parameters, 8 key-value heads", qwen_25_source,
     [] { return qwen_25("qwen2.5-72b", 80, 8192, 64, 8, 29568); }},
    {"qwen3-8b", "8.2 billion parameters, 8 key-value heads", qwen_3_source,
     [] { return qwen_3("qwen3-8b", 36, 4096, 32, 12288); }},
    {"qwen3-14b", "15 billion parameters, 8 key-value heads", qwen_3_source,
     [] { return qwen_3("qwen3-14b", 40, 5120, 40, 17408); }},
    {"qwen3-32b", "33 billion parameters, 8 key-value heads, heads of 128", qwen_3_source,
     [] { return qwen_3("qwen3-32b", 64, 5120, 64, 25600); }},
    {"mixtral-8x7b", "47 billion parameters, 13 active, 8 experts, 2 a token", mixtral_source,
     [] { return mixture("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 8, 2); }},
    {"mixtral-8x22b", "141 billion parameters, 39 active, 8 experts, 2 a token", mixtral_22b_source,
     [] { return mixture("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32000, 8, 2); }},
    {"qwen3-30b-a3b", "31 billion parameters, 3.3 active, 128 experts, 8 a token", qwen_3_source,
     [] { return qwen_3_experts("qwen3-30b-a3b", 48, 2048, 32, 768); }},
    {"qwen3-235b-a22b", "235 billion parameters, 22 active, 128 experts, 8 a token", qwen_3_source,
     [] { return qwen_3_experts("qwen3-235b-a22b", 94, 4096, 64, 1536); }},
    {"olmoe-1b-7b", "6.9 billion parameters, 1.3 active, 64 experts, 8 a token", olmoe_source,
     [] { return mixture("olmoe-1b-7b", 16, 2048, 16, 16, 1024, 50304, 64, 8); }},
    {"deepseek-v2-lite", "16 billion parameters, 2.7 active, latent attention, 64 experts, 6 a token, one shared by all",
     deepseek_v2_source,
     [] { return latent(mixture("deepseek-v2-lite", 27, 2048, 16, 16, 1408, 102400, 64, 6), 0, 1, 10944, 2816); }},
    {"deepseek-v2", "236 billion parameters, 21 active, latent attention, 160 experts, 6 a token, one shared by all",
     deepseek_v2_source,
     [] { return grouped(latent(mixture("deepseek-v2", 60, 5120, 128, 128, 1536, 102400, 160, 6), 1536, 1, 12288, 3072), 3); }},
    {"deepseek-v3", "671 billion parameters, 38 active, latent attention, 256 experts, 8 a token, one shared by all",
     deepseek_v3_source,
     [] { return grouped(latent(mixture("deepseek-v3", 61, 7168, 128, 128, 2048, 129280, 256, 8), 1536, 3, 18432, 2048), 4); }},
    {"kimi-k2", "1.0 trillion parameters, 33 active, latent attention, 384 experts, 8 a token, one shared by all", kimi_source,
     [] { return latent(mixture("kimi-k2", 61, 7168, 64, 64, 2048, 163840, 384, 8), 1536, 1, 18432, 2048); }},
    {"glm-4.5-air", "107 billion parameters, 12 active, 128 experts, 8 a token, one shared by all", glm_source,
     [] { return glm_45("glm-4.5-air", 46, 4096, 1, 10944, 1408, 128); }},
    {"glm-4.5", "353 billion parameters, 32 active, 160 experts, 8 a token, one shared by all", glm_source,
     [] { return glm_45("glm-4.5", 92, 5120, 3, 12288, 1536, 160); }},
    {"gpt-oss-120b", "117 billion parameters, 5.7 active, 128 experts, 4 a token", gpt_oss_source, [] { return gpt_oss_120b(); }},
    {"grok-1", "316 billion parameters, 84 active, 8 experts, 2 a token, tied", grok_source, [] { return grok_1(); }},
};

/// Llama 3.1 and 3.3 have the sizes of Llama 3.
inline constexpr std::string_view same_as_llama_3[] = {"llama-3.1-", "llama-3.3-"};

/// The preset of that name, or a member of the family; nothing if `text` is neither.
/// @throws InputError  if it is a member with impossible sizes.
inline std::optional<Transformer> find(std::string_view text) {
  for (const auto& preset : presets) {
    if (preset.name == text) return preset.make();
  }
  for (const std::string_view prefix : same_as_llama_3) {
    if (text.starts_with(prefix)) return find(concat("llama-3-", text.substr(prefix.size())));
  }
  if (const auto sizes = parse_family(text)) return llama_family(sizes->first, sizes->second);
  return std::nullopt;
}

/// The message for a name that is neither. @param else_known  other valid inputs
inline std::string unknown_model(std::string_view text, std::string_view else_known) {
  std::vector<std::string> known;
  for (const auto& preset : presets) known.emplace_back(preset.name);
  return concat(unknown_name("model", text, known), ", ", else_known);
}

}  // namespace detail

/// All presets, in the order of docs/models.md.
constexpr std::span<const ModelPreset> all() { return detail::presets; }

/// A preset, or any `llama-LxH` such as "llama-24x512".
/// @throws InputError  if `text` is neither (naming the nearest preset), or the sizes of a
/// llama-LxH are impossible.
inline Transformer named(std::string_view text) {
  if (auto model = detail::find(text)) return *std::move(model);
  throw InputError(detail::unknown_model(text, "or any llama-LxH such as llama-24x512"));
}

}  // namespace tawpipe::models
