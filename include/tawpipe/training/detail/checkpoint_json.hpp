// state.json and config.json of a checkpoint: texts from values, and values from texts.
// Not: parameters, nor when files are written (training/checkpoint.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/training/detail/json_object.hpp"
#include "tawpipe/training/token_windows.hpp"
#include "tawpipe/training/training_state.hpp"

namespace tawpipe::inline v0::training::detail {

inline constexpr std::int64_t checkpoint_version = 1;
inline constexpr std::string_view checkpoint_format = "tawpipe-checkpoint";

/// 16 hexadecimal digits that tell texts apart: FNV-1a.
inline std::string fingerprint(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(hash >> shift) & 15];
  return digits;
}

/// The text of state.json, and the id that ties a checkpoint's files together.
struct StateText {
  std::string text;
  std::string id;
};

/// @param config  the text of config.json, so that two models never have the same id
inline StateText state_text(const TrainingState& state, std::string_view config) {
  nlohmann::ordered_json json = {
      {"format", checkpoint_format},
      {"version", checkpoint_version},
      {"step", state.step},
      {"dtype", name(state.dtype)},
      {"data",
       {{"source", state.data.source},
        {"order", name(state.data.order)},
        {"seed", state.data.seed},
        {"microbatches", state.data.microbatches},
        {"microbatch_size", state.data.microbatch_size},
        {"sequence", state.data.sequence}}},
      {"optimizer",
       {{"name", "adamw"},
        {"beta1", state.optimizer.beta1},
        {"beta2", state.optimizer.beta2},
        {"epsilon", state.optimizer.epsilon},
        {"weight_decay", state.optimizer.weight_decay}}},
      {"learning_rate",
       {{"peak", state.learning_rate.peak},
        {"minimum", state.learning_rate.minimum},
        {"warmup_steps", state.learning_rate.warmup_steps},
        {"decay_steps", state.learning_rate.decay_steps}}},
      {"settings", nlohmann::ordered_json::object()},
  };
  for (const auto& [key, value] : state.settings) json["settings"][key] = value;
  const auto dump = [&] { return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"; };
  const std::string id = fingerprint(dump() + std::string{config});
  json["id"] = id;
  return {dump(), id};
}

struct ReadState {
  TrainingState state;
  std::string id;
};

/// @throws InputError  if the file is missing, no JSON, of another format or version, or lacks a key.
inline ReadState read_state(const std::string& path) {
  constexpr std::int64_t most = 1'000'000;
  const JsonObject json = JsonObject::read(path, most);
  if (json.text("format") != checkpoint_format) json.fail("format", concat("must be ", quote(checkpoint_format)));
  if (json.count<std::int64_t>("version") != checkpoint_version) {
    json.fail("version", concat("is ", json.count<std::int64_t>("version"), "; version ", checkpoint_version, " is read"));
  }
  ReadState read;
  TrainingState& state = read.state;
  read.id = json.text("id");
  state.step = json.count<std::int64_t>("step");
  state.dtype = parse_dtype(json.text("dtype"));
  if (state.dtype != Dtype::f32 && state.dtype != Dtype::f64) json.fail("dtype", "must be float32 or float64");
  const JsonObject data = json.object("data");
  state.data.source = data.text("source");
  state.data.order = parse_data_order(data.text("order"));
  state.data.seed = data.count<std::uint64_t>("seed");
  state.data.microbatches = data.count<std::int32_t>("microbatches");
  state.data.microbatch_size = data.count<std::int32_t>("microbatch_size");
  state.data.sequence = data.count<std::int32_t>("sequence");
  const JsonObject optimizer = json.object("optimizer");
  if (optimizer.text("name") != "adamw") optimizer.fail("name", "must be 'adamw'");
  state.optimizer = {.beta1 = optimizer.number("beta1"),
                     .beta2 = optimizer.number("beta2"),
                     .epsilon = optimizer.number("epsilon"),
                     .weight_decay = optimizer.number("weight_decay")};
  const JsonObject rate = json.object("learning_rate");
  state.learning_rate = {.peak = rate.number("peak"),
                         .minimum = rate.number("minimum"),
                         .warmup_steps = rate.count<std::int64_t>("warmup_steps"),
                         .decay_steps = rate.count<std::int64_t>("decay_steps")};
  for (const auto& [key, value] : json.object("settings").texts()) state.settings[key] = value;
  return read;
}

}  // namespace tawpipe::training::detail
