// A Transformer from the config.json that published models come with, or from any text that names a
// model.
// Not: weights or tokenizers. The only header of this folder that needs nlohmann/json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/decoder_config.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// The model that the text of a config.json describes. Every key is used, known to change nothing,
/// or refused by its name: model/detail/config_keys.hpp has them all, model/detail/decoder_types.hpp
/// the values of model_type.
/// @param source  the text's name in messages, e.g. its path
/// @param name    the model's name
/// @throws InputError  if the text is not JSON (naming line and column), a key is missing, of a
/// wrong type or not known, a value is not modelled, the model is of another type, layers with and
/// without experts or windows take turns, or Transformer::check refuses its sizes.
TAWPIPE_INLINE HuggingFaceConfig parse_huggingface_config(std::string_view text, std::string_view source, std::string_view name);

/// Reads a config.json, or the one inside a folder. The model takes the folder's name.
/// @throws InputError  if there is no such file, it is larger than 1 MiB, or as
/// parse_huggingface_config().
TAWPIPE_INLINE HuggingFaceConfig read_huggingface_config(const std::string& path);

/// The model that is simulated: by its layers' operators where these differ.
/// @throws InputError  as Transformer::of
TAWPIPE_INLINE Transformer timed_model(const HuggingFaceConfig& config);

/// A model by its vendor's name, with the organization before it or without, and however it was tuned,
/// stored or dated: "Qwen/Qwen3-8B", "deepseek-r1", "gpt-oss-20b".
TAWPIPE_INLINE std::optional<HuggingFaceConfig> find_published_model(std::string_view text);

/// The model that a user means: a preset, any llama-LxH, the path of a config.json or of a folder with
/// one, or a vendor's name (in that order).
/// @throws InputError  as models::named() and read_huggingface_config().
TAWPIPE_INLINE Transformer resolve_model(std::string_view text);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/detail/config_decoder.hpp"
#include "tawpipe/model/detail/config_keys.hpp"
#include "tawpipe/model/detail/config_layers.hpp"
#include "tawpipe/model/detail/config_parts.hpp"
#include "tawpipe/model/detail/config_reading.hpp"
#include "tawpipe/model/detail/decoder_families.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/published_models.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Limits of a config.json.
inline constexpr JsonLimits config_limits{.depth = 32, .python_words = true};
inline constexpr int config_mebibytes = 16;  // lists of what is quantized may be long

/// Keys of a file that holds a decoder's beside those of towers for images or sound.
inline constexpr std::string_view nested_keys[] = {"text_config", "llm_config", "language_config", "thinker_config"};
/// What a nested decoder takes from the file around it, where it does not say so itself.
inline constexpr std::string_view outer_keys = "tie_word_embeddings torch_dtype dtype quantization_config _name_or_path";

/// What a file of a type that is not known is, where it is no decoder of tokens; else empty.
inline std::string_view not_a_decoder(JsonValue config) {
  const auto has = [&](auto... keys) { return (config.find_given(keys) || ...); };
  const auto flag = config.find_given("is_encoder_decoder");
  if (has("num_decoder_layers", "decoder_layers", "encoder_layers") || (flag && flag->shown() == "true"))
    return "is an encoder and a decoder; a decoder alone is modelled";
  if (has("type_vocab_size")) return "is an encoder, which predicts no next token; a decoder is modelled";
  if (!has("vocab_size", "padded_vocab_size") && has("patch_size", "image_size", "num_channels"))
    return "is an encoder of images, with no tokens to predict; give the decoder's config.json";
  if (!has("vocab_size", "padded_vocab_size") && has("num_mel_bins", "sampling_rate"))
    return "is a model of sound, with no tokens to predict";
  return {};
}

/// The decoder inside the file, which may be the whole of it.
inline JsonValue decoder_in(JsonValue config) {
  for (const std::string_view key : nested_keys) {
    const auto inner = config.find_given(key);
    if (inner && inner->is_object()) return decoder_in(*inner);
  }
  return config;
}

inline const DecoderType& decoder_type_of(JsonValue outer, JsonValue config) {
  const auto type = config.find_given("model_type");
  const auto outer_type = outer.find_given("model_type");
  for (const auto& one : {outer_type, type}) {
    const std::string_view why = one ? why_refused(one->text()) : std::string_view{};
    if (!why.empty()) one->fail(concat(quote(abbreviated(one->text())), " ", why));
  }
  if (type) {
    if (const DecoderType* const known = find_decoder_type(type->text())) return *known;
  } else if (outer_type) {
    for (const std::string& name : {concat(outer_type->text(), "_text"), outer_type->text()}) {
      if (const DecoderType* const known = find_decoder_type(name)) return *known;
    }
    if (!config.find_given("num_hidden_layers")) return *find_decoder_type("llama");  // what LLaVA's file leaves out
  }
  const std::string_view why = not_a_decoder(config);
  const std::string shown = type ? quote(abbreviated(type->text())) : "the model";
  if (!why.empty()) (type ? *type : config).fail(concat(shown, " ", why));
  return unknown_type;
}

