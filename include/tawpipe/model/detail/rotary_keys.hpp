// Rotary embedding in a config.json: rope_scaling, and rope_parameters as transformers 5 writes it.
// Not: the other keys (model/detail/config_keys.hpp).
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/decoder_config.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"

namespace tawpipe::inline v0::detail {

/// A way to scale it that is computed: the keys of its object, all of which it needs.
struct RotaryRow {
  std::string_view name;
  RotaryScaling::Kind kind;
  std::string_view keys;
};
inline constexpr RotaryRow rotary_rows[] = {
    {"default", RotaryScaling::Kind::none, ""},
    {"linear", RotaryScaling::Kind::linear, "factor"},
    {"llama3", RotaryScaling::Kind::llama3, "factor low_freq_factor high_freq_factor original_max_position_embeddings"},
};

/// Reads the object `value` of `key`. Other scalings than linear and llama3, and positions that differ
/// by layer, are not computed; times are the same.
inline void read_rotary(JsonValue value, std::string_view key, HuggingFaceConfig& read) {
  RotaryScaling& scaling = read.constants.scaling;
  std::optional<JsonValue> type = value.find_given("rope_type");
  if (!type) type = value.find_given("type");
  const std::string name = type ? type->text() : "default";
  const auto* const row =
      std::find_if(std::begin(rotary_rows), std::end(rotary_rows), [&](const RotaryRow& one) { return one.name == name; });
  const auto not_computed = [&](const std::string& what) { read.not_computed.push_back(concat(key, ": ", what)); };
  for (const auto& [inner, member] : value.members()) {
    if (member.is_object()) return not_computed("positions that differ by layer are not computed");
  }
  scaling.kind = row == std::end(rotary_rows) ? RotaryScaling::Kind::other : row->kind;
  if (const auto theta = value.find_given("rope_theta")) read.constants.rope_theta = theta->positive();
  if (const auto part = value.find_given("partial_rotary_factor")) read.constants.rotary_part = part->positive();
  if (scaling.kind == RotaryScaling::Kind::other)
    return not_computed(concat("the scaling ", one_line(name.substr(0, 40)), " is not computed"));
  for (const auto& [inner, member] : value.members()) {
    const bool known = has_word("rope_type type rope_theta partial_rotary_factor", inner) || has_word(row->keys, inner);
    if (!member.is_null() && !known)
      not_computed(concat(one_line(inner.substr(0, 40)), " is not a key of the scaling ", row->name));
  }
  if (scaling.kind == RotaryScaling::Kind::none) return;
  scaling.factor = value.at("factor").positive();
  if (row->kind != RotaryScaling::Kind::llama3) return;
  scaling.low_freq_factor = value.at("low_freq_factor").positive();
  scaling.high_freq_factor = value.at("high_freq_factor").positive();
  scaling.original_positions = value.at("original_max_position_embeddings").positive();
}

}  // namespace tawpipe::detail
