// Measured times as JSON: written by `tawpipe calibrate` and read by --cost measured:FILE
// (docs/interchange.md).
// Not: how they are obtained (analysis/calibrate.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/json/json_reader.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The keys of a measured cost's file, in its order.
class MeasuredJson {
  /// The passes by their keys, of a cost to be written or read.
  template <class Cost>
  static auto passes(Cost& cost) {
    using Pass = std::pair<std::string_view, decltype(&cost.forward)>;
    return std::array<Pass, 4>{Pass{"forward", &cost.forward}, Pass{"backward", &cost.backward},
                               Pass{"backward_input", &cost.backward_input}, Pass{"backward_weight", &cost.backward_weight}};
  }
  template <class Cost>
  static auto links(Cost& cost) {
    using Kind = std::pair<std::string_view, decltype(&cost.intra_node)>;
    return std::array<Kind, 2>{Kind{"intra_node", &cost.intra_node}, Kind{"inter_node", &cost.inter_node}};
  }

 public:
  static nlohmann::ordered_json write(const MeasuredCost& cost) {
    nlohmann::ordered_json json;
    json["measured_cost"] = 1;
    json["device"] = cost.device;
    json["software"] = cost.software;
    json["work"] = work_json(*cost.work);
    for (const auto& [key, pass] : passes(cost)) {
      if (*pass) json["seconds"][std::string{key}] = pass_json(**pass);
    }
    if (cost.update) json["seconds"]["update"] = {{"once", cost.update->once}, {"byte", cost.update->byte}};
    for (const auto& [key, link] : links(cost)) {
      if (*link) json["seconds"][std::string{key}] = {{"latency", (*link)->latency}, {"byte", (*link)->byte}};
    }
    return json;
  }

  static MeasuredCost read(JsonValue file) {
    file.only("measured_cost", "device", "software", "work", "seconds").at("measured_cost").whole(1, 1);
    const auto said = [&](std::string_view key, std::string_view what) {
      if (!file.has(key)) {
        file.fail(concat("'", key, "' is missing, ", what,
                         ", without which nobody knows where the times hold; calibrate again, or add it (docs/calibration.md)"));
      }
      return file.at(key);
    };
    MeasuredCost cost;
    cost.work = read_work(said("work", "the model, sequence and microbatch of the measurement"));
    cost.device = said("device", "the device that it ran on").label();
    cost.software = said("software", "what ran").label();
    const JsonValue times =
        file.at("seconds").only("forward", "backward", "backward_input", "backward_weight", "update", "intra_node", "inter_node");
    for (const auto& [key, pass] : passes(cost)) {
      if (const auto value = times.find(key)) *pass = read_pass(*value);
    }
    if (const auto value = times.find("update")) {
      value->only("once", "byte");
      cost.update = {.once = time(*value, "once"), .byte = time(*value, "byte")};
    }
    for (const auto& [key, link] : links(cost)) {
      const auto value = times.find(key);
      if (!value) continue;
      value->only("latency", "byte");
      *link = {.latency = time(*value, "latency"), .byte = time(*value, "byte")};
    }
    return cost;
  }

 private:
  static nlohmann::ordered_json pass_json(const MeasuredPass& pass) {
    return {{"layer", pass.layer}, {"embedding", pass.embedding}, {"head", pass.head}};
  }
  static nlohmann::ordered_json work_json(const MeasuredWork& work) {
    return {{"dtype", name(work.dtype)},
            {"weight_bytes", work.parameter_bytes.weight},
            {"gradient_bytes", work.parameter_bytes.gradient},
            {"optimizer_bytes", work.parameter_bytes.optimizer},
            {"hidden", work.hidden},
            {"intermediate", work.intermediate},
            {"vocab", work.vocab},
            {"sequence", work.sequence},
            {"microbatch_size", work.microbatch_size},
            {"recompute", name(work.recompute)},
            {"layer_parameters", work.layer_parameters},
            {"model", work.model}};
  }

  static double time(JsonValue object, std::string_view key) { return object.at(key).positive_or_zero(); }
  static MeasuredPass read_pass(JsonValue value) {
    value.only("layer", "embedding", "head");
    return {.layer = time(value, "layer"), .embedding = time(value, "embedding"), .head = time(value, "head")};
  }

  static MeasuredWork read_work(JsonValue value) {
    value.only("dtype", "weight_bytes", "gradient_bytes", "optimizer_bytes", "hidden", "intermediate", "vocab", "sequence",
               "microbatch_size", "recompute", "layer_parameters", "model");
    const auto whole = [&](std::string_view key, std::int32_t least) { return value.at(key).whole<std::int32_t>(least); };
    MeasuredWork work;
    work.dtype = value.at("dtype").parsed(parse_dtype);
    work.recompute = value.at("recompute").parsed(parse_recompute);
    work.parameter_bytes = {
        .weight = whole("weight_bytes", 0), .gradient = whole("gradient_bytes", 0), .optimizer = whole("optimizer_bytes", 0)};
    work.hidden = whole("hidden", 1);
    work.intermediate = whole("intermediate", 1);
    work.vocab = whole("vocab", 1);
    work.sequence = whole("sequence", 1);
    work.microbatch_size = whole("microbatch_size", 1);
    if (const auto model = value.find("model")) work.model = model->label();
    if (const auto count = value.find("layer_parameters")) work.layer_parameters = count->whole<std::int64_t>(0);
    return work;
  }
};

}  // namespace detail

/// The file's text: the setup of the measurement, and all times in seconds. Numbers are written
/// without loss.
/// @throws InputError  if it does not say what was measured and where, or a layer takes no time.
inline std::string measured_json(const MeasuredCost& cost) {
  if (!cost.work || cost.device.empty())
    throw InputError("measured times are written with their work and device (MeasuredCost::work, device); give both");
  cost.check_times();
  return detail::MeasuredJson::write(cost).dump(2) + "\n";
}

/// Reads measured times; unmeasured times may be missing.
/// @param source  the file's name, for messages
/// @throws InputError  in one line, naming the key that is wrong, or what to add where a file does
/// not say what was measured and where; if a layer takes no time.
inline MeasuredCost parse_measured_json(std::string_view text, std::string_view source = "measured cost") {
  const JsonDocument json{text, source};
  MeasuredCost cost = detail::MeasuredJson::read(json.root());
  try {
    cost.check_times();
  } catch (const InputError& error) {
    json.root().fail(error.what());
  }
  return cost;
}

}  // namespace tawpipe
