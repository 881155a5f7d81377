// Rotary embedding in a config.json: rope_scaling, and rope_parameters as transformers 5 writes it.
// Not: the other keys (model/detail/config_keys.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/decoder_config.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"

namespace tawpipe::inline v0::detail {

/// One way to scale it: the keys of its object. Those that are computed need all of them.
struct RotaryRow {
  std::string_view name;
  RotaryScaling::Kind kind;
  std::string_view keys;
};
inline constexpr RotaryRow rotary_rows[] = {
    {"default", RotaryScaling::Kind::none, ""},
    {"linear", RotaryScaling::Kind::linear, "factor"},
    {"llama3", RotaryScaling::Kind::llama3, "factor low_freq_factor high_freq_factor original_max_position_embeddings"},
    {"dynamic", RotaryScaling::Kind::other, "factor original_max_position_embeddings alpha"},
    {"yarn", RotaryScaling::Kind::other,
     "factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale mscale_all_dim truncate"},
    {"longrope", RotaryScaling::Kind::other,
     "factor original_max_position_embeddings attention_factor short_factor long_factor short_mscale long_mscale"},
    {"su", RotaryScaling::Kind::other, "factor short_factor long_factor short_mscale long_mscale"},
};

/// Reads the object `value` of `key`. Other scalings than linear and llama3 are not computed; times
/// are the same.
inline void read_rotary(JsonValue value, std::string_view key, HuggingFaceConfig& read) {
  RotaryScaling& scaling = read.constants.scaling;
  std::optional<JsonValue> type = value.find_given("rope_type");
  if (!type) type = value.find_given("type");
  const std::string name = type ? type->text() : "default";
  const RotaryRow* row = nullptr;
  std::string known;
  for (const RotaryRow& one : rotary_rows) {
    known += concat(known.empty() ? "" : ", ", one.name);
    if (one.name == name) row = &one;
  }
  for (const auto& [inner, member] : value.members()) {
    if (member.is_object()) member.fail("positions that differ by layer are not modelled; give the same for all");
  }
  if (row == nullptr) type->expected(concat("one of ", known));
  for (const auto& [inner, member] : value.members()) {
    if (member.is_null() || has_word("rope_type type rope_theta partial_rotary_factor", inner) || has_word(row->keys, inner))
      continue;
    member.fail(concat("is not a key of the scaling ", row->name, "; rope_type may be ", known));
  }
  scaling.kind = row->kind;
  if (const auto theta = value.find_given("rope_theta")) read.constants.rope_theta = theta->positive();
  if (const auto part = value.find_given("partial_rotary_factor")) read.constants.rotary_part = part->positive();
  if (row->kind == RotaryScaling::Kind::other)
    read.not_computed.push_back(concat(key, ": the scaling ", name, " is not computed"));
  if (row->kind != RotaryScaling::Kind::linear && row->kind != RotaryScaling::Kind::llama3) return;
  scaling.factor = value.at("factor").positive();
  if (row->kind != RotaryScaling::Kind::llama3) return;
  scaling.low_freq_factor = value.at("low_freq_factor").positive();
  scaling.high_freq_factor = value.at("high_freq_factor").positive();
  scaling.original_positions = value.at("original_max_position_embeddings").positive();
}

}  // namespace tawpipe::detail
