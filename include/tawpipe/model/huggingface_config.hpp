// A Transformer from the config.json that published models come with, or from any text that names a
// model.
// Not: weights or tokenizers. The only header of this folder that needs nlohmann/json.
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// The model that the text of a config.json describes.
///
/// Read: hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, vocab_size;
/// num_key_value_heads (default: as many as heads), head_dim (default: hidden_size / heads),
/// tie_word_embeddings (default: false), torch_dtype or dtype (default: bfloat16). model_type must
/// be llama, mistral, qwen2 or qwen3 where given, or of experts in every layer but the first:
///   mixtral    num_local_experts, num_experts_per_tok; intermediate_size is an expert's width
///   olmoe      num_experts, num_experts_per_tok; the same
///   qwen3_moe  num_experts, num_experts_per_tok, moe_intermediate_size, an expert's width in place
///              of intermediate_size; decoder_sparse_step 1 and no mlp_only_layers where given
///   qwen2_moe  the same, and shared_expert_intermediate_size
///   glm4_moe   n_routed_experts, num_experts_per_tok, moe_intermediate_size, first_k_dense_replace:
///              so many first layers without experts, of intermediate_size; n_shared_experts, each
///              of moe_intermediate_size (default: none); moe_layer_freq 1 where given
///   deepseek_v2, deepseek_v3, kimi_k2  the same with latent attention: kv_lora_rank,
///              qk_nope_head_dim, qk_rope_head_dim, v_head_dim, q_lora_rank (default: none); head_dim
///              is not read
/// Ignored: biases (a Qwen2, a GLM-4.5 have some) and norms of queries and keys (a Qwen3, an OLMoE),
/// less than 0.01 % of their parameters, the gate of a shared expert (a Qwen2), how experts are
/// chosen and the weights of a token's are normed, prediction of several tokens
/// (num_nextn_predict_layers), a sliding window (attention counts as full), quantization.
/// Source: Hugging Face transformers, models/*/configuration_*.py.
/// @param source  the text's name in messages, e.g. its path
/// @param name    the model's name
/// @throws InputError  if the text is not JSON (naming line and column), a key is missing or of a
/// wrong type, the model is of another type, layers with and without experts take turns, or
/// Transformer::check refuses its sizes.
TAWPIPE_INLINE Transformer parse_huggingface_config(std::string_view text, std::string_view source, std::string_view name);

/// Reads a config.json, or the one inside a folder. The model takes the folder's name.
/// @throws InputError  if there is no such file, it is larger than 1 MiB, or as
/// parse_huggingface_config().
TAWPIPE_INLINE Transformer read_huggingface_config(const std::string& path);

/// The model that a user means: a preset, any llama-LxH, or the path of a config.json or of a
/// folder with one (in that order).
/// @throws InputError  as models::named() and read_huggingface_config().
TAWPIPE_INLINE Transformer resolve_model(std::string_view text);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/models.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// External text made fit for a one-line message or a model's name: at most 60 bytes, anything but
/// printable ASCII as '?'.
inline std::string abbreviated(std::string_view text) {
  std::string out{text.substr(0, 60)};
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > 60 ? out + "..." : out;
}

/// What a model_type calls its number of experts, the width of each and that of the shared one.
struct ExpertKeys {
  std::string_view type;
  std::string_view experts;
  std::string_view width = "intermediate_size";
  std::string_view shared = {};  ///< none: there is no shared expert
  bool counts_shared = false;    ///< `shared` is a number of experts, and layers before all others have none
  bool latent = false;           ///< latent attention
};
inline constexpr ExpertKeys expert_keys[] = {
    {"mixtral", "num_local_experts"},
    {"qwen2_moe", "num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"},
    {"qwen3_moe", "num_experts", "moe_intermediate_size"},
    {"olmoe", "num_experts"},
    {"deepseek_v2", "n_routed_experts", "moe_intermediate_size", "n_shared_experts", true, true},
    {"deepseek_v3", "n_routed_experts", "moe_intermediate_size", "n_shared_experts", true, true},
    {"kimi_k2", "n_routed_experts", "moe_intermediate_size", "n_shared_experts", true, true},
    {"glm4_moe", "n_routed_experts", "moe_intermediate_size", "n_shared_experts", true},
};
inline constexpr std::string_view dense_types[] = {"llama", "mistral", "qwen2", "qwen3"};

/// Refuses a step from layer to layer with experts other than 1.
inline void check_step(JsonValue config, std::string_view key) {
  const auto step = config.find_given(key);
  if (step && !(step->is_number() && step->number() == 1)) {
    step->fail("layers with and without experts that take turns are not modelled; it must be 1, for experts in every layer");
  }
}

/// Rejects models that `Transformer` cannot describe. @return the keys of its experts; null: dense
inline const ExpertKeys* check_modelled(JsonValue config) {
  const auto type = config.find_given("model_type");
  for (const ExpertKeys& keys : expert_keys) {
    if (!type || !type->is_text() || type->text() != keys.type) continue;
    check_step(config, "decoder_sparse_step");
    check_step(config, "moe_layer_freq");
    const auto dense = config.find_given("mlp_only_layers");
    if (dense && dense->size() > 0) {
      dense->fail("single layers without experts are not modelled; it must be empty, for experts in every layer");
    }
    return &keys;
  }
  check_step(config, "interleave_moe_layer_step");
  for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size"}) {
    const auto value = config.find_given(key);
    if (!value || (value->is_number() && (value->number() == 0 || value->number() == 1))) continue;
    value->fail(
        "describes a mixture of experts, which is modelled where model_type is mixtral, qwen2_moe, qwen3_moe, olmoe, "
        "deepseek_v2, deepseek_v3, kimi_k2 or glm4_moe; give one of these or a dense decoder");
  }
  if (type && std::find(std::begin(dense_types), std::end(dense_types), type->text()) == std::end(dense_types)) {
    type->fail(concat(quote(abbreviated(type->text())),
                      " is not modelled; known: llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, olmoe, "
                      "deepseek_v2, deepseek_v3, kimi_k2, glm4_moe"));
  }
  return nullptr;
}