/// The decoder by its kinds of layers, and of `model` what all of them have.
inline void read_layers(ConfigReading& reading) {
  const DecoderType& type = reading.type;
  Transformer& model = reading.model();
  if (model.layers < 1 || model.layers > Transformer::max_layers)
    reading.config().fail(concat("cannot be used: ", model.layers, " layers; they must be 1 to ", Transformer::max_layers));
  LayerLetters letters;
  read_mixers(reading, letters);
  read_mlps(reading, letters);
  NormPlace norms = type.norms;
  if (type.does_read(parallel)) {
    const auto one = reading.take("use_parallel_residual");
    if (one && one->boolean()) reading.not_computed("use_parallel_residual", "attention and MLP side by side are not computed");
    if (type.name() == "falcon") norms = !one || one->boolean() ? NormPlace::parallel : NormPlace::before;
  }
  if (model.heads > 0 && model.hidden > 0 && model.hidden <= Transformer::max_hidden) {
    build_decoder(reading, letters, norms);
    reading.read.unequal = unequal_layers(reading, letters);
    for (const std::string_view key : {"layer_types", "sliding_window_pattern", "max_window_layers", "moe_layer_freq",
                                       "mlp_only_layers", "moe_layers", "mlp_layer_types", "model_type"}) {
      if (reading.read.unequal.empty() || (key != "model_type" && !reading.says(key))) continue;
      reading.not_computed(key == "model_type" ? key : reading.named(key), concat(reading.read.unequal, ": not computed"));
      break;
    }
  }
  if (letters.mixers.find('s') != std::string::npos) model.window = letters.window;
  const bool by_kinds = reading.read.is_by_kinds();
  if (!by_kinds && letters.mixers.find('c') != std::string::npos)
    reading.note("attention_chunk_size", concat("attention in chunks of ", letters.chunk,
                                                " tokens is taken as full attention, which is the same in sequences up to that"));
  const auto dense = model.experts == 0 ? 0 : letters.mlps.find('e');
  model.dense_layers = static_cast<int>(dense);
  if (dense == 0) model.dense_width = 0;

  const auto left_out = [&](std::string_view key, const std::string& what) {
    if (!by_kinds) reading.note(key, what);
    reading.not_computed(key, what);
  };
  const auto differ = [&](std::string_view what) { left_out("model_type", concat("a ", type.name(), " has ", what)); };
  if (norms == NormPlace::after) reading.not_computed("model_type", "norms after attention and MLP are not computed");
  if (norms == NormPlace::both) differ("four norms a layer; two are modelled");
  if (norms == NormPlace::parallel) differ("one norm a layer; two are modelled");
  if (type.norm_weights == NormWeights::scale_and_shift) differ("norms with a bias, which is left out");
  if (type.norm_weights == NormWeights::none) differ("norms without weights; weights are modelled");
  if (type.learned_positions) differ("learned positions, which are left out");
  if (type.sinks) differ("sinks of attention, which are left out");
  if (type.expert_bias) differ("biases of experts, which are left out");
  if (type.does_read(indexed))
    left_out("index_topk", "attention to the keys that an index picks is taken as attention to all; the index is left out");
}

/// What was assumed of a decoder whose type is not known.
inline void note_assumptions(ConfigReading& reading) {
  const Transformer& model = reading.model();
  const auto type = reading.config().find_given("model_type");
  std::string left_out;
  for (const auto& [key, value] : reading.config().members()) {
    if (reading.is_used(key)) continue;
    for (const StructureKey& part : structure_keys) {
      if (key.starts_with(part.begins) && !value.is_null() && !has_value("false 0 [] {}", value))
        value.fail(concat(part.what, " are not modelled"));
    }
    if (value.is_null() || ConfigReading::is_other(key)) continue;
    left_out += concat(left_out.empty() ? "" : ", ", abbreviated(key));
  }
  const bool as_llama = !type && left_out.empty();
  const std::string found =
      concat(type ? concat(quote(abbreviated(type->text())), " is not known") : "is missing",
             "; read by its keys as a decoder with norms before attention and MLP, rotary positions, ",
             model.is_latent() ? "latent attention, " : "attention of grouped queries, ", model.is_routed() ? "experts, " : "",
             model.qkv_bias ? "biases of queries, keys and values, " : "no biases of queries, keys and values, ",
             model.qk_norm == QkNorm::none ? "" : "norms of queries and keys, ", "MLPs with a gate, and an output matrix ",
             model.tied ? "that is the embedding" : "of its own",
             left_out.empty() ? "" : concat("; not known, and left out: ", left_out.substr(0, 400)));
  reading.note("model_type", found);
  if (!as_llama) reading.not_computed("model_type", found);
}

}  // namespace detail

