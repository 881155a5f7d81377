// Reads the work in a schedule's JSON: the workload and the stages.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/report/detail/schedule_json_decoder.hpp"
#include "tawpipe/report/detail/schedule_json_defaults.hpp"

namespace tawpipe::inline v0::detail {

/// Bytes as a number, or as text with a unit: 25000000 or "25MB".
inline Bytes read_bytes(JsonValue value) {
  if (!value.is_text()) {
    if (!value.is_whole()) value.expected("a number of bytes or a text such as \"25MB\"");
    return Bytes{value.whole<std::int64_t>(0, max_json_bytes)};
  }
  const Bytes bytes = value.parsed([](const std::string& text) { return parse_bytes(text.substr(0, 40)); });
  if (bytes > Bytes{max_json_bytes}) value.fail(concat("expected at most ", max_json_bytes, " bytes"));
  return bytes;
}

inline void read_stage_number(JsonValue value, std::int64_t& into) { into = value.whole<std::int64_t>(0, max_json_parameters); }
inline void read_stage_number(JsonValue value, Bytes& into) { into = read_bytes(value); }
inline void read_stage_number(JsonValue value, Flops& into) { into = Flops{value.positive_or_zero()}; }

/// The names of a model's parameters: blocks before the layers with their numbers of parameters,
/// the layers' own name by itself, blocks after them.
inline ParameterNames read_names(JsonValue list) {
  ParameterNames names;
  std::vector<ParameterBlock>* edge = &names.first_edge;
  for (const JsonValue block : list) {
    if (edge == &names.first_edge && block.size() == 1) {
      names.layer = block[0].label();
      edge = &names.last_edge;
      continue;
    }
    block.of_size(2, "a name and a number of parameters, such as [\"embedding\", 4096]");
    edge->push_back({block[0].label(), block[1].whole<std::int64_t>(0, max_json_parameters)});
  }
  if (edge == &names.first_edge) list.fail("no entry names the layers, as [\"layer\"] does");
  return names;
}

/// Whether a model's sizes are a decoder's: it says so, or they have the names of all that each has.
inline bool is_decoder(JsonValue model) {
  const bool has_layers = model.has("kinds") || model.has("mtp");
  const auto sizes = model.find("sizes");
  if (const auto says = model.find("decoder")) {
    if (!says->boolean() && has_layers) says->fail("a model that has kinds of layers or further tokens' is a decoder");
    return says->boolean();
  }
  return has_layers || (sizes && names_decoder([&](std::string_view key) { return sizes->has(key); }));
}

/// The parts of a model of any kind, as written by the writer. `norm_parameters` is that of older
/// files, without names.
inline LayerStack read_layer_stack(JsonValue value) {
  value.only("name", "layers", "dtype", "tied", "lookup_waits_in_layer", "norm_parameters", "blocks", "keys", "token_ids",
             "utilization", "utilization_source", "decoder", "sizes", "kinds", "mtp", "embedding", "layer", "recompute_layers",
             "kept_layer", "pattern", "other_layers", "head", "experts");
  LayerStack model = read_stack(value);
  if (const auto waits = value.find("lookup_waits_in_layer")) model.lookup_waits_in_layer = waits->boolean();
  if (const auto blocks = value.find("blocks")) model.names = read_names(*blocks);
  if (const auto bytes = value.find("keys")) model.keys = read_bytes(*bytes);
  if (const auto number = value.find("token_ids")) model.token_ids = number->whole<std::int32_t>(0);
  const auto read_experts = [](JsonValue of, ParameterRange& into) {
    const auto range = of.find("experts");
    if (!range) return;
    range->of_size(2, "the first of a layer's parameters that is of experts, and the first after them");
    const auto one = [&](std::size_t i) { return (*range)[i].whole<std::int64_t>(0, max_json_parameters); };
    into = {one(0), one(1)};
  };
  read_experts(value, model.experts);
  if (is_decoder(value)) {
    model.decoder = read_decoder(value, value.at("sizes"), model);
  } else if (const auto sizes = value.find("sizes")) {
    for (const auto& [key, size] : sizes->members()) model.sizes.emplace_back(key, size.whole<std::int64_t>(0));
  }
  const auto read_part = [](JsonValue of, std::string_view key, StageWork& part) {
    const auto found = of.find(key);
    if (!found) return;
    std::vector<std::string_view> keys;
    for_each_stage_number(part, [&](std::string_view name, const auto&) {
      if (name != "edge_parameters") keys.push_back(name);
    });
    found->only(std::span<const std::string_view>{keys});
    for_each_stage_number(part, [&](std::string_view name, auto& into) {
      if (const auto number = found->find(name)) read_stage_number(*number, into);
    });
  };
  read_part(value, "embedding", model.first_edge);
  read_part(value, "layer", model.layer);
  if (const auto number = value.find("recompute_layers"))
    model.recompute_layers = number->whole<std::int32_t>(1, LayerStack::max_layers);
  if (model.recompute_layers > 0) read_part(value, "kept_layer", model.kept_layer);
  if (const auto kinds = value.find("other_layers")) {
    for (const JsonValue kind : *kinds) {
      kind.only("layer", "kept_layer", "experts");
      LayerWork& other = model.others.emplace_back();
      read_part(kind, "layer", other.layer);
      if (model.recompute_layers > 0) read_part(kind, "kept_layer", other.kept_layer);
      read_experts(kind, other.experts);
    }
    if (model.others.size() > 255) kinds->fail("has more than 255 kinds of layers");
  }
  if (const auto runs = value.find("pattern")) model.pattern = read_pattern(*runs, model.layers, model.others.size() + 1);
  read_part(value, "head", model.last_edge);
  return model;
}

/// What a file leaves out of a decoder that was written part by part: kernels, and what older files did
/// not say.
inline void add_kernels(LayerStack& stack, const Batch& batch, Recompute recompute) {
  LayerStack made = layer_stack(*stack.decoder, batch, recompute);
  if (stack.names == ParameterNames{}) stack.names = std::move(made.names);
  stack.edges_count_as_layers = made.edges_count_as_layers;
  stack.shard_copies = made.shard_copies;
  stack.gathered_bytes = made.gathered_bytes;
  if (stack.last_edge.parameters == made.last_edge.parameters) stack.last_edge_experts = made.last_edge_experts;
  if (stack.experts.count() == 0 && stack.layer.parameters == made.layer.parameters) stack.experts = made.experts;
  if (stack.others.size() != made.others.size()) return;
  std::vector<StageWork*> parts;
  LayerStack::for_each_part(made, [&](const char*, StageWork& part) { parts.push_back(&part); });
  std::size_t next = 0;
  LayerStack::for_each_part(stack, [&](const char*, StageWork& part) { part.kernels = std::move(parts[next++]->kernels); });
}

/// {"devices", "microbatches"}, or {"model", "batch", "recompute", "devices", "parameter_bytes"}.
/// @param ranks  the devices if it does not name them
inline Workload read_workload(JsonValue value, int ranks) {
  int devices = ranks;
  const auto read_devices = [&] {
    if (const auto number = value.find("devices")) devices = number->whole<int>(1, max_json_ranks);
  };
  if (!value.has("model")) {
    value.only("devices", "microbatches");
    read_devices();
    return Workload::abstract(devices, value.at("microbatches").whole<std::int64_t>(1, max_json_microbatches));
  }
  value.only("model", "batch", "recompute", "devices", "parameter_bytes");
  read_devices();
  const JsonValue sizes = value.at("batch").only("sequence", "microbatch_size", "global_batch");
  const auto size = [](JsonValue number) { return number.whole<std::int64_t>(1, Batch::max_global_batch); };
  Batch batch{.sequence = size(sizes.at("sequence")), .microbatch_size = 1, .global_batch = size(sizes.at("global_batch"))};
  if (const auto number = sizes.find("microbatch_size")) batch.microbatch_size = size(*number);
  const JsonValue model = value.at("model");
  Recompute recompute = Recompute::none;
  if (const auto text = value.find("recompute")) recompute = text->enumerator<Recompute>(3, "recomputation");
  LayerStack parts;
  if (model.is_text()) {
    parts.decoder = model.parsed([](const std::string& text) { return models::named(text.substr(0, 60)); });
  } else if (model.has("layer")) {
    parts = read_layer_stack(model);
  } else {
    parts.decoder = read_decoder(model, model, read_stack(model));
  }
  std::optional<Workload> workload;
  try {
    if (parts.layers == 0) {
      parts = layer_stack(*parts.decoder, batch, recompute);
    } else if (parts.decoder) {
      add_kernels(parts, batch, recompute);
    }
    workload.emplace(std::move(parts), batch, recompute);
  } catch (const InputError& error) {
    value.fail(error.what());
  }
  if (workload->microbatches() > max_json_microbatches) {
    value.fail(concat(workload->microbatches(), " microbatches are too many; the most is ", max_json_microbatches));
  }
  if (const auto bytes = value.find("parameter_bytes")) {
    bytes->of_size(3, "bytes of a weight, a gradient and its optimizer states, such as [2, 2, 12]");
    const auto one = [&](std::size_t i) { return (*bytes)[i].whole<std::int64_t>(0, 64); };
    workload->parameter_bytes({.weight = one(0), .gradient = one(1), .optimizer = one(2)});
  }
  return workload->over_devices(devices);
}

inline StageWork read_stage(JsonValue value) {
  StageWork stage;
  std::vector<std::string_view> keys{"first_layer", "layers", "embedding", "head", "share"};
  for_each_stage_number(stage, [&](std::string_view key, const auto&) { keys.push_back(key); });
  value.only(std::span<const std::string_view>{keys});
  const auto layers = [&](std::string_view key, std::int32_t& into) {
    if (const auto number = value.find(key)) into = number->whole<std::int32_t>(0, Transformer::max_layers);
  };
  layers("first_layer", stage.first_layer);
  layers("layers", stage.layers);
  if (const auto has = value.find("embedding")) stage.first_edge = has->boolean();
  if (const auto has = value.find("head")) stage.last_edge = has->boolean();
  if (const auto share = value.find("share")) {
    share->of_size(2, "two numbers, such as [1, 2] for one half");
    stage.share = {(*share)[0].whole<std::int32_t>(0, max_json_share), (*share)[1].whole<std::int32_t>(1, max_json_share)};
  }
  for_each_stage_number(stage, [&](std::string_view key, auto& into) {
    if (const auto number = value.find(key)) read_stage_number(*number, into);
  });
  return stage;
}

/// The kernels of a stage that equals the workload's own: they are not written. Those of any other
/// stage are unknown.
inline void add_kernels(StageWork& stage, const Workload& workload) {
  if (workload.is_abstract() || stage.layers > workload.model().layers - stage.first_layer) return;
  const LayerStack& model = workload.model();
  const std::int32_t usual = model.recompute_layers > 0 ? std::min(stage.layers, model.recompute_layers) : stage.layers;
  for (const std::int32_t recomputed : {usual, 0}) {
    StageWork made = model.stage(stage.first_layer, stage.layers, stage.first_edge, stage.last_edge, recomputed);
    if (made.parameters != stage.parameters || made.saved != stage.saved || made.forward != stage.forward ||
        made.backward_input != stage.backward_input || made.backward_weight != stage.backward_weight) {
      continue;
    }
    stage.recomputed = recomputed;
    stage.kinds = std::move(made.kinds);
    stage.expert_parameters = made.expert_parameters;
    stage.kernels = std::move(made.kernels);
    return;
  }
}

/// A list of stages; or their number, with the workload cut as evenly as possible; or "units", the
/// cut of sharded data parallelism.
inline std::vector<StageWork> read_stages(JsonValue value, const Workload& workload) {
  if (value.is_whole()) return workload.split(value.whole<int>(1, max_json_stages));
  if (value.is_text()) {
    if (value.text() != "units") value.fail("expected a list of stages, their number, or \"units\"");
    return workload.units();
  }
  if (std::cmp_greater(value.size(), max_json_stages)) value.fail(concat("at most ", max_json_stages, " stages fit"));
  std::vector<StageWork> stages;
  for (const JsonValue stage : value) {
    stages.push_back(read_stage(stage));
    add_kernels(stages.back(), workload);
  }
  return stages;
}

}  // namespace tawpipe::detail
