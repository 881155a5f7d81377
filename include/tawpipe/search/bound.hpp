// How fast any schedule of any kind can be on a cluster: its work at the best possible rates, and
// the data that must cross each cut.
// Not: lower bounds for one layout or one schedule (search/layout_bound.hpp,
// search/lower_bound.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/search/detail/node_cuts.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// The work of an iteration, and a device's rates for it in the cost model's best case.
struct BoundWork {
  double products = 0;   ///< operations of matrix products, for all sequences; nothing recomputed
  double attention = 0;  ///< of fused attention, in the kernels' own count
  double traffic = 0;    ///< bytes of memory-bound work
  double update = 0;     ///< bytes that the optimizer reads and writes
};
struct BoundDevice {
  std::string name;
  int devices = 0;
  double products_per_s = 0;
  /// the kernels' operations over their best time, forwards and backwards together
  double attention_per_s = 0;
  double bytes_per_s = 0;
  double seconds = 0;   ///< time of one of them for all sequences
  double update_s = 0;  ///< and for the optimizer's step on all parameters
};

/// A cut of the cluster: some devices on one side, all others on the other, and the links between
/// them.
struct BoundCut {
  std::string side;        ///< "node 2", "nodes 4 to 7" or "device 5"
  double bytes_per_s = 0;  ///< over all links of the cut, both directions together
  double part_s = 0;       ///< time of this side's devices for all the work
  double rest_s = 0;       ///< time of the others
  double parameters = 0;   ///< bytes that cross if both sides compute whole tokens
  double activations = 0;  ///< bytes that cross if one side computed all tokens in part
  /// a token's mean work over the largest of any (the last of a sequence attends to all)
  double token_share = 1;
  double seconds = 0;  ///< no iteration is shorter
};

/// A bound with its derivation, for checking.
struct TrainingBound {
  double seconds = 0;  ///< no schedule is faster
  double compute_s = 0;
  bool can_hold = true;  ///< whether all devices together hold the model's states
  double states = 0;     ///< bytes
  double usable = 0;     ///< bytes
  BoundWork work;
  std::vector<BoundDevice> devices;  ///< each kind
  /// Each kind of node and of device, as far as they are connected to others, and sets of nodes
  /// that share a link of the network, or that have less bandwidth than others.
  std::vector<BoundCut> cuts;

  /// "computation", or the cut that gives the bound.
  std::string limit() const {
    for (const BoundCut& cut : cuts) {
      if (cut.seconds > compute_s && cut.seconds >= seconds) return cut.side;
    }
    return "computation";
  }
};

namespace detail {

/// Kernels or operations of one sequence on one device: all layers and the head, nothing recomputed
/// except a loss in chunks. Without the embedding, whose lookup the simulator does not time where
/// ranks share a stage of its own.
inline StageWork work_of_sequence(Transformer model, std::int64_t sequence) {
  const bool adds = model.fuses_accumulation();
  model.code = LayerCode::megatron;  // the least
  StageWork work = Workload{model, Batch{sequence, 1, 1}, Recompute::none}.stage(0, model.layers, false, true);
  for (Kernel& kernel : work.kernels) kernel.adds = adds;
  return work;
}

/// Seconds of the parts of a sequence's work on a device at its best.
struct BestTimes {
  double products = 0;
  double attention = 0;
  double traffic = 0;
};

/// The least that a product of a sequence takes for its part of all work, on one device or shared
/// by any number of tensor-parallel ones: weights keep their widths, cut in as many parts; of
/// tokens there may be any number, so many that waves of tiles over them, and what does not grow
/// with them, take nothing.
inline double min_product_seconds(const Kernel& kernel, const DeviceCurves& curves, const DeviceSpec& device, int ranks) {
  constexpr std::int64_t many = std::int64_t{1} << 30;
  const bool sums_tokens = kernel.by_context == Kernel::Dimension::k;
  const auto tokens = static_cast<double>(sums_tokens ? kernel.k : kernel.m * kernel.batch);
  double least = std::numeric_limits<double>::infinity();
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    Kernel part = kernel.split(tensor, 1);
    (sums_tokens ? part.k : part.m) = many;
    if (!sums_tokens) part.batch = 1;
    least = std::min(least, tensor * product_seconds(part, curves, device));
  }
  return kernel.count * least * tokens / static_cast<double>(many) * (1 - 1e-4);  // the last wave of so many
}

