// Measured times as JSON: what `tawpipe calibrate` writes and --cost measured:FILE reads (docs/interchange.md).
// Not: how they are found (analysis/calibrate.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/report/detail/json_reader.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The keys of a measured cost's file, in its order.
class MeasuredJson {
  /// The passes by their keys, of a cost that is written or read.
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
    if (cost.work) json["work"] = work_json(*cost.work);
    for (const auto& [key, pass] : passes(cost)) {
      if (*pass) json["seconds"][std::string{key}] = pass_json(**pass);
    }
    if (cost.update) json["seconds"]["update"] = {{"once", cost.update->once}, {"byte", cost.update->byte}};
    for (const auto& [key, link] : links(cost)) {
      if (*link) json["seconds"][std::string{key}] = {{"latency", (*link)->latency}, {"byte", (*link)->byte}};
    }
    return json;
  }

  static MeasuredCost read(const nlohmann::json& json) {
    const JsonPath root;
    const JsonValue file{json, root};
    file.expect_object(file_keys);
    file.with("measured_cost", [](const JsonValue& version) { version.whole(1, 1); });
    MeasuredCost cost;
    file.if_has("work", [&](const JsonValue& value) { cost.work = read_work(value); });
    file.with("seconds", [&](const JsonValue& value) {
      value.expect_object(seconds_keys);
      for (const auto& [key, pass] : passes(cost)) {
        value.if_has(key, [target = pass](const JsonValue& one) { *target = read_pass(one); });
      }
      value.if_has("update", [&](const JsonValue& one) { cost.update = read_update(one); });
      for (const auto& [key, link] : links(cost)) {
        value.if_has(key, [target = link](const JsonValue& one) { *target = read_link(one); });
      }
    });
    return cost;
  }

 private:
  static constexpr std::array<std::string_view, 3> file_keys{"measured_cost", "work", "seconds"};
  static constexpr std::array<std::string_view, 7> seconds_keys{"forward", "backward",   "backward_input", "backward_weight",
                                                                "update",  "intra_node", "inter_node"};
  static constexpr std::array<std::string_view, 10> work_keys{
      "dtype",        "weight_bytes", "gradient_bytes", "optimizer_bytes", "hidden",
      "intermediate", "vocab",        "sequence",       "microbatch_size", "recompute"};
  static constexpr std::array<std::string_view, 3> pass_keys{"layer", "embedding", "head"};
  static constexpr std::array<std::string_view, 2> update_keys{"once", "byte"};
  static constexpr std::array<std::string_view, 2> link_keys{"latency", "byte"};

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
            {"recompute", name(work.recompute)}};
  }

  static double time(const JsonValue& object, std::string_view key) {
    double value = 0;
    object.with(key, [&](const JsonValue& one) { value = one.positive_or_zero(); });
    return value;
  }
  static MeasuredPass read_pass(const JsonValue& value) {
    value.expect_object(pass_keys);
    return {.layer = time(value, "layer"), .embedding = time(value, "embedding"), .head = time(value, "head")};
  }
  static MeasuredUpdate read_update(const JsonValue& value) {
    value.expect_object(update_keys);
    return {.once = time(value, "once"), .byte = time(value, "byte")};
  }
  static MeasuredLink read_link(const JsonValue& value) {
    value.expect_object(link_keys);
    return {.latency = time(value, "latency"), .byte = time(value, "byte")};
  }

  /// A name, by the function that reads such names.
  template <class Parse>
  static auto named(const JsonValue& value, Parse parse) {
    const std::string& text = value.text();
    try {
      return parse(text);
    } catch (const InputError& error) {
      value.fail(error.what());
    }
  }

  static MeasuredWork read_work(const JsonValue& value) {
    value.expect_object(work_keys);
    const auto whole = [&](std::string_view key, std::int64_t least) {
      std::int64_t number = 0;
      value.with(key, [&](const JsonValue& one) { number = one.whole(least, std::numeric_limits<std::int32_t>::max()); });
      return number;
    };
    MeasuredWork work;
    value.with("dtype", [&](const JsonValue& one) { work.dtype = named(one, parse_dtype); });
    value.with("recompute", [&](const JsonValue& one) { work.recompute = named(one, parse_recompute); });
    work.parameter_bytes = {
        .weight = whole("weight_bytes", 0), .gradient = whole("gradient_bytes", 0), .optimizer = whole("optimizer_bytes", 0)};
    work.hidden = whole("hidden", 1);
    work.intermediate = whole("intermediate", 1);
    work.vocab = whole("vocab", 1);
    work.sequence = whole("sequence", 1);
    work.microbatch_size = whole("microbatch_size", 1);
    return work;
  }
};

}  // namespace detail

/// The file's text: what was measured with, and all times in seconds. Numbers are written without loss.
inline std::string measured_json(const MeasuredCost& cost) { return detail::MeasuredJson::write(cost).dump(2) + "\n"; }

/// Reads measured times; times that were not measured are left out, `work` where it is not known.
/// @param source  the file's name, for messages
/// @throws InputError  in one line, naming the key that is wrong.
inline MeasuredCost parse_measured_json(std::string_view text, std::string_view source = "measured cost") {
  try {
    return detail::MeasuredJson::read(detail::parse_json_strictly(text));
  } catch (const InputError& error) {
    throw InputError(one_line(concat(source, ": ", error.what())));
  }
}

}  // namespace tawpipe
