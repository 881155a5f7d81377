// The problem in words, as printed by the commands above their results.
// Not: the results (commands/).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tawpipe/answers/job_question.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::inline v0::answers {

namespace {

std::string describe_times(const Cost& cost, const DeviceSpec& device, ProductFormat format) {
  if (const auto* kernels = std::get_if<KernelCost>(&cost)) {
    const DeviceCurves curves = kernels->curves(device);
    const bool four = format == ProductFormat::nvfp4;
    const double share = product_peak(format, curves, device).share;
    return fmt::format("kernels by shape as on {}{}{}: GEMMs at most {} of the {}peak, {} of the memory bandwidth{}",
                       curves.generation, has_own_curves(device) ? "" : concat(" (", device.name, " has no curves of its own)"),
                       kernels->changes.empty() ? "" : ", with figures replaced", format_percent(share, 0),
                       four                ? "4-bit "
                       : is_narrow(format) ? "8-bit "
                                           : "matrix ",
                       format_percent(curves.memory, 0),
                       kernels->graphs == CudaGraphs::layers      ? "; a CUDA graph for each layer"
                       : kernels->graphs == CudaGraphs::iteration ? "; a CUDA graph for a step"
                                                                  : "");
  }
  if (const auto* fixed = std::get_if<FixedCost>(&cost)) {
    return fmt::format("fixed times: forward {}, backward input {}, backward weight {}, transfer {}",
                       format_duration(fixed->forward), format_duration(fixed->backward_input),
                       format_duration(fixed->backward_weight), format_duration(fixed->transfer));
  }
  if (const auto* measured = std::get_if<MeasuredCost>(&cost)) {
    if (!measured->work) return "measured times";
    return concat("measured times", measured->work->model.empty() ? std::string{} : concat(" of ", measured->work->model), " on ",
                  measured->device, measured->software.empty() ? std::string{} : concat(" (", measured->software, ")"));
  }
  const auto& roofline = std::get<RooflineCost>(cost);
  return fmt::format("roofline: {} of the matrix peak, {} of the memory bandwidth{}", format_percent(roofline.utilization, 0),
                     format_percent(roofline.memory_utilization, 0),
                     roofline.nccl_collectives ? "; collectives as NCCL's tuner chooses" : "");
}

/// What a vocabulary costs whose part on a device is no multiple of 8 entries; "" if nothing.
std::string vocabulary_text(const Problem& problem) {
  const auto* kernels = std::get_if<KernelCost>(&problem.cost);
  if (kernels == nullptr || !problem.model || problem.model->pads_vocabulary()) return "";
  const Kernel whole{.pass = KernelPass::backward_input,
                     .by_tensor = Kernel::Dimension::k,
                     .n = problem.model->hidden,
                     .k = problem.model->vocab};
  const Kernel part = whole.split(problem.mesh.tensor, 1);
  const double share = row_share(part, kernels->curves(problem.cluster.device(Rank{0})));
  if (share == 1) return "";
  return fmt::format("; {} of that in the head's backward, as the {} entries of the vocabulary on a device are no multiple of 8",
                     format_percent(share, 0), format_count(part.k));
}

/// "; no SMs held by all-gathers and all-to-alls in a node; ...", or "".
std::string zero_cta_text(const HeldSms& held) {
  const auto text = [](ZeroCta reach, const char* what) {
    if (reach == ZeroCta::off) return std::string{};
    return concat("; no SMs held by ", what, reach == ZeroCta::node ? " inside nodes" : "");
  };
  return text(held.copy_engines, "all-gathers and all-to-alls") + text(held.puts, "messages") +
         (held.launch_order_implicit ? "; communications start in the order of their calls" : "");
}

/// The cost model in one line, as on the first device: "roofline: 34 % of matrix peak, ...".
std::string describe_cost(const Problem& problem) {
  const Cost& cost = problem.cost;
  const std::string times =
      describe_times(cost, problem.cluster.device(Rank{0}), problem.model ? problem.model->products : ProductFormat::bits16) +
      vocabulary_text(problem);
  const HeldSms* const held = held_sms_of(cost);
  if (held == nullptr) return times;
  const std::string without = zero_cta_text(*held);
  if (!held->waiting && held->pair_ctas == 0) {
    const SpeedTable speeds = held->table(held->sms_of(problem.cluster.device(Rank{0})));
    const auto slower = [&](int ctas) { return format_percent(1 - speeds.speed(ctas), 0); };
    return fmt::format(
        "{}; SM contention: {} slower beside collectives{}{}", times, slower(held->collective_ctas),
        held->state_ctas ? concat(", up to ", slower(*held->state_ctas), " beside those of weights or gradients") : "", without);
  }
  return fmt::format("{}; SMs held: {} by a message, {} by a collective{}, {}{}", times, held->pair_ctas, held->collective_ctas,
                     held->state_ctas ? concat(", ", *held->state_ctas, " by one of weights or gradients") : "",
                     held->speeds.empty() ? "computing with the rest" : "at measured speeds", without);
}

/// The kinds of devices of a cluster, and how many there are of each.
using DeviceCounts = std::vector<std::pair<const DeviceSpec*, int>>;
DeviceCounts count_devices(const Cluster& cluster) {
  DeviceCounts kinds;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const DeviceSpec& device = cluster.device(Rank{rank});
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return *kind.first == device; });
    if (found != kinds.end()) {
      ++found->second;
    } else {
      kinds.emplace_back(&device, 1);
    }
  }
  return kinds;
}