/// Rates that no layout exceeds: products of any number of tokens, no gaps between kernels,
/// attention of endless tiles.
inline BestTimes best_times(const KernelCost& cost, const StageWork& work, const DeviceSpec& device, int ranks) {
  const DeviceCurves curves = cost.curves(device);
  BestTimes times;
  for (const Kernel& kernel : work.kernels) {
    const double count = kernel.count;
    if (kernel.kind == Kernel::Kind::traffic) {
      times.traffic += count * kernel.bytes / (device.memory_bandwidth.value() * curves.memory);
    } else if (kernel.kind == Kernel::Kind::product) {
      times.products += min_product_seconds(kernel, curves, device, ranks);
    } else {
      DeviceCurves best = curves;
      best.attention_fill = best.attention_backward_fill = 0;
      times.attention += count * attention_seconds(kernel, best, device);
    }
  }
  for (double* const time : {&times.products, &times.attention, &times.traffic}) *time /= curves.speed;
  return times;
}
inline BestTimes best_times(const RooflineCost& cost, const StageWork& work, const DeviceSpec& device, int) {
  const double rate = device.peak.value() * cost.utilization;
  const double flops = (work.forward + work.recompute + work.backward_input + work.backward_weight).value();
  return {flops / rate, 0,
          static_cast<double>((work.forward_traffic + work.backward_traffic).value()) /
              (device.memory_bandwidth.value() * cost.memory_utilization)};
}
template <class Cost>
BestTimes best_times(const Cost&, const StageWork&, const DeviceSpec&, int) {
  throw InputError("a bound needs costs that know any layout: kernels or roofline, not given or measured times");
}
inline BestTimes best_times(const Problem& problem, const StageWork& work, const DeviceSpec& device) {
  return std::visit([&](const auto& cost) { return best_times(cost, work, device, problem.cluster.ranks()); }, problem.cost);
}
inline double memory_rate(const Cost& cost, const DeviceSpec& device) {
  if (const auto* kernels = std::get_if<KernelCost>(&cost)) {
    const DeviceCurves curves = kernels->curves(device);
    return device.memory_bandwidth.value() * curves.memory * curves.speed;
  }
  return device.memory_bandwidth.value() * std::get<RooflineCost>(cost).memory_utilization;
}

/// The least time in which the work can be shared and the data that must cross the cut can cross
/// it.
///
/// A side that does a fraction x of the work either has a token all of whose layers it computes, or
/// none. If both sides have one, both compute gradients of all layers: those of one side, and the
/// new weights or the other's gradients, cross. If a side has none, each token of which it computes
/// a part crosses once forwards and once backwards as a vector of the hidden size, and with N
/// tokens it needs at least x N of them. Both only grow with x and with 1 - x, so the least x that
/// leaves the others no more than they can do in the time, and the most that the side can do, are
/// decisive.
/// @param speed  of messages, over what links allow (DeviceCurves::speed)
inline double cut_seconds(const BoundCut& cut, double compute, double speed) {
  const auto possible = [&](double time) {
    const double least = 1 - time / cut.rest_s;  // of the work, on this side
    const double most = time / cut.part_s;
    if (least <= 0 || most >= 1) return true;  // one side may do all
    const double bytes =
        std::min({cut.parameters, least * cut.token_share * cut.activations, (1 - most) * cut.token_share * cut.activations});
    return bytes <= time * cut.bytes_per_s * speed;
  };
  double low = compute;
  if (possible(low)) return low;
  double high = std::min(cut.rest_s, cut.part_s);  // one side only
  for (int i = 0; i < 100 && high - low > 1e-9 * high; ++i) {
    const double middle = (low + high) / 2;
    (possible(middle) ? high : low) = middle;
  }
  return low;
}

