// Reads what a schedule's JSON says of the work: the workload and the stages.
// Not: public; report/schedule_json.hpp is the door.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/report/detail/json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_defaults.hpp"

namespace tawpipe::inline v0::detail {

/// Bytes as a number, or as text with a unit: 25000000 or "25MB".
inline Bytes read_bytes(JsonValue value) {
  if (!value.is_text()) {
    if (!value.is_whole()) value.fail(concat("expected a number of bytes or a text such as \"25MB\", not ", shown(value.json())));
    return Bytes{value.whole(0, max_json_bytes)};
  }
  Bytes bytes;
  try {
    bytes = parse_bytes(value.text().substr(0, 40));
  } catch (const InputError& error) {
    value.fail(error.what());
  }
  if (bytes > Bytes{max_json_bytes}) value.fail(concat("expected at most ", max_json_bytes, " bytes"));
  return bytes;
}

/// A model by its name (`tawpipe list models`), or by its sizes.
inline Transformer read_model(JsonValue value) {
  if (value.is_text()) return models::named(value.text().substr(0, 60));
  static constexpr std::string_view keys[] = {"name",         "layers", "hidden", "heads", "kv_heads",    "head_dim",
                                              "intermediate", "vocab",  "tied",   "dtype", "utilization", "utilization_source"};
  value.expect_object(keys);
  Transformer model;
  const auto size = [&](std::string_view key, int& into) {
    value.with(key, [&](JsonValue number) { into = static_cast<int>(number.whole(1, std::numeric_limits<int>::max())); });
  };
  value.if_has("name", [&](JsonValue text) { model.name = text.text(); });
  size("layers", model.layers);
  size("hidden", model.hidden);
  size("heads", model.heads);
  model.kv_heads = model.heads;
  if (value.has("kv_heads")) size("kv_heads", model.kv_heads);
  if (value.has("head_dim")) size("head_dim", model.head_dim.emplace());
  size("intermediate", model.intermediate);
  size("vocab", model.vocab);
  value.if_has("tied", [&](JsonValue tied) { model.tied = tied.boolean(); });
  value.if_has("dtype", [&](JsonValue dtype) { model.dtype = parse_dtype(dtype.text().substr(0, 40)); });
  value.if_has("utilization", [&](JsonValue number) { model.utilization = number.positive_or_zero(); });
  value.if_has("utilization_source", [&](JsonValue text) { model.utilization_source = text.text(); });
  return model;
}

/// {"devices", "microbatches"}, or {"model", "batch", "recompute", "devices", "parameter_bytes"}.
/// @param ranks  the devices where it does not say
inline Workload read_workload(JsonValue value, int ranks) {
  int devices = ranks;
  const auto read_devices = [&] {
    value.if_has("devices", [&](JsonValue number) { devices = static_cast<int>(number.whole(1, max_json_ranks)); });
  };
  if (value.json().is_object() && !value.has("model")) {
    static constexpr std::string_view keys[] = {"devices", "microbatches"};
    value.expect_object(keys);
    read_devices();
    std::int64_t microbatches = 0;
    value.with("microbatches", [&](JsonValue number) { microbatches = number.whole(1, max_json_microbatches); });
    return Workload::abstract(devices, microbatches);
  }
  static constexpr std::string_view keys[] = {"model", "batch", "recompute", "devices", "parameter_bytes"};
  value.expect_object(keys);
  read_devices();
  Batch batch;
  value.with("batch", [&](JsonValue object) {
    static constexpr std::string_view batch_keys[] = {"sequence", "microbatch_size", "global_batch"};
    object.expect_object(batch_keys);
    const auto size = [](std::int64_t& into) {
      return [&into](JsonValue number) { into = number.whole(1, Batch::max_global_batch); };
    };
    object.with("sequence", size(batch.sequence));
    object.if_has("microbatch_size", size(batch.microbatch_size));
    object.with("global_batch", size(batch.global_batch));
  });
  std::optional<Workload> workload;
  try {
    Transformer model;
    value.with("model", [&](JsonValue of) { model = read_model(of); });
    Recompute recompute = Recompute::none;
    value.if_has("recompute", [&](JsonValue text) { recompute = text.enumerator<Recompute>(3, "recomputation"); });
    workload.emplace(model, batch, recompute);
  } catch (const InputError& error) {
    if (std::string_view{error.what()}.starts_with("workload")) throw;
    value.fail(error.what());
  }
  if (workload->microbatches() > max_json_microbatches) {
    value.fail(concat(workload->microbatches(), " microbatches are too many; the most is ", max_json_microbatches));
  }
  value.if_has("parameter_bytes", [&](JsonValue sizes) {
    if (sizes.list_size() != 3) sizes.fail("expected bytes of a weight, a gradient and its optimizer states, such as [2, 2, 12]");
    std::int64_t bytes[3] = {};
    sizes.for_each([&](JsonValue size, std::size_t i) { bytes[i] = size.whole(0, 64); });
    workload->parameter_bytes({.weight = bytes[0], .gradient = bytes[1], .optimizer = bytes[2]});
  });
  return workload->over_devices(devices);
}

inline StageWork read_stage(JsonValue value) {
  static constexpr std::string_view keys[] = {"first_layer",     "layers",          "embedding",         "head",
                                              "share",           "parameters",      "edge_parameters",   "saved",
                                              "stash",           "boundary",        "forward_workspace", "backward_workspace",
                                              "forward",         "recompute",       "backward_input",    "backward_weight",
                                              "forward_traffic", "backward_traffic"};
  value.expect_object(keys);
  StageWork stage;
  const auto layers = [&](std::string_view key, std::int32_t& into) {
    value.if_has(key, [&](JsonValue number) { into = static_cast<std::int32_t>(number.whole(0, Transformer::max_layers)); });
  };
  const auto parameters = [&](std::string_view key, std::int64_t& into) {
    value.if_has(key, [&](JsonValue number) { into = number.whole(0, max_json_parameters); });
  };
  const auto bytes = [&](std::string_view key, Bytes& into) {
    value.if_has(key, [&](JsonValue size) { into = read_bytes(size); });
  };
  const auto flops = [&](std::string_view key, Flops& into) {
    value.if_has(key, [&](JsonValue number) { into = Flops{number.positive_or_zero()}; });
  };
  layers("first_layer", stage.first_layer);
  layers("layers", stage.layers);
  value.if_has("embedding", [&](JsonValue has) { stage.embedding = has.boolean(); });
  value.if_has("head", [&](JsonValue has) { stage.head = has.boolean(); });
  value.if_has("share", [&](JsonValue share) {
    if (share.list_size() != 2) share.fail("expected two numbers, such as [1, 2] for one half");
    share.for_each([&](JsonValue number, std::size_t i) {
      auto& into = i == 0 ? stage.share.numerator : stage.share.denominator;
      into = static_cast<std::int32_t>(number.whole(i == 0 ? 0 : 1, max_json_share));
    });
  });
  parameters("parameters", stage.parameters);
  parameters("edge_parameters", stage.edge_parameters);
  bytes("saved", stage.saved);
  bytes("stash", stage.stash);
  bytes("boundary", stage.boundary);
  bytes("forward_workspace", stage.forward_workspace);
  bytes("backward_workspace", stage.backward_workspace);
  flops("forward", stage.forward);
  flops("recompute", stage.recompute);
  flops("backward_input", stage.backward_input);
  flops("backward_weight", stage.backward_weight);
  bytes("forward_traffic", stage.forward_traffic);
  bytes("backward_traffic", stage.backward_traffic);
  return stage;
}

/// A list of stages; or how many, the workload cut as evenly as can be; or "units", as sharded data parallelism cuts it.
inline std::vector<StageWork> read_stages(JsonValue value, const Workload& workload) {
  if (value.is_whole()) return workload.split(static_cast<int>(value.whole(1, max_json_stages)));
  if (value.is_text()) {
    if (value.text() != "units") value.fail("expected a list of stages, their number, or \"units\"");
    return workload.units();
  }
  if (value.list_size() > static_cast<std::size_t>(max_json_stages))
    value.fail(concat("at most ", max_json_stages, " stages fit"));
  std::vector<StageWork> stages;
  value.for_each([&](JsonValue stage, std::size_t) { stages.push_back(read_stage(stage)); });
  return stages;
}

}  // namespace tawpipe::detail
