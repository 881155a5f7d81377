// A Transformer from the config.json that published models come with, or from any text that names a
// model.
// Not: weights or tokenizers. The only header of this folder that needs nlohmann/json.
#pragma once

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

/// The model that a user means: a preset, any llama-LxH, or the path of a config.json or of a
/// folder with one (in that order).
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
#include "tawpipe/model/detail/config_keys.hpp"
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

/// Limits of a config.json.
inline constexpr JsonLimits config_limits{.depth = 32};

inline const DecoderType& decoder_type_of(JsonValue config) {
  const auto type = config.find_given("model_type");
  if (!type) return decoder_types[0];
  const DecoderType* const known = find_decoder_type(type->text());
  if (known == nullptr) type->fail(concat(quote(abbreviated(type->text())), " ", why_refused(type->text())));
  return *known;
}

/// What a file says that leaves out all keys which may be left out.
inline ConfigReading unread_config(JsonValue config, const DecoderType& type, std::string_view name) {
  ConfigReading reading{.type = type};
  Transformer& model = reading.model();
  model.name = abbreviated(name);
  if (!config.has("head_dim") && type.head_dim > 0) model.head_dim = type.head_dim;  // null: hidden / heads
  model.window = config.has("sliding_window") ? 0 : type.window;                     // null: none
  model.qkv_bias = type.qkv_bias;
  model.qk_norm = type.qk_norm;
  model.shared_gate = type.shared_gate;
  reading.constants() = {.rope_theta = type.theta,
                         .norm_epsilon = type.epsilon,
                         .positions = type.positions,
                         .rotary_part = type.rotary_part,
                         .router = {.sum_to_one = type.sum_to_one}};
  if (const auto given = config.find_given("model_type")) {
    reading.read.type = given->text();
  } else {
    reading.note("model_type", concat("is missing; the model is taken to be a ", type.name));
  }
  if (!type.router.empty()) reading.not_computed("model_type", concat("the router of a ", type.name, " ", type.router));
  return reading;
}

/// Whether it is one of the values that change nothing.
inline bool has_value(std::string_view values, JsonValue value) {
  if (value.is_list()) return value.size() == 0 && has_word(values, "[]");
  if (value.is_object()) return value.members().empty() && has_word(values, "{}");
  return has_word(values, value.shown());
}

inline void read_keys(JsonValue config, ConfigReading& reading) {
  for (const ConfigKey& row : config_keys) {
    if (find_config_key(row.key, reading.type.name) != &row) continue;
    const auto value = config.find_given(row.key);
    if (!value) {
      if (row.required && !(row.may_be_null && config.has(row.key))) config.fail(concat(quote(row.key), " is missing"));
      continue;
    }
    if (row.read != nullptr) {
      row.read(reading, *value);
    } else if (row.role == KeyRole::only && !has_value(row.values, *value)) {
      value->fail(row.why);
    }
  }
  std::string unknown;
  for (const auto& [key, value] : config.members()) {
    if (value.is_null() || find_config_key(key, reading.type.name) != nullptr || has_word(idle_keys, key)) continue;
    unknown += concat(unknown.empty() ? "" : ", ", abbreviated(key));
  }
  if (unknown.empty()) return;
  config.fail(concat("keys that are not known in a ", reading.type.name, ", and may change it: ", unknown.substr(0, 400),
                     "; where they change nothing, take them out of a copy of the file"));
}

