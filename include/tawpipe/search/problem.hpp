// The input and result of a prediction: a cluster, a model, a batch and schedules to choose from;
// the best of them.
// Not: the search (search/predict.hpp, search/choose.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/function_ref.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedule/state_sharding.hpp"
#include "tawpipe/schedules/option_field.hpp"
#include "tawpipe/simulate/noise.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

using Cost = std::variant<KernelCost, RooflineCost, FixedCost, MeasuredCost>;

/// The SMs that communications hold, if the cost model in it has that on; otherwise null.
inline const HeldSms* held_sms_of(const Cost& cost) {
  return std::visit([](const auto& model) { return held_sms_of(model); }, cost);
}
/// What is launched as CUDA graphs; none by costs that have no launches.
inline CudaGraphs graphs_of(const Cost& cost) {
  const auto* kernels = std::get_if<KernelCost>(&cost);
  return kernels != nullptr ? kernels->graphs : CudaGraphs::none;
}
/// Sets it, where the cost has launches.
inline void set_graphs(Cost& cost, CudaGraphs graphs) {
  if (auto* kernels = std::get_if<KernelCost>(&cost)) kernels->graphs = graphs;
}

/// @throws InputError  if times or figures of it were measured on other devices
inline void check_devices(const Cost& cost, const Cluster& cluster) {
  if (const auto* measured = std::get_if<MeasuredCost>(&cost)) measured->check_devices(cluster);
  if (const auto* kernels = std::get_if<KernelCost>(&cost)) kernels->check_devices(cluster);
}

/// Whether copies that do the same are simulated once (simulate/folding.hpp).
enum class Fold {
  off,
  automatic,  ///< if it is exact
  on,         ///< or an error with the reason why it is not exact
};

/// A schedule of a registry, with options that differ from its defaults.
struct ScheduleChoice {
  std::string schedule;
  ScheduleOptions options = {};  ///< "auto": to be chosen (Registry::variants)
  bool automatic = false;        ///< those left out are also chosen
};

/// One training iteration on a cluster, and the choices for it.
struct Problem {
  Cluster cluster;
  /// none: `stack`, or equal stages, with `microbatches` and a FixedCost
  std::optional<Transformer> model = std::nullopt;
  /// Instead of `model`: one of another architecture, its parts for one sequence; a microbatch of n
  /// takes n times that (LayerStack::times). It runs on meshes that share no layers, under any cost
  /// but kernels it does not have; its parts state what is computed again, whatever `recompute`
  /// says. Not a variant with `model`: layouts, bounds and frameworks need sizes that only a
  /// Transformer has.
  std::optional<LayerStack> stack = std::nullopt;
  std::int64_t sequence = 0;      ///< tokens
  std::int64_t global_batch = 0;  ///< sequences; with microbatches == 0
  std::int64_t microbatches = 0;  ///< instead of the global batch
  /// to choose from, ascending; empty: candidate_sizes(). With an expert axis of n ranks a
  /// microbatch has n times as many sequences: each of these ranks has its own.
  std::vector<std::int64_t> microbatch_sizes = {};
  std::vector<ScheduleChoice> schedules = {};  ///< to choose from
  Cost cost = KernelCost{};
  Recompute recompute = Recompute::full;
  /// to choose from (search/choose.hpp); empty: `recompute`
  std::vector<Recompute> recomputes = {};
  Offload offload = {};     ///< to host memory (schedule/offload.hpp)
  StageCut stage_cut = {};  ///< balanced: by `cost` (Predictor)
  /// tensor, context, expert and data parallelism around the schedule
  Mesh mesh = {};
  /// tensor-parallel ranks split norms and residuals by tokens (Sharing)
  bool sequence_parallel = true;
  ContextExchange context_exchange = ContextExchange::all_gather;
  /// of an exchange in two levels (Sharing::inner); 0: as context_inner_of() finds it
  int context_inner = 0;
  /// of tokens to ranks that have whole experts
  ExpertDispatch expert_dispatch = ExpertDispatch::all_to_all;
  /// of these all-to-alls with another microbatch's computation (Sharing::expert_overlap)
  ExpertOverlap expert_overlap = ExpertOverlap::off;
  /// of tensor-parallel collectives with adjacent products (Sharing::overlap)
  bool tensor_overlap = false;
  /// over the ranks that hold the same parameters (Composition)
  StateSharding sharding = StateSharding::optimizer;
  Reshard reshard = Reshard::automatic;
  /// gradients are summed as soon as they are complete (Composition)
  bool overlap_gradients = false;
  /// new weights are gathered before their first use in the next iteration (Composition)
  bool overlap_gathers = false;
  /// parameters that these messages of the first stage carry at least (Composition)
  std::int64_t bucket = automatic_bucket;
  ParameterBytes parameter_bytes = {};
  /// the optimizer's bytes include a copy of weights of 16 bits
  bool master_copies = true;
  double usable_memory = usable_memory_share;  ///< fraction of a device's memory that may be needed
  Noise noise = {};
  /// Limit on the tasks of a simulated iteration, about 256 bytes each; more are refused before any
  /// is made, and their microbatch size is skipped from an eighth of it on if larger ones are
  /// possible.
  double max_tasks = 1 << 24;
  Fold fold = Fold::automatic;

  /// Whether the stages are those of a model, of either kind.
  bool has_model() const { return model || stack; }

  /// The work of all devices with `size` sequences a microbatch.
  Workload workload(std::int64_t size) const { return workload(size, 1); }

