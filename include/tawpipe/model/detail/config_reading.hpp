// A config.json while it is read: its values by their meaning, and which of them are used.
// Not: which keys there are (model/detail/config_keys.hpp), nor what follows from them
// (model/detail/config_parts.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/decoder_config.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/detail/config_keys.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// Whether it is one of the values that change nothing.
inline bool has_value(std::string_view values, JsonValue value) {
  if (value.is_list()) return value.size() == 0 && has_word(values, "[]");
  if (value.is_object()) return value.members().empty() && has_word(values, "{}");
  return has_word(values, value.shown());
}

/// External text made fit for a one-line message or a model's name: at most 60 bytes, anything but
/// printable ASCII as '?'.
inline std::string abbreviated(std::string_view text) {
  std::string out{text.substr(0, 60)};
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > 60 ? out + "..." : out;
}

class ConfigReading {
 public:
  const DecoderType& type;
  HuggingFaceConfig read = {};

  /// @param sizes  the class's own, for what the file leaves out; null: it may not
  ConfigReading(JsonValue config, const DecoderType& of_type, const JsonDocument* sizes) : type{of_type}, config_{config} {
    for (const auto& [key, value] : config.members()) add(key, value, false);
    if (sizes == nullptr) return;
    for (const auto& [key, value] : sizes->root().members()) {
      if (!says(key)) add(key, value, true);
    }
  }

  /// Takes a key from the file around it, where this one does not say it.
  void inherit(const std::string& key, JsonValue value) {
    if (!says(key)) add(key, value, false);
  }

  Transformer& model() { return read.model; }
  DecoderConstants& constants() { return read.constants; }
  const JsonValue& config() const { return config_; }
  /// Sentences for users; each begins with the key.
  void note(std::string_view key, std::string_view what) { read.model.notes.push_back(concat(key, ": ", what)); }
  void not_computed(std::string_view key, std::string_view what) { read.not_computed.push_back(concat(key, ": ", what)); }
  void note_not_computed(std::string_view key, std::string_view what) {
    note(key, what);
    not_computed(key, what);
  }

  bool is_latent() const { return type.does_read(latent) && (!type.is_unknown() || says("kv_lora_rank")); }
  /// Whether the file has the key, null or not.
  bool says(std::string_view key) const { return find(key) != nullptr; }
  /// The value of a key that is not null, by any of its names; it counts as used.
  std::optional<JsonValue> take(std::string_view key) {
    Given* const given = find(key);
    if (given == nullptr) return std::nullopt;
    given->used = true;
    return given->value.is_null() ? std::nullopt : std::optional{given->value};
  }
  /// @throws InputError  if it is missing
  JsonValue need(std::string_view key) {
    if (const auto value = take(key)) return *value;
    std::string others;
    for (const std::string_view alias : split(find_config_key(key)->aliases, ' ')) {
      if (!alias.empty()) others += concat(others.empty() ? " (or " : ", ", alias);
    }
    config_.fail(concat(quote(key), " is missing", others, others.empty() ? "" : ")"));
  }
  int size(std::string_view key, int fallback, int least = 0) {
    const auto value = take(key);
    return value ? one_of_all(*value).whole<int>(least) : fallback;
  }
  bool flag(std::string_view key, bool fallback) {
    const auto value = take(key);
    return value ? value->boolean() : fallback;
  }
  /// The name that the file has for a key.
  std::string_view named(std::string_view key) const {
    const Given* const given = const_cast<ConfigReading*>(this)->find(key);
    return given == nullptr ? key : given->key;
  }

  /// The one value of a list with a value for each layer, or the value itself.
  static JsonValue one_of_all(JsonValue value) {
    if (!value.is_list()) return value;
    if (value.size() == 0) value.expected("a number");
    for (const JsonValue one : value) {
      if (one.shown() != value[0].shown()) value.fail("layers that differ in it are not modelled; all must be alike");
    }
    return value[0];
  }

  bool is_used(std::string_view key) const {
    const Given* const given = find_config_key(key) == nullptr ? nullptr : find(key);
    return given != nullptr && (given->used || says_no(given->value));
  }

  /// Refuses keys that are not known, or that this type of models does not read.
  void refuse_others() const {
    std::string unknown;
    for (const auto& [key, value] : config_.members()) {
      if (value.is_null() || find_config_key(key) != nullptr || is_other(key)) continue;
      unknown += concat(unknown.empty() ? "" : ", ", abbreviated(key));
    }
    if (!unknown.empty()) {
      config_.fail(concat("keys that are not known in a ", type.name(), ", and may change it: ", unknown.substr(0, 400),
                          "; where they change nothing, take them out of a copy of the file"));
    }
    for (const Given& given : given_) {
      if (given.used || given.value.is_null() || says_no(given.value)) continue;
      given.value.fail(concat("is not modelled in a ", type.name(), "; leave it out, or give a model_type that has it"));
    }
  }

  /// Whether a key is in one of the tables beside config_keys.
  static bool is_other(std::string_view key) {
    if (has_word(idle_keys, key) || has_word(dropout_keys, key)) return true;
    for (const OnlyKey& only : only_keys) {
      if (has_word(only.keys, key)) return true;
    }
    for (const ScaledKey& scaled : scaled_keys) {
      if (has_word(scaled.key, key)) return true;
    }
    return false;
  }

  /// A value by which a file says that its model does not have something.
  static bool says_no(JsonValue value) { return has_value("false 0 0.0 [] {}", value); }

 private:
  struct Given {
    const ConfigKey* meaning;
    std::string key;  ///< as in the file
    JsonValue value;
    bool used;
  };

  void add(const std::string& key, JsonValue value, bool used) {
    const ConfigKey* const meaning = find_config_key(key);
    if (meaning == nullptr) return;
    if (Given* const known = find(meaning->key)) {
      const bool sizes = meaning->key != "hidden_act" && meaning->key != "max_position_embeddings";
      if (sizes && !known->value.is_null() && !value.is_null() && known->value.shown() != value.shown())
        value.fail(concat("is ", known->value.shown(), " by its other name, ", known->key, "; give one of them"));
      if (!known->value.is_null() && key != meaning->key) return;
      known->key = key;
      known->value = value;
      return;
    }
    given_.push_back({meaning, key, value, used});
  }
  Given* find(std::string_view key) {
    const ConfigKey* const meaning = find_config_key(key);
    for (Given& one : given_) {
      if (one.meaning == meaning) return &one;
    }
    return nullptr;
  }
  const Given* find(std::string_view key) const { return const_cast<ConfigReading*>(this)->find(key); }

  JsonValue config_;
  std::vector<Given> given_;
};

}  // namespace tawpipe::detail
