// `tawpipe list schedules|clusters|devices|models`.
#include "list.hpp"

#include "../request.hpp"
#include "../terminal_text.hpp"
#include "output.hpp"
#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::sim {

namespace {

using Json = nlohmann::ordered_json;

std::string schedules_text() {
  Table table{{{"schedule"}, {"what moves, and how"}}};
  Table options{{{"schedule"}, {"option"}, {"values"}, {"default"}, {"auto tries"}, {"meaning"}}};
  for (const auto& info : shipped().schedules()) {
    table.row({info.name, concat(info.description, " [", info.source, "]")});
    for (const auto& option : info.options) {
      options.row({info.name, option.name, option.values, option.standard, join(option.tried, ", "), option.meaning});
    }
  }
  return table.str(terminal_style()) + "\n" + options.str(terminal_style()) +
         "\nUse: --schedule NAME --option KEY=VALUE, or KEY=auto: the fastest that fits of those tried, or else the default.\n"
         "compare and plan leave to auto what is not given.\n";
}

Json schedules_json() {
  Json all = Json::array();
  for (const auto& info : shipped().schedules()) {
    Json options = Json::array();
    for (const auto& option : info.options) {
      options.push_back({{"name", option.name},
                         {"values", option.values},
                         {"default", option.standard},
                         {"tried", option.tried},
                         {"meaning", option.meaning}});
    }
    all.push_back(
        {{"name", info.name}, {"description", info.description}, {"source", info.source}, {"options", std::move(options)}});
  }
  return all;
}

std::string clusters_text() {
  Table table{{{"cluster"}, {"devices", Align::right}, {"what it is"}, {"source"}}};
  for (const auto& preset : clusters::all()) {
    const Cluster cluster = preset.make(preset.nodes);
    table.row(
        {std::string{preset.name}, std::to_string(cluster.ranks()), std::string{preset.description}, std::string{preset.source}});
  }
  std::vector<std::string> others;
  for (const auto& [other, preset] : clusters::other_names()) others.push_back(concat(other, " (", preset, ")"));
  return table.str(terminal_style()) + "\nOther names, in any case: " + join(others, ", ") +
         ".\nAlso: NAME*NODES for several nodes (dgx-h100*16), NxM for N nodes of M A100s, 8+8+4 for unequal nodes,\n"
         "64xMI300X for so many devices, sums (dgx-h100*2+dgx-a100*2), or a file: JSON (docs/topology.md), the output of\n"
         "nvidia-smi topo -m or rocm-smi --showtopo, or NCCL's topology XML.\n";
}

Json clusters_json() {
  Json all = Json::array();
  for (const auto& preset : clusters::all()) {
    const Cluster cluster = preset.make(preset.nodes);
    all.push_back({{"name", preset.name},
                   {"nodes", cluster.nodes()},
                   {"ranks", cluster.ranks()},
                   {"description", preset.description},
                   {"source", preset.source}});
  }
  return all;
}

std::string devices_text() {
  Table table{{{"device"},
               {"memory", Align::right},
               {"peak", Align::right},
               {"8 bits", Align::right},
               {"4 bits", Align::right},
               {"memory rate", Align::right},
               {"curves"},
               {"source"}}};
  const auto rate = [](FlopsPerSecond peak) { return peak.value() > 0 ? format_flops_rate(peak) : std::string{"-"}; };
  for (const KnownDevice& known : known_devices()) {
    const DeviceSpec device = spec_of(known);
    table.row({device.name, format_memory(device.memory), rate(device.peak), rate(device.peak_fp8), rate(device.peak_fp4),
               format_bandwidth(device.memory_bandwidth),
               has_own_curves(device) ? std::string{curves_of(known.sm).generation} : std::string{"none"},
               std::string{known.source}});
  }
  return table.str(terminal_style()) +
         "\nPeaks are dense. A device without curves of its own is timed by an A100's shares of its peaks (docs/costs.md).\n"
         "--device also takes a model (h100, 4090: the first of several memories) and what a driver calls it.\n";
}

Json devices_json() {
  Json all = Json::array();
  for (const KnownDevice& known : known_devices()) {
    const DeviceSpec device = spec_of(known);
    all.push_back({{"name", device.name},
                   {"memory_bytes", device.memory.value()},
                   {"flops_per_second", device.peak.value()},
                   {"fp8_flops_per_second", device.peak_fp8.value()},
                   {"fp4_flops_per_second", device.peak_fp4.value()},
                   {"memory_bytes_per_second", device.memory_bandwidth.value()},
                   {"sms", device.sms},
                   {"watts", known.watts},
                   {"own_curves", has_own_curves(device)},
                   {"source", known.source}});
  }
  return all;
}

std::string models_text() {
  Table table{
      {{"model"}, {"parameters", Align::right}, {"layers", Align::right}, {"hidden", Align::right}, {"what it is"}, {"source"}}};
  for (const auto& preset : models::all()) {
    const Transformer model = preset.make();
    table.row({std::string{preset.name}, format_count(model.parameters()), std::to_string(model.layers),
               std::to_string(model.hidden), std::string{preset.description}, std::string{preset.source}});
  }
  return table.str(terminal_style()) +
         "\nAlso: llama-LxH for L layers of hidden size H, or a Hugging Face config.json (or its folder).\n";
}

Json models_json() {
  Json all = Json::array();
  for (const auto& preset : models::all()) {
    const Transformer model = preset.make();
    all.push_back({{"name", preset.name},
                   {"parameters", model.parameters()},
                   {"active_parameters", model.active_parameters()},
                   {"layers", model.layers},
                   {"hidden", model.hidden},
                   {"heads", model.heads},
                   {"kv_heads", model.kv_heads},
                   {"intermediate", model.intermediate},
                   {"experts", model.experts},
                   {"experts_per_token", model.experts_per_token},
                   {"shared_width", model.shared_width},
                   {"expert_groups", model.expert_groups},
                   {"groups_per_token", model.groups_per_token},
                   {"vocab", model.vocab},
                   {"tied", model.tied},
                   {"layer_parameters", model.layer_parameters()},
                   {"utilization", model.utilization},
                   {"description", preset.description},
                   {"source", preset.source}});
  }
  return all;
}

}  // namespace

nlohmann::ordered_json list_json(const std::string& what) {
  return what == "schedules"  ? schedules_json()
         : what == "clusters" ? clusters_json()
         : what == "devices"  ? devices_json()
                              : models_json();
}

int run_list(const std::string& what, const std::string& json) {
  if (!json.empty()) {
    write_output(json, list_json(what).dump(2) + "\n");
    return ok;
  }
  print(what == "schedules"  ? schedules_text()
        : what == "clusters" ? clusters_text()
        : what == "devices"  ? devices_text()
                             : models_text());
  return ok;
}

}  // namespace tawpipe::sim