  /// The work of one replica of `replicas`. @throws InputError  if the microbatches cannot be
  /// shared out equally.
  Workload workload(std::int64_t size, int replicas) const {
    const std::int64_t count = microbatches_of(size);
    if (count % replicas != 0) {
      throw InputError(concat(count, " microbatches cannot be shared equally by ", replicas,
                              " data-parallel replicas; choose a multiple of ", replicas));
    }
    const int devices = cluster.ranks() / mesh.copies();
    if (!has_model()) return Workload::abstract(devices, count / replicas);
    const std::int64_t together = size * mesh.expert;
    const Batch batch{.sequence = sequence, .microbatch_size = together, .global_batch = count / replicas * together};
    Workload work = model ? Workload{*model, batch, recompute} : Workload{stack->times(size), batch, recompute_of_stack()};
    work.over_devices(devices).parameter_bytes(parameter_bytes).cut_by(stage_cut);
    return work;
  }

  /// Of one microbatch: with more than Batch::max_tokens no device holds even its logits.
  std::int64_t most_sequences() const {
    return std::max<std::int64_t>(1, Batch::max_tokens / std::max<std::int64_t>(1, sequence * mesh.expert));
  }

  /// The microbatch sizes to try: those given, or the divisors of the global batch that give all
  /// replicas the same number.
  std::vector<std::int64_t> candidate_sizes() const {
    if (!microbatch_sizes.empty()) return microbatch_sizes;
    if (microbatches > 0 || !has_model()) return {1};
    std::vector<std::int64_t> sizes;
    const std::int64_t batch = global_batch / mesh.expert;  // of each expert-parallel rank
    for (std::int64_t size = 1; size <= std::min(most_sequences(), batch); ++size) {
      if (batch % size == 0 && (size == 1 || batch / size % mesh.data == 0)) sizes.push_back(size);
    }
    if (sizes.empty()) sizes.push_back(1);  // refused by workload()
    return sizes;
  }

  /// @throws InputError  naming what is invalid, before anything is computed.
  void check() const {
    if (offload.weights && sharding != StateSharding::none && mesh.data * mesh.expert * mesh.context > 1) {
      throw InputError(
          "--offload weights is of devices that own what they hold: choose fsdp over all devices, or --shard-states none "
          "around a pipeline");
    }
    noise.check();
    mesh.over(cluster.ranks());
    if (stack) check_stack();
    if (mesh.whole_experts && !(model && model->is_routed()))
      throw InputError(concat("expert parallelism: ",
                              model ? concat("model ", quote(model->name), " has no experts") : "there is no model with experts",
                              "; leave it out"));
    if (has_model() && global_batch < 1 && microbatches < 1)
      throw InputError("the problem has neither a global batch nor microbatches");
    const std::int64_t size = candidate_sizes().front();
    if (has_model() && microbatches > Batch::max_global_batch / std::max<std::int64_t>(1, size)) {
      throw InputError(concat(microbatches, " microbatches of ", size, " sequences are too many; the most is ",
                              Batch::max_global_batch, " sequences"));
    }
    workload(size);
    check_devices(cost, cluster);
  }

 private:
  Recompute recompute_of_stack() const { return stack->layer.recompute.value() > 0 ? Recompute::full : Recompute::none; }

  void check_stack() const {
    const auto fail = [&](const auto&... why) { throw InputError(concat("model ", quote(stack->name), ": ", why...)); };
    if (model) fail("the problem has a transformer too, ", quote(model->name), "; give one of the two");
    if (mesh.shared() > 1) {
      fail(
          "ranks of tensor, context and expert parallelism share the layers of a transformer only; spread its layers over a "
          "schedule's ranks and its batch over replicas");
    }
    if (!recomputes.empty()) fail("its parts state what is computed again; leave the kinds of recomputation empty");
    if (std::holds_alternative<KernelCost>(cost) && !stack->has_kernels())
      fail("times of kernels need their shapes, and its parts have none; a roofline, given or measured times need none");
  }

  std::int64_t microbatches_of(std::int64_t size) const {
    if (microbatches > 0 || !has_model()) return microbatches;
    if (global_batch % mesh.expert != 0) {
      throw InputError(concat("a global batch of ", global_batch, " sequences cannot be shared equally by ", mesh.expert,
                              " expert-parallel ranks; choose a multiple of ", mesh.expert));
    }
    return Batch{sequence, size, global_batch / mesh.expert}.microbatches();
  }
};

namespace detail {

/// Whether each device leaves its node through an adapter that no other device of the node uses.
inline bool have_own_adapters(const Cluster& cluster) {
  for (const NodeType& type : cluster.kinds()) {
    std::vector<std::int32_t> adapters;
    for (const LinkPath& path : type.to_network) adapters.push_back(path.empty() ? -1 : path.back());
    std::sort(adapters.begin(), adapters.end());
    if (adapters.empty() || std::adjacent_find(adapters.begin(), adapters.end()) != adapters.end()) return false;
  }
  return true;
}

}  // namespace detail

/// A schedule with the timeline predicted for it.
struct Prediction {
  Schedule schedule;  ///< if it was folded (summary.folding), only the kept copies
  Timeline timeline;
  Summary summary;

  bool fits() const { return summary.fits(); }
};

/// A schedule with all choices made for it.
struct Chosen {
  ScheduleChoice choice;  ///< the given options, and the choices for the open ones
  Recompute recompute = Recompute::full;
  /// full: of the first so many layers of each stage; 0: as the model has it
  int recompute_layers = 0;
  Summary summary;
};

/// Told of a schedule that needs more memory than there is under any timing.
using HopelessSchedule = FunctionRef<void(const Schedule&)>;

}  // namespace tawpipe
