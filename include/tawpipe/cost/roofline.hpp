// Times from data sheets: matrix products at a fraction of peak, the rest at memory bandwidth,
// messages over shared links.
// Not: times measured on a machine.
#pragma once

#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/detail/edge_path.hpp"
#include "tawpipe/cost/detail/pass_work.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/cost/nccl_collectives.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// A roofline. For a computation of f FLOPs and b bytes of memory-bound traffic:
/// f / (peak * utilization) + b / (memory bandwidth * memory_utilization), one after another, as
/// kernels run. For a message: overhead + the route's latencies, then its bytes at the max-min fair
/// share of the links it crosses.
/// Source: Williams et al. 2009 (roofline).
struct RooflineCost {
  /// of the device's matrix peak, reached by matrix products and attention
  double utilization = 0.5;
  /// of the device's memory bandwidth, reached by elementwise kernels
  double memory_utilization = 0.8;
  Duration overhead = nccl_latency::start;  ///< of starting a transfer or collective
  Algorithm all_reduce = Algorithm::ring;
  /// collectives as NCCL's tuner would run each (nccl_path()), not as rings of Simple
  bool nccl_collectives = false;
  HeldSms held_sms{};  ///< held by communications; off

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster& cluster) const {
    const Task& task = schedule.task(id);
    const DeviceSpec& device = cluster.device(task.rank);
    const BytesPerSecond memory{device.memory_bandwidth.value() * memory_utilization};
    if (task.op == Op::update) return Bytes{task.bytes} * 2 / memory;  // each state is read and written
    const auto [flops, traffic] = detail::pass_work(schedule.work(task), traits(task.op).passes);
    return flops / FlopsPerSecond{device.peak.value() * utilization} + (traffic + Bytes{task.bytes}) / memory;
  }

  Path path(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    if (nccl_collectives && is_collective(task.op) && !is_all_pairs(task.op)) {
      return nccl_path(task.op, schedule.group(task.group), task.rank, static_cast<double>(task.bytes.value()), cluster);
    }
    return detail::edge_path(schedule, task, cluster, all_reduce, overhead);
  }

  bool paths_by_size() const { return nccl_collectives; }
  bool times_by_work() const { return true; }
};
static_assert(CostModel<RooflineCost>);

}  // namespace tawpipe
