// All results of one predicted or measured iteration, in one value.
// Not: how it is printed (report/).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tawpipe/analysis/bubble.hpp"
#include "tawpipe/analysis/communication.hpp"
#include "tawpipe/analysis/critical_path.hpp"
#include "tawpipe/analysis/device_memory.hpp"
#include "tawpipe/analysis/held_time.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// The part of a schedule that was simulated for the whole (schedule/fold.hpp).
struct Folding {
  /// devices that each simulated one stands for; 1: not folded, and the rest is empty
  int factor = 1;
  int ranks = 0;           ///< simulated
  std::int64_t tasks = 0;  ///< simulated
  std::string refusal;     ///< why it was not folded, if folding was requested
};

/// The outcome of one iteration of a schedule on a cluster.
struct Summary {
  std::string schedule;
  std::vector<std::pair<std::string, std::string>> options;
  std::string cluster;
  std::string model;  ///< "" where times were fixed and no model was given
  int nodes = 0;
  int ranks = 0;
  std::int64_t tasks = 0;
  std::int64_t stages = 0;
  /// of these, stages without layers or edges: their ranks only forward
  std::int64_t empty_stages = 0;
  std::int64_t microbatches = 0;
  /// sequences, of each rank that has its own (of an expert axis); 0 without a model
  std::int64_t microbatch_size = 0;
  std::int64_t sequence = 0;      ///< tokens; 0 without a model
  std::int64_t global_batch = 0;  ///< sequences; 0 without a model
  /// as flags say it: "none", "full", "full:4" for the first 4 layers of each stage
  std::string recompute;

  Duration makespan;
  double tokens_per_device_per_second = 0;  ///< 0 without a model
  /// model FLOPs (nothing recomputed) over the devices' peak; 0 without a model
  double mfu = 0;
  /// model FLOPs (nothing recomputed) per device; 0 without a model
  FlopsPerSecond flops_per_device{};
  Bubble bubble;
  std::vector<PeakMemory> peak_memory;     ///< [rank]
  std::vector<Bytes> device_memory;        ///< [rank]
  double usable_memory = 1;                ///< fraction of a device's or a host's memory that may be needed
  std::vector<Rank> out_of_memory;         ///< ranks that need more; empty without a model
  std::vector<Bytes> host_need;            ///< [node] of all its ranks, in host memory
  std::vector<Bytes> host_memory;          ///< [node] of its host; 0: unknown
  bool host_memory_assumed = false;        ///< of some node (NodeType)
  std::vector<NodeId> out_of_host_memory;  ///< nodes whose ranks need more of it; empty without a model
  Traffic traffic;
  std::vector<std::string> lanes;
  Communication communication;
  std::array<Duration, ops> critical_path{};  ///< [op] time on the critical path
  Folding folding;
  std::optional<HeldTime> held;  ///< if the cost model knows what communications hold
  /// beside the buffers of peak_memory; none without a model (search/device_memory.hpp)
  std::optional<DeviceMemory> beside;