TAWPIPE_INLINE HuggingFaceConfig parse_huggingface_config(std::string_view text, std::string_view source, std::string_view name) {
  const JsonDocument json{text, concat("config ", quote(source)), detail::config_limits};
  const JsonValue outer = json.root();
  const JsonValue config = detail::decoder_in(outer);
  const detail::DecoderType& type = detail::decoder_type_of(outer, config);
  const bool nested = &config != &outer && !config.is_same(outer);
  std::optional<JsonDocument> sizes;
  if (nested && !type.sizes.empty()) sizes.emplace(type.sizes, "sizes", detail::config_limits);
  detail::ConfigReading reading{config, type, sizes ? &*sizes : nullptr};
  if (nested) {
    for (const auto& [key, value] : outer.members()) {
      if (detail::has_word(detail::outer_keys, key)) reading.inherit(key, value);
      if (key.ends_with("_config") && value.is_object() && !value.is_same(config) && key != "quantization_config")
        reading.note_not_computed(key, "is left out; the decoder is taken");
    }
  }
  Transformer& model = reading.model();
  model.name = detail::abbreviated(name);
  if (const auto given = config.find_given("model_type")) reading.read.type = given->text();
  detail::read_sizes(reading);
  detail::read_biases(reading);
  detail::read_norms(reading);
  detail::read_mlp(reading);
  detail::read_latent(reading);
  detail::read_experts(reading);
  detail::read_positions(reading);
  detail::read_layers(reading);
  detail::read_stored(reading);
  detail::read_others(reading);
  if (type.is_unknown()) {
    detail::note_assumptions(reading);
  } else {
    reading.refuse_others();
  }
  try {
    if (reading.read.unequal.empty()) model.check();
    reading.read.decoder.check();
  } catch (const InputError& error) {
    config.fail(concat("cannot be used: ", error.what()));
  }
  return std::move(reading.read);
}

TAWPIPE_INLINE HuggingFaceConfig read_huggingface_config(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path file{path};
  if (std::filesystem::is_directory(file, ignored)) file /= "config.json";
  const auto text = find_text_file(file.string(), "config", detail::config_mebibytes);
  if (!text) throw InputError(concat("cannot read ", quote(file.string()), "; give a config.json, or a folder with one"));
  const auto parent = std::filesystem::absolute(file, ignored).lexically_normal().parent_path().filename();
  const auto name = file.filename() == "config.json" ? parent : file.stem();
  return parse_huggingface_config(*text, file.string(), name.string());
}

TAWPIPE_INLINE Transformer timed_model(const HuggingFaceConfig& config) {
  if (!config.is_by_kinds()) return config.model;
  Transformer model = Transformer::of(config.decoder);
  model.dtype = config.model.dtype;
  model.products = config.model.products;
  model.notes = config.model.notes;
  return model;
}

TAWPIPE_INLINE std::optional<HuggingFaceConfig> find_published_model(std::string_view text) {
  std::string name = detail::plain_name(text);
  while (!name.empty()) {
    for (const detail::SameModel& same : detail::same_models) {
      if (same.name == name) name = same.as;
    }
    for (const detail::PublishedModel& model : detail::published_models) {
      if (model.name == name) return parse_huggingface_config(model.config, model.name, model.name);
    }
    if (auto preset = models::detail::find(name)) {
      HuggingFaceConfig config{.model = *std::move(preset)};
      config.decoder = config.model.decoder();
      return config;
    }
    name = detail::without_variant(name);
  }
  return std::nullopt;
}

TAWPIPE_INLINE Transformer resolve_model(std::string_view text) {
  if (auto model = models::detail::find(text)) return *std::move(model);
  const std::string path{text};
  std::error_code ignored;
  const bool is_path = text.ends_with(".json") || text.find_first_of("./~") == 0 || std::count(text.begin(), text.end(), '/') > 1;
  if (is_path || (!text.empty() && std::filesystem::exists(path, ignored))) return timed_model(read_huggingface_config(path));
  if (const auto published = find_published_model(text)) return timed_model(*published);
  throw InputError(models::detail::unknown_model(detail::abbreviated(text),
                                                 "any llama-LxH such as llama-24x512, or the path of a config.json"));
}

}  // namespace tawpipe
#endif
