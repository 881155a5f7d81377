// Times measured on a machine: a time for a layer, the embedding and the head in each pass;
// messages by latency and bandwidth of two kinds of link.
// Not: their calibration from a timeline (analysis/calibrate.hpp) nor their file
// (report/measured_json.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/detail/merge_loads.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/model/workload.hpp"

namespace tawpipe::inline v0 {

/// Seconds that one pass of one microbatch takes.
struct MeasuredPass {
  double layer = 0;  ///< each
  double embedding = 0;
  double head = 0;

  bool operator==(const MeasuredPass&) const = default;
};

/// Seconds that an update takes.
struct MeasuredUpdate {
  double once = 0;
  double byte = 0;  ///< of model states touched

  bool operator==(const MeasuredUpdate&) const = default;
};

/// A kind of link as used by a single message.
struct MeasuredLink {
  double latency = 0;  ///< seconds of each step
  double byte = 0;     ///< seconds each: one over the bandwidth; 0: the size does not matter

  bool operator==(const MeasuredLink&) const = default;
};

/// The work for which the times were measured. They hold for any number of layers; nothing else may
/// change.
struct MeasuredWork {
  Dtype dtype = Dtype::f32;
  ParameterBytes parameter_bytes;  ///< used for the sizes of messages; not checked
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocab = 0;
  std::int64_t sequence = 0;
  std::int64_t microbatch_size = 0;
  Recompute recompute = Recompute::none;
  /// of one layer: heads, gate and experts show in it; 0: unknown, so not checked
  std::int64_t layer_parameters = 0;
  std::string model{};  ///< its name; told, not checked

  /// @pre not workload.is_abstract()
  static MeasuredWork of(const Workload& workload) {
    const LayerStack& model = workload.model();
    const auto size = [&](std::string_view key, int Transformer::*member) {
      return model.decoder ? std::int64_t{(*model.decoder).*member} : model.size(key);
    };
    return {model.dtype,
            workload.parameter_bytes(),
            size("hidden", &Transformer::hidden),
            size("intermediate", &Transformer::intermediate),
            size("vocab", &Transformer::vocab),
            workload.batch().sequence,
            workload.batch().microbatch_size,
            workload.recompute(),
            model.layer.parameters,
            model.name};
  }
  bool operator==(const MeasuredWork&) const = default;
};

/// Measured times. A computation takes layers * layer + embedding + head of its pass (the latter
/// two where its stage has them), an update once + bytes * byte. If `backward` was not measured, it
/// is the sum of its two halves.
///
/// A message takes the latency of its kind of link (inside a node, or between nodes; for a
/// collective the mean over its edges times its steps), then it is a flow that by itself reaches
/// the kind's bandwidth. Links wider than the narrowest of the path have capacity for
/// proportionally more flows, and flows share links max-min fair, as under RooflineCost. All
/// devices are equal.
struct MeasuredCost {
  std::optional<MeasuredPass> forward;
  std::optional<MeasuredPass> backward;
  std::optional<MeasuredPass> backward_input;
  std::optional<MeasuredPass> backward_weight;
  std::optional<MeasuredUpdate> update;
  std::optional<MeasuredLink> intra_node;
  std::optional<MeasuredLink> inter_node;
  std::optional<MeasuredWork> work;  ///< none: unknown, so not checked
  std::string device{};              ///< where they were measured (DeviceSpec::name); "": unknown, so not checked
  std::string software{};            ///< with what; told, not checked
  std::string source{};              ///< the file that they are from, for messages; not in that file
  /// held by communications; off, and not in files of measured times
  HeldSms held_sms{};

  bool operator==(const MeasuredCost&) const = default;

  /// @throws InputError  if a layer takes no time, or the times were measured with other work or on
  /// other devices, naming the first difference.
  void check(const Workload& workload, const Cluster& cluster) const {
    check_times();
    check_work(workload);
    check_devices(cluster);
  }

  /// @throws InputError  if the cluster has other devices than those on which the times were
  /// measured.
  void check_devices(const Cluster& cluster) const {
    if (device.empty()) return;
    for (const NodeType& kind : cluster.kinds()) {
      for (const DeviceSpec& one : kind.devices) {
        if (one.name == device) continue;
        throw InputError(concat("the times", from(), " were measured on ", device, ", and cluster ", quote(cluster.name()),
                                " has ", one.name, "; measure them again there",
                                one.assumed ? concat(", or name its devices: --device ", device) : ""));
      }
    }
  }