  /// of all devices
  double tokens_per_day() const { return tokens_per_device_per_second * ranks * 86'400; }
  /// Whether devices and hosts have the memory.
  bool fits() const { return out_of_memory.empty() && out_of_host_memory.empty(); }
  /// The largest need of any rank; 0 without ranks.
  Bytes fullest() const {
    Bytes most;
    for (const PeakMemory& peak : peak_memory) most = std::max(most, peak.total);
    return most;
  }
  /// The fullest rank as torch.cuda.max_memory_allocated(), max_memory_reserved() and nvidia-smi show it.
  /// @pre beside
  Bytes allocated() const { return beside->allocated(fullest()); }
  Bytes reserved() const { return beside->reserved(fullest()); }
  Bytes used() const { return beside->used(fullest()); }
  /// How probable it is that each device has the memory: that of the one where it is least. @pre beside
  double fits_probability() const {
    double least = 1;
    for (std::size_t rank = 0; rank < peak_memory.size(); ++rank) {
      least = std::min(least, beside->fits(peak_memory[rank].total, device_memory[rank]));
    }
    return least;
  }
};

/// Summarizes `timeline`. Complexity: O(tasks log tasks).
/// @param usable_memory  the fraction of a device's memory that a rank may need
TAWPIPE_INLINE Summary summarize(const Schedule& schedule, const Cluster& cluster, const Timeline& timeline,
                                 double usable_memory = 1);

/// Summarizes the whole schedule from the timeline of the kept part: the same summary except
/// `folding`.
/// Complexity: O(kept tasks log kept tasks + ranks).
TAWPIPE_INLINE Summary summarize(const FoldedSchedule& folded, const Cluster& cluster, const Timeline& timeline,
                                 double usable_memory = 1);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <span>
#include <utility>

namespace tawpipe::inline v0 {

namespace detail {

/// @param traffic  of the whole schedule, whose number of tasks it counts
inline Summary summarize(const Schedule& schedule, const Cluster& cluster, const Timeline& timeline, Traffic traffic,
                         double usable_memory, std::span<const Rank> same_as) {
  const Workload& workload = schedule.workload();
  Summary summary;
  summary.schedule = schedule.name();
  summary.options = schedule.options();
  summary.cluster = cluster.name();
  summary.nodes = cluster.nodes();
  summary.ranks = schedule.ranks();
  for (const std::int64_t tasks : traffic.tasks) summary.tasks += tasks;
  summary.stages = static_cast<std::int64_t>(schedule.stages().size());
  for (const StageWork& stage : schedule.stages()) {
    if (!workload.is_abstract() && stage.layers == 0 && !stage.first_edge && !stage.last_edge) ++summary.empty_stages;
  }
  summary.microbatches = workload.microbatches();
  summary.makespan = timeline.makespan();
  summary.bubble = bubble(schedule, timeline, same_as);
  summary.peak_memory = peak_memory(schedule, timeline, same_as);
  summary.traffic = std::move(traffic);
  summary.lanes = schedule.lanes();
  summary.communication = communication(schedule, timeline, same_as);
  summary.critical_path = critical_path(schedule, timeline).time_of_op;
  double peak = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    peak += cluster.device(Rank{rank}).peak.value();
    summary.device_memory.push_back(cluster.device(Rank{rank}).memory);
  }
  summary.host_need = host_needs(summary.peak_memory, cluster);
  for (int node = 0; node < cluster.nodes(); ++node) {
    summary.host_memory.push_back(cluster.memory_of_host(NodeId{node}));
    summary.host_memory_assumed = summary.host_memory_assumed || cluster.kind_of(NodeId{node}).host_memory_assumed;
  }
  if (workload.is_abstract()) return summary;
  summary.model = workload.model().name;
  summary.microbatch_size = workload.batch().microbatch_size / schedule.parts().mesh.expert;
  summary.sequence = workload.batch().sequence;
  summary.global_batch = workload.batch().global_batch;
  summary.recompute = std::string{name(workload.recompute())};
  if (const int layers = workload.model().recompute_layers; layers > 0) summary.recompute += concat(":", layers);
  summary.usable_memory = usable_memory;
  summary.out_of_memory = out_of_memory(summary.peak_memory, summary.device_memory, usable_memory);
  summary.out_of_host_memory = out_of_host_memory(summary.host_need, summary.host_memory, usable_memory);
  const double time = to_seconds(summary.makespan);
  if (time > 0) {
    summary.tokens_per_device_per_second = workload.tokens() / time / summary.ranks;
    summary.mfu = workload.model_flops().value() / time / peak;
    summary.flops_per_device = FlopsPerSecond{workload.model_flops().value() / time / summary.ranks};
  }
  return summary;
}

}  // namespace detail

TAWPIPE_INLINE Summary summarize(const Schedule& schedule, const Cluster& cluster, const Timeline& timeline,
                                 double usable_memory) {
  return detail::summarize(schedule, cluster, timeline, traffic(schedule, cluster), usable_memory, {});
}

TAWPIPE_INLINE Summary summarize(const FoldedSchedule& folded, const Cluster& cluster, const Timeline& timeline,
                                 double usable_memory) {
  Summary summary =
      detail::summarize(folded.schedule, cluster, timeline, traffic(folded, cluster), usable_memory, folded.same_as);
  summary.folding = {folded.factor, summary.ranks / folded.factor, static_cast<std::int64_t>(folded.schedule.tasks().size()), {}};
  return summary;
}

}  // namespace tawpipe
#endif