/// The experts of a config, and the first layers without.
inline void read_experts(JsonValue config, const ExpertKeys& keys, Transformer& model) {
  model.experts = config.at(keys.experts).whole<int>(1);
  model.experts_per_token = config.at("num_experts_per_tok").whole<int>(1);
  if (!keys.counts_shared) {
    if (!keys.shared.empty()) model.shared_width = config.at(keys.shared).whole<int>();
    return;
  }
  if (const auto shared = config.find_given(keys.shared)) {
    const std::int64_t width = shared->whole<std::int64_t>(0, Transformer::max_experts) * model.intermediate;
    if (width > Transformer::max_expert_width) {
      shared->fail(concat("shared experts of width ", model.intermediate, " are too wide together; the most is ",
                          Transformer::max_expert_width));
    }
    model.shared_width = static_cast<int>(width);
  }
  if (const auto groups = config.find_given("n_group")) model.expert_groups = groups->whole<int>(1, Transformer::max_experts);
  if (const auto chosen = config.find_given("topk_group"))
    model.groups_per_token = chosen->whole<int>(1, Transformer::max_experts);
  model.dense_layers = config.at("first_k_dense_replace").whole<int>(0);
  if (model.dense_layers > 0) model.dense_width = config.at("intermediate_size").whole<int>();
}

inline void read_latent_attention(JsonValue config, Transformer& model) {
  const auto size = [&](std::string_view key, int least) { return config.at(key).whole<int>(least, Transformer::max_hidden); };
  if (const auto rank = config.find_given("q_lora_rank")) model.query_rank = rank->whole<int>(1, Transformer::max_hidden);
  model.key_value_rank = size("kv_lora_rank", 1);
  model.rope_width = size("qk_rope_head_dim", 0);
  model.head_dim = size("qk_nope_head_dim", 0) + model.rope_width;
  model.value_size = size("v_head_dim", 1);
}

/// Limits of a config.json, which may also contain anything that is not read.
inline constexpr JsonLimits config_limits{.depth = 32};

}  // namespace detail

TAWPIPE_INLINE Transformer parse_huggingface_config(std::string_view text, std::string_view source, std::string_view name) {
  const JsonDocument json{text, concat("config ", quote(source)), detail::config_limits};
  const JsonValue config = json.root();
  const detail::ExpertKeys* const experts = detail::check_modelled(config);
  Transformer model{.name = detail::abbreviated(name),
                    .layers = config.at("num_hidden_layers").whole<int>(),
                    .hidden = config.at("hidden_size").whole<int>(),
                    .heads = config.at("num_attention_heads").whole<int>(),
                    .intermediate = config.at(experts != nullptr ? experts->width : "intermediate_size").whole<int>(),
                    .vocab = config.at("vocab_size").whole<int>()};
  if (experts != nullptr) detail::read_experts(config, *experts, model);
  if (const auto tied = config.find_given("tie_word_embeddings")) model.tied = tied->boolean();
  const auto kv_heads = config.find_given("num_key_value_heads");
  model.kv_heads = kv_heads ? kv_heads->whole<int>() : model.heads;
  if (experts != nullptr && experts->latent) {
    detail::read_latent_attention(config, model);
  } else if (const auto head_dim = config.find_given("head_dim")) {
    model.head_dim = head_dim->whole<int>();
  }
  auto dtype = config.find_given("torch_dtype");
  if (!dtype) dtype = config.find_given("dtype");  // its name in newer files
  model.dtype = dtype ? dtype->parsed(parse_dtype) : Dtype::bf16;
  if (model.dtype == Dtype::f8) dtype->fail("8-bit floats are not modelled: a device's peak is of 16-bit ones; give bfloat16");
  try {
    model.check();
  } catch (const InputError& error) {
    config.fail(concat("cannot be used: ", error.what()));
  }
  return model;
}

TAWPIPE_INLINE Transformer read_huggingface_config(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path file{path};
  if (std::filesystem::is_directory(file, ignored)) file /= "config.json";
  const auto text = find_text_file(file.string(), "config", 1);  // published ones have a few kB
  if (!text) throw InputError(concat("cannot read ", quote(file.string()), "; give a config.json, or a folder with one"));
  const auto parent = std::filesystem::absolute(file, ignored).lexically_normal().parent_path().filename();
  const auto name = file.filename() == "config.json" ? parent : file.stem();
  return parse_huggingface_config(*text, file.string(), name.string());
}

TAWPIPE_INLINE Transformer resolve_model(std::string_view text) {
  if (auto model = models::detail::find(text)) return *std::move(model);
  const std::string path{text};
  std::error_code ignored;
  const bool means_path = text.find('/') != std::string_view::npos || text.ends_with(".json");
  if (means_path || (!text.empty() && std::filesystem::exists(path, ignored))) return read_huggingface_config(path);
  throw InputError(models::detail::unknown_model(detail::abbreviated(text),
                                                 "any llama-LxH such as llama-24x512, or the path of a config.json"));
}

}  // namespace tawpipe
#endif