  /// @throws InputError  if a layer takes no time in a pass that was measured: nothing was found of
  /// it.
  void check_times() const {
    const auto check_pass = [&](Op op, const std::optional<MeasuredPass>& pass) {
      if (!pass || pass->layer > 0) return;
      throw InputError(
          concat("the times", from(), " have a ", name(op),
                 " of a layer that takes no time; measure a run in which layers are found (calibrate --layer NAME)"));
    };
    check_pass(Op::forward, forward);
    check_pass(Op::backward, backward);
    check_pass(Op::backward_input, backward_input);
    check_pass(Op::backward_weight, backward_weight);
  }

  /// @throws InputError  if the times were measured with work that differs from `workload`, naming
  /// the first difference.
  void check_work(const Workload& workload) const {
    if (workload.is_abstract()) throw InputError("measured times are those of layers; give the model that has them");
    if (!work) return;
    const MeasuredWork wanted = MeasuredWork::of(workload);
    const auto differ = [this](std::string_view what, const auto& measured, const auto& asked) {
      if (measured == asked) return;
      throw InputError(concat("the times", from(), " were measured with ", what, " ", measured, ", not ", asked,
                              "; measure them again for it"));
    };
    differ("numbers of", name(work->dtype), name(wanted.dtype));
    differ("a hidden size of", work->hidden, wanted.hidden);
    differ("an intermediate size of", work->intermediate, wanted.intermediate);
    differ("a vocabulary of", work->vocab, wanted.vocab);
    differ("a sequence length of", work->sequence, wanted.sequence);
    differ("a microbatch size of", work->microbatch_size, wanted.microbatch_size);
    differ("recomputation", name(work->recompute), name(wanted.recompute));
    if (work->layer_parameters > 0) differ("layers of this many parameters:", work->layer_parameters, wanted.layer_parameters);
  }

  /// @throws InputError  if the task's op was not measured.
  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster&) const {
    const Task& task = schedule.task(id);
    if (task.op == Op::update) {
      if (!update) throw unmeasured(task.op);
      return seconds(update->once + update->byte * static_cast<double>(task.bytes.value()));
    }
    const StageWork& stage = schedule.work(task);
    const MeasuredPass pass = pass_of(task.op);
    return seconds(stage.fraction *
                   (pass.layer * stage.layers + (stage.first_edge ? pass.embedding : 0) + (stage.last_edge ? pass.head : 0)));
  }

  /// @throws InputError  if messages over the task's kind of link were not measured.
  Path path(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    Path path;
    const CollectiveShape shape = communication_shape(schedule, task, Algorithm::ring, cluster);
    double latency = 0;
    for (std::size_t e = 0; e < shape.edges.size(); ++e) {
      latency += add_edge(path, shape.edges[e].first, shape.edges[e].second, shape.share(e), cluster);
    }
    path.latency = shape.latency(latency);
    path.fraction = shape.fraction;
    detail::merge_loads(path.loads);
    return path;
  }

 private:
  std::string from() const { return source.empty() ? std::string{} : concat(" of ", source); }
  static InputError unmeasured(Op op) {
    return InputError(concat("the measured cost has no time for ", name(op), "; measure a schedule that has one"));
  }

  MeasuredPass pass_of(Op op) const {
    const Passes passes = traits(op).passes;
    const bool both = passes.backward_input && passes.backward_weight;
    const std::optional<MeasuredPass>& pass = passes.forward          ? forward
                                              : both                  ? backward
                                              : passes.backward_input ? backward_input
                                                                      : backward_weight;
    if (pass) return *pass;
    if (!both || !backward_input || !backward_weight) throw unmeasured(op);
    return {backward_input->layer + backward_weight->layer, backward_input->embedding + backward_weight->embedding,
            backward_input->head + backward_weight->head};
  }

  /// Adds the loads of a message from `from` to `to`. @return its seconds of latency
  double add_edge(Path& path, Rank from, Rank to, double share, const Cluster& cluster) const {
    if (from == host_memory || to == host_memory) {  // not measured: as in the cluster
      const Route route = cluster.route(from, to);
      for (const LinkId link : route.links) path.loads.push_back({link, share});
      return to_seconds(route.latency);
    }
    const bool inside = cluster.same_node(from, to);
    const std::optional<MeasuredLink>& kind = inside ? intra_node : inter_node;
    if (!kind) {
      throw InputError(concat("the measured cost has no messages ", inside ? "inside a node" : "between nodes",
                              "; measure a schedule that sends some"));
    }
    if (kind->byte <= 0) return kind->latency;
    const Route route = cluster.route(from, to);
    double narrowest = 0;
    for (const LinkId link : route.links) {
      const double bandwidth = cluster.link(link).bandwidth.value();
      narrowest = narrowest > 0 ? std::min(narrowest, bandwidth) : bandwidth;
    }
    for (const LinkId link : route.links) path.loads.push_back({link, narrowest * kind->byte * share});
    return kind->latency;
  }
};
static_assert(CostModel<MeasuredCost>);

}  // namespace tawpipe
