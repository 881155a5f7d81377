// state.json and config.json of a checkpoint: conversion between texts and values.
// Not: parameters, nor when files are written (training/checkpoint.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/training/token_windows.hpp"
#include "tawpipe/training/training_state.hpp"

namespace tawpipe::inline v0::training::detail {

inline constexpr std::int64_t checkpoint_version = 2;
inline constexpr std::string_view checkpoint_format = "tawpipe-checkpoint";

/// 16 hexadecimal digits that distinguish texts: FNV-1a.
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
      {"run", state.run},
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

/// @throws InputError  if the file is missing, not JSON, of a different format or version, or lacks
/// a key.
inline ReadState read_state(const std::string& path) {
  const JsonDocument document = read_json_file(path, "file", 1);
  const JsonValue json = document.root();
  if (json.at("format").text() != checkpoint_format) json.at("format").expected(quote(checkpoint_format));
  json.at("version").whole(checkpoint_version, checkpoint_version);
  ReadState read;
  TrainingState& state = read.state;
  read.id = json.at("id").text();
  if (const auto run = json.find("run")) state.run = run->text();
  state.step = json.at("step").whole();
  state.dtype = json.at("dtype").parsed(parse_dtype);
  if (state.dtype != Dtype::f32 && state.dtype != Dtype::f64) json.at("dtype").expected("float32 or float64");
  const JsonValue data = json.at("data");
  state.data.source = data.at("source").text();
  state.data.order = data.at("order").parsed(parse_data_order);
  state.data.seed = data.at("seed").whole<std::uint64_t>();
  state.data.microbatches = data.at("microbatches").whole<std::int32_t>();
  state.data.microbatch_size = data.at("microbatch_size").whole<std::int32_t>();
  state.data.sequence = data.at("sequence").whole<std::int32_t>();
  const JsonValue optimizer = json.at("optimizer");
  if (optimizer.at("name").text() != "adamw") optimizer.at("name").expected("'adamw'");
  state.optimizer = {.beta1 = optimizer.at("beta1").number(),
                     .beta2 = optimizer.at("beta2").number(),
                     .epsilon = optimizer.at("epsilon").number(),
                     .weight_decay = optimizer.at("weight_decay").number()};
  const JsonValue rate = json.at("learning_rate");
  state.learning_rate = {.peak = rate.at("peak").number(),
                         .minimum = rate.at("minimum").number(),
                         .warmup_steps = rate.at("warmup_steps").whole(),
                         .decay_steps = rate.at("decay_steps").whole()};
  for (const auto& [key, value] : json.at("settings").members()) state.settings[key] = value.text();
  return read;
}

}  // namespace tawpipe::training::detail