/// The window of all layers, where they have the same.
inline void finish_window(JsonValue config, ConfigReading& reading) {
  Transformer& model = reading.model();
  const bool switched = has_word(config_types::window_switch, reading.type.name);
  if (switched && !(reading.use_window && reading.use_window->boolean())) model.window = 0;
  if (const auto types = reading.layer_types) {
    int within = 0;
    for (const JsonValue type : *types) {
      if (type.text() == "sliding_attention") {
        ++within;
      } else if (type.text() != "full_attention") {
        type.expected("full_attention, or sliding_attention in all layers");
      }
    }
    if (std::cmp_not_equal(types->size(), model.layers)) types->fail(concat("has not one for each of ", model.layers, " layers"));
    if (within != 0 && within != model.layers) types->fail("windows in some of the layers are not modelled; all must be alike");
    if (within == 0 && !switched && model.window > 0)
      types->fail("full attention in all layers contradicts the window; give sliding_window null");
    if (within > 0 && model.window == 0) types->fail("attention within a window needs sliding_window, and use_sliding_window");
    if (within == 0) model.window = 0;
  } else if (switched && model.window > 0) {
    const int first = reading.first_window_layer ? reading.first_window_layer->whole<int>() : 28;
    if (first >= model.layers) {
      model.window = 0;
    } else if (first > 0) {
      config.at("use_sliding_window")
          .fail(concat("windows from layer ", first, " on (max_window_layers) are not modelled; all layers must be alike"));
    }
  }
}

inline void finish_positions(ConfigReading& reading, double theta_before) {
  DecoderConstants& constants = reading.constants();
  if (reading.rope_theta) {
    const double theta = reading.rope_theta->positive();
    if (constants.rope_theta != theta_before && constants.rope_theta != theta)
      reading.rope_theta->fail(concat("is ", constants.rope_theta, " in rope_parameters; give one of them"));
    constants.rope_theta = theta;
  }
  if (reading.turned > 0) constants.rotary_part = reading.turned / static_cast<double>(reading.model().head_size());
}

inline void finish_experts(JsonValue config, ConfigReading& reading) {
  Transformer& model = reading.model();
  if (reading.type.experts && model.experts == 0) config.fail("'num_experts' is missing");
  if (model.dense_layers > 0)
    model.dense_width = (reading.dense_width ? *reading.dense_width : config.at("intermediate_size")).whole<int>();
  if (const auto shared = reading.shared_experts) {
    const std::int64_t width = shared->whole<std::int64_t>(0, Transformer::max_experts) * model.intermediate;
    if (width > Transformer::max_expert_width) {
      shared->fail(concat("shared experts of width ", model.intermediate, " are too wide together; the most is ",
                          Transformer::max_expert_width));
    }
    model.shared_width = static_cast<int>(width);
  }
  if (model.shared_width == 0) model.shared_gate = false;
  if (reading.balances)
    reading.constants().router.balance = reading.balance ? reading.balance->positive_or_zero() : reading.type.balance;
}

}  // namespace detail

TAWPIPE_INLINE HuggingFaceConfig parse_huggingface_config(std::string_view text, std::string_view source, std::string_view name) {
  const JsonDocument json{text, concat("config ", quote(source)), detail::config_limits};
  const JsonValue config = json.root();
  const detail::DecoderType& type = detail::decoder_type_of(config);
  detail::ConfigReading reading = detail::unread_config(config, type, name);
  detail::read_keys(config, reading);
  Transformer& model = reading.model();
  if (model.kv_heads == 0 && !config.find_given("num_key_value_heads")) model.kv_heads = model.heads;
  if (type.latent) {
    model.head_dim = reading.unturned + model.rope_width;
    if (model.kv_heads != model.heads)
      config.at("num_key_value_heads").fail(concat("latent attention has as many as heads, ", model.heads));
  }
  detail::finish_window(config, reading);
  detail::finish_experts(config, reading);
  try {
    model.check();
  } catch (const InputError& error) {
    config.fail(concat("cannot be used: ", error.what()));
  }
  detail::finish_positions(reading, type.theta);
  return std::move(reading.read);
}

TAWPIPE_INLINE HuggingFaceConfig read_huggingface_config(const std::string& path) {
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
  if (means_path || (!text.empty() && std::filesystem::exists(path, ignored))) return read_huggingface_config(path).model;
  throw InputError(models::detail::unknown_model(detail::abbreviated(text),
                                                 "any llama-LxH such as llama-24x512, or the path of a config.json"));
}

}  // namespace tawpipe
#endif