/// Bandwidth of the links through which paths leave or enter, each once.
inline double joint_bandwidth(const NodeType& type, const std::vector<LinkPath>& paths, bool last) {
  std::vector<std::int32_t> links;
  double sum = 0;
  for (const LinkPath& path : paths) {
    if (path.empty()) continue;
    const std::int32_t link = last ? path.back() : path.front();
    if (std::find(links.begin(), links.end(), link) != links.end()) continue;
    links.push_back(link);
    sum += type.links[static_cast<std::size_t>(link)].bandwidth.value();
  }
  return sum;
}

/// The links through which a device's messages leave, or enter.
inline double device_bandwidth(const NodeType& type, std::size_t device, bool leaves) {
  const std::size_t count = type.devices.size();
  std::vector<LinkPath> paths;
  for (std::size_t other = 0; other < count; ++other) {
    if (other != device) paths.push_back(type.paths[leaves ? device * count + other : other * count + device]);
  }
  if (!type.to_network.empty()) paths.push_back(leaves ? type.to_network[device] : type.from_network[device]);
  return joint_bandwidth(type, paths, !leaves);
}

}  // namespace detail

/// A lower bound on the time of any schedule: for a cluster, a model, a batch and a cost model,
/// whatever the layout, the microbatches and the memory. Recomputation is not included: one
/// sequence at a time can be spread over all devices, so memory that holds the model's states never
/// requires it.
/// @throws InputError  without a transformer and a global batch, or for given or measured times.
/// Complexity: O(devices), and with a fabric O(nodes^2).
inline TrainingBound training_bound(const Problem& problem) {
  if (problem.stack) throw InputError("a bound is of a transformer, whose layers any number of devices can share");
  if (!problem.model || problem.sequence < 1) throw InputError("a bound needs a model, a sequence length and a global batch");
  const Cluster& cluster = problem.cluster;
  const Transformer& model = *problem.model;
  const ParameterBytes& sizes = problem.parameter_bytes;
  const std::int64_t size = problem.microbatch_sizes.empty() ? 1 : problem.microbatch_sizes.front();
  const auto sequences = static_cast<double>(problem.global_batch > 0 ? problem.global_batch : problem.microbatches * size);
  if (sequences < 1) throw InputError("a bound needs a model, a sequence length and a global batch");
  const StageWork work = detail::work_of_sequence(model, problem.sequence);
  TrainingBound bound;
  const auto parameters = static_cast<double>(model.parameters());
  bound.states = parameters * static_cast<double>(sizes.weight + sizes.gradient + sizes.optimizer);
  bound.work.update = 2 * bound.states;
  const bool by_kernels = std::holds_alternative<KernelCost>(problem.cost);
  for (const Kernel& kernel : work.kernels) {
    if (!by_kernels) break;
    if (kernel.kind == Kernel::Kind::traffic) bound.work.traffic += sequences * kernel.count * kernel.bytes;
    (kernel.kind == Kernel::Kind::product ? bound.work.products : bound.work.attention) +=
        sequences * kernel.count * kernel.flops();
  }
  if (!by_kernels) {
    bound.work.products = sequences * (work.forward + work.recompute + work.backward_input + work.backward_weight).value();
    bound.work.traffic = sequences * static_cast<double>((work.forward_traffic + work.backward_traffic).value());
  }
  // Causal attention averages half of the last token's, or more of it with a window: a token's work
  // is at most the mean plus its attention once more.
  double attention = 0;  // its part of a layer's work, at most
  for (const LayerKind& kind : model.decoder().kinds) {
    const TokenFlops flops = flops_of(kind.operators(model.hidden), problem.sequence);
    if (flops.forward > 0) attention = std::max(attention, (flops.forward - flops.backward_weight) / flops.forward);
  }
  std::vector<double> rate;              // [rank] batches a second, without updates
  std::vector<const DeviceSpec*> specs;  // of bound.devices: two may have one name
  double all = 0;
  double with_update = 0;
  for (int r = 0; r < cluster.ranks(); ++r) {
    const DeviceSpec& device = cluster.device(Rank{r});
    bound.usable += static_cast<double>(usable_part(device.memory, problem.usable_memory).value());
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const DeviceSpec* one) { return *one == device; });
    auto known = bound.devices.begin() + (spec - specs.begin());
    if (known == bound.devices.end()) {
      specs.push_back(&device);
      const detail::BestTimes times = detail::best_times(problem, work, device);
      const double memory = detail::memory_rate(problem.cost, device);
      BoundDevice added{.name = device.name, .bytes_per_s = memory};
      const auto per_s = [&](double amount, double seconds) { return seconds > 0 ? amount / (sequences * seconds) : 0; };
      added.products_per_s = per_s(bound.work.products, times.products);
      added.attention_per_s = per_s(bound.work.attention, times.attention);
      added.seconds = sequences * (times.products + times.attention + times.traffic);
      added.update_s = bound.work.update / memory;
      if (by_kernels) attention = std::max(attention, sequences * times.attention / added.seconds);
      known = bound.devices.insert(bound.devices.end(), std::move(added));
    }
    ++known->devices;
    rate.push_back(1 / known->seconds);
    all += rate.back();
    with_update += 1 / (known->seconds + known->update_s);
  }
  bound.can_hold = problem.offload.any() || bound.states <= bound.usable;
  bound.compute_s = 1 / with_update;
  bound.seconds = bound.compute_s;
  BoundCut cut;
  cut.parameters = static_cast<double>(model.all_layer_parameters()) *
                   static_cast<double>(sizes.gradient + std::min(sizes.gradient, model.narrow_gathers ? 1 : sizes.weight));
  cut.activations =
      sequences * static_cast<double>(problem.sequence) * model.hidden * static_cast<double>(size_bytes(model.dtype)) * 2;
  cut.token_share = 1 / (1 + attention);
  const auto* const kernels = std::get_if<KernelCost>(&problem.cost);
  const double speed = kernels != nullptr ? kernels->speed() : 1;
  const auto add = [&](std::string side, double part, double bandwidth) {
    if (all - part <= 0 || bandwidth <= 0) return;  // nothing on the other side
    BoundCut one = cut;
    one.side = std::move(side);
    one.bytes_per_s = bandwidth;
    one.part_s = 1 / part;
    one.rest_s = 1 / (all - part);
    one.seconds = detail::cut_seconds(one, bound.compute_s, speed);
    bound.seconds = std::max(bound.seconds, one.seconds);
    bound.cuts.push_back(std::move(one));
  };
  const auto is_known = [&](double part, double bandwidth) {
    return std::any_of(bound.cuts.begin(), bound.cuts.end(),
                       [&](const BoundCut& other) { return other.bytes_per_s == bandwidth && other.part_s == 1 / part; });
  };
  std::vector<bool> seen(cluster.kinds().size(), false);
  std::vector<double> rates;     // [node]
  std::vector<double> adapters;  // [node] leaving and entering
  for (int n = 0; n < cluster.nodes(); ++n) {
    const auto kind = static_cast<std::size_t>(cluster.kind_index(NodeId{n}));
    const NodeType& type = cluster.kinds()[kind];
    const auto first = static_cast<std::size_t>(number(cluster.first_rank(NodeId{n})));
    rates.push_back(0);
    for (std::size_t i = 0; i < type.devices.size(); ++i) rates.back() += rate[first + i];
    adapters.push_back(detail::joint_bandwidth(type, type.to_network, true) +
                       detail::joint_bandwidth(type, type.from_network, false));
    if (seen[kind]) continue;
    seen[kind] = true;
    if (cluster.nodes() > 1) add(concat("node ", n), rates.back(), adapters.back());
    for (std::size_t i = 0; i < type.devices.size(); ++i) {
      const double bandwidth = detail::device_bandwidth(type, i, true) + detail::device_bandwidth(type, i, false);
      if (!is_known(rate[first + i], bandwidth)) add(concat("device ", first + i), rate[first + i], bandwidth);
    }
  }
  for (const detail::NodeCut& set : detail::node_cuts(cluster, rates, adapters)) {
    double part = 0;
    for (const int node : set.nodes) part += rates[static_cast<std::size_t>(node)];
    if (!is_known(part, set.bytes_per_s)) add(set.name(), part, set.bytes_per_s);
  }
  bound.seconds *= 1 - 1e-6;  // simulated times are rounded to picoseconds
  return bound;
}

}  // namespace tawpipe