/// Them and their memory: "H100-80G, 80.0 GiB", or several "16 H100-80G of 80.0 GiB, 16 A100-80G of ...".
std::string devices_text(const DeviceCounts& kinds) {
  if (kinds.size() == 1) return concat(kinds[0].first->name, ", ", format_memory(kinds[0].first->memory));
  std::vector<std::string> texts;
  for (const auto& [device, count] : kinds)
    texts.push_back(concat(count, " ", device->name, " of ", format_memory(device->memory)));
  return join(texts, ", ");
}

/// That nothing of a vendor's devices was measured; "" for NVIDIA's.
std::string unmeasured_text(const Problem& problem) {
  if (!std::holds_alternative<KernelCost>(problem.cost)) return "";
  for (const NodeType& kind : problem.cluster.kinds()) {
    const KnownDevice* const device = find_device(kind.devices.front().name);
    if (device == nullptr || device->sm != 0) continue;
    return fmt::format(
        "NOT MEASURED: no run on {} is known; its kernels are timed by an A100's shares of its own peaks, large GEMMs by "
        "what was published of them, its collectives by NCCL's table\n",
        device->name);
  }
  return "";
}

/// @param recompute  whether what is computed again belongs to the problem
std::string describe_problem(const Problem& problem, const Workload* work, bool recompute) {
  const Cluster& cluster = problem.cluster;
  const DeviceCounts devices = count_devices(cluster);
  std::string text =
      fmt::format("cluster  {}: {} {}, {} devices ({}{})\n", cluster.name(), cluster.nodes(),
                  cluster.nodes() == 1 ? "node" : "nodes", cluster.ranks(), devices_text(devices),
                  problem.usable_memory < 1 ? concat(", ", format_percent(problem.usable_memory, 0), " of it to plan with") : "");
  if (const std::string device = assumed_device(problem); !device.empty())
    text += fmt::format("device   {} is assumed, as the cluster names none; --device NAME names it\n", device);
  if (const std::string note = no_nvlinks_text(cluster); !note.empty()) text += "note     " + note;
  if (const std::string note = unmeasured_text(problem); !note.empty()) text += "note     " + note;
  if (problem.model) {
    const Transformer& model = *problem.model;
    const std::string active =
        model.is_routed() ? concat(" (", format_count(model.active_parameters()), " of them for a token)") : std::string{};
    text += fmt::format("model    {}: {} parameters{}, {}{}; {} tokens a sequence, ", model.name,
                        format_count(model.parameters()), active, name(model.dtype),
                        model.products == ProductFormat::bits16 ? std::string{} : concat(", GEMMs in ", name(model.products)),
                        format_count(problem.sequence));
    text += problem.microbatches > 0 ? fmt::format("{} microbatches", format_count(problem.microbatches))
                                     : fmt::format("{} sequences a step", format_count(problem.global_batch));
    if (recompute) text += concat(", recomputation ", recompute_text(problem));
    if (problem.offload.any()) text += fmt::format(", offload {}", name(problem.offload));
    if (problem.model->loss_chunk > 0) text += fmt::format(", loss of {} entries at a time", problem.model->loss_chunk);
    text += '\n';
  } else if (work != nullptr && !work->is_abstract()) {
    const LayerStack& model = work->model();
    text += fmt::format("model    {}: {} parameters, {}; {} sequences of {} tokens a step, recomputation {}\n", model.name,
                        format_count(model.parameters()), name(model.dtype), format_count(work->batch().global_batch),
                        format_count(work->batch().sequence), name(work->recompute()));
  } else {
    text += fmt::format("model    none: one stage a device, {} microbatches\n", format_count(problem.microbatches));
  }
  text += "cost     " + describe_cost(problem) +
          (devices.size() > 1 ? concat("; ", cluster.device(Rank{0}).name, "'s, others have their own\n") : "\n");
  if (!problem.model) return text;
  for (const std::string& note : problem.model->notes) text += concat("note     ", one_line(note), "\n");
  return text;
}

}  // namespace

std::string no_nvlinks_text(const Cluster& cluster) {
  const int links = missing_nvlinks(cluster);
  if (links == 0) return "";
  return fmt::format(
      "NO NVLINK: {} GPUs ({}) of a node meet by PCI Express only, and usually have {} NVLinks each, which a partial NCCL XML "
      "leaves "
      "out; tawpipe topology import FILE --nvlinks {} adds them\n",
      cluster.devices_in(NodeId{0}), cluster.device(Rank{0}).name, links, links);
}

std::string assumed_device(const Problem& problem) {
  if (std::holds_alternative<FixedCost>(problem.cost)) return "";
  for (const NodeType& kind : problem.cluster.kinds()) {
    for (const DeviceSpec& device : kind.devices) {
      if (device.assumed) return device.name;
    }
  }
  return "";
}

void add_cost(nlohmann::ordered_json& json, const Problem& problem) {
  json["cost"] = describe_cost(problem);
  if (const std::string device = assumed_device(problem); !device.empty()) json["assumed_device"] = device;
  add_notes(json, problem);
}

void add_notes(nlohmann::ordered_json& json, const Problem& problem) {
  if (problem.model && !problem.model->notes.empty()) json["notes"] = problem.model->notes;
}

std::string describe(const Problem& problem, const Workload* work) { return describe_problem(problem, work, true); }

std::string describe_question(const Problem& problem) { return describe_problem(problem, nullptr, false); }

}  // namespace tawpipe::answers
