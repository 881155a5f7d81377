// Predicts a schedule's timeline on a cluster under a cost model.
// Not: what the timeline means (analysis/) nor running it for real (execute/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/hash_index.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/schedule/check_devices.hpp"
#include "tawpipe/simulate/engine.hpp"
#include "tawpipe/simulate/held_sms.hpp"
#include "tawpipe/simulate/lane_order.hpp"
#include "tawpipe/timeline/issue_order.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The distinct paths of a schedule's communications, each requested from the cost model once:
/// keyed by op, rank and Task::route(), and by the size where the model's paths depend on it.
template <CostModel Cost>
class PathTable {
 public:
  struct Entry {
    Op op;
    Rank rank;
    std::int64_t route;
    std::int64_t size;  ///< of a message; 0 where paths do not depend on it
    std::int32_t path;  ///< of the engine; -1: none, it only takes `latency`
    std::int64_t latency;
    double fraction;
  };

  PathTable(const Schedule& schedule, const Cluster& cluster, const Cost& cost, EngineGraph& graph)
      : schedule_{schedule}, cluster_{cluster}, cost_{cost}, graph_{graph}, by_size_{paths_by_size(cost)} {}

  const Entry& find(const Task& task) {
    const std::int64_t size = by_size_ ? task.bytes.value() : 0;
    const std::int64_t route = task.route();
    std::uint64_t hash = static_cast<std::uint64_t>(task.op) << 32 | static_cast<std::uint32_t>(task.rank);
    hash += static_cast<std::uint64_t>(size) * 0xd1342543de82ef95U;
    const std::int32_t found = index_.find_or_add(
        hash * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(route),
        [&](std::int32_t number) {
          const Entry& entry = entries_[static_cast<std::size_t>(number)];
          return entry.op == task.op && entry.rank == task.rank && entry.route == route && entry.size == size;
        },
        [&] {
          const Path path = cost_.path(schedule_, task, cluster_);
          entries_.push_back({task.op, task.rank, route, size, path.loads.empty() ? -1 : graph_.add_path(path.loads),
                              path.latency.value(), path.fraction});
        });
    return entries_[static_cast<std::size_t>(found)];
  }

 private:
  const Schedule& schedule_;
  const Cluster& cluster_;
  const Cost& cost_;
  EngineGraph& graph_;
  bool by_size_;
  HashIndex index_;
  std::vector<Entry> entries_;
};

/// Times of a schedule's computations; equal ones are requested from the cost model once, where it
/// allows that.
template <CostModel Cost>
class ComputeTimes {
 public:
  ComputeTimes(const Schedule& schedule, const Cluster& cluster, const Cost& cost)
      : schedule_{schedule}, cluster_{cluster}, cost_{cost}, by_work_{times_by_work(cost)} {
    if (!by_work_) return;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const DeviceSpec& device = cluster.device(Rank{rank});
      const auto known = std::find_if(devices_.begin(), devices_.end(), [&](const DeviceSpec* one) { return *one == device; });
      device_of_.push_back(static_cast<std::int32_t>(known - devices_.begin()));
      if (known == devices_.end()) devices_.push_back(&device);
    }
  }

  Duration of(TaskId id) {
    if (!by_work_) return cost_.compute_time(schedule_, id, cluster_);
    const Task& task = schedule_.task(id);
    const Entry wanted{task.op, device_of_[index(task.rank)], task.stage, task.split, task.bytes, Duration{}};
    std::uint64_t hash = static_cast<std::uint64_t>(task.op) << 32 | static_cast<std::uint32_t>(wanted.device);
    hash = (hash ^ static_cast<std::uint64_t>(task.bytes.value())) * 0xd1342543de82ef95U;
    hash += static_cast<std::uint64_t>(task.stage) << 32 | static_cast<std::uint32_t>(task.split);
    return entries_[static_cast<std::size_t>(index_.find_or_add(
                        hash, [&](std::int32_t number) { return entries_[static_cast<std::size_t>(number)].is_like(wanted); },
                        [&] {
                          entries_.push_back(wanted);
                          entries_.back().time = cost_.compute_time(schedule_, id, cluster_);
                        }))]
        .time;
  }

 private:
  struct Entry {
    Op op;
    std::int32_t device;
    StageId stage;
    SplitId split;
    Messages bytes;
    Duration time;

    bool is_like(const Entry& other) const {
      return op == other.op && device == other.device && stage == other.stage && split == other.split && bytes == other.bytes;
    }
  };

  const Schedule& schedule_;
  const Cluster& cluster_;
  const Cost& cost_;
  bool by_work_;
  std::vector<const DeviceSpec*> devices_;  ///< those that differ
  std::vector<std::int32_t> device_of_;     ///< [rank] which of them it is
  HashIndex index_;
  std::vector<Entry> entries_;
};

}  // namespace detail

/// simulate() where a rank's communications start in the order of `calls`, as
/// HeldSms::launch_order_implicit has them; empty: as their lanes allow.
template <CostModel Cost>
Timeline simulate_in_order(const Schedule& schedule, const Cluster& cluster, const Cost& cost, std::span<const TaskId> calls) {
  check_devices(schedule, cluster);
  EngineGraph graph;
  for (int link = 0; link < cluster.links(); ++link) graph.capacities.push_back(cluster.link(LinkId{link}).bandwidth.value());
  detail::PathTable<Cost> paths{schedule, cluster, cost, graph};
  detail::ComputeTimes<Cost> times{schedule, cluster, cost};
  detail::TaskKinds known_kinds{graph};
  const HeldSms* const held = held_sms_of(cost);
  std::optional<HeldCtas> ctas;
  if (held != nullptr) ctas.emplace(*held, schedule, cluster);
  std::vector<std::int32_t> kinds(schedule.tasks().size());
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    const detail::LaneEnds ends = detail::lane_ends(schedule, task);
    detail::TaskHold of_sms;
    if (ctas) of_sms = detail::hold_of(task, ctas->of(task));
    const detail::TaskHold* const hold = ctas ? &of_sms : nullptr;
    if (is_compute(task.op)) {
      kinds[t] = known_kinds.find({times.of(id<TaskId>(t)).value(), 0, -1, 0}, ends, hold);
    } else {
      const auto& known = paths.find(task);
      kinds[t] = known_kinds.find({saturating_multiply<std::int64_t>(known.latency, task.bytes.repeat()),
                                   known.fraction * static_cast<double>(task.bytes.total().value()), known.path, 0},
                                  ends, hold);
    }
  }
  if (held != nullptr) {
    return detail::simulate_holding(schedule, cluster, *held, std::move(graph), std::move(kinds), known_kinds.take_ends(),
                                    known_kinds.take_holds(), calls);
  }
  return detail::run_in_lane_order(schedule, graph, std::move(kinds), known_kinds.take_ends());
}

/// The order of calls of HeldSms::launch_order_implicit: the executors' (issue_order), by the times
/// that `cost` predicts without it; empty if the model has no such option.
template <CostModel Cost>
std::vector<TaskId> order_of_calls(const Schedule& schedule, const Cluster& cluster, const Cost& cost) {
  const HeldSms* const held = held_sms_of(cost);
  if (held == nullptr || !held->launch_order_implicit) return {};
  const Timeline expected = simulate_in_order(schedule, cluster, cost, {});
  return issue_order(schedule, &expected);
}

/// The timeline that `cost` predicts for `schedule` on `cluster`. Deterministic.
/// @throws InputError  if the schedule needs more ranks than the cluster has.
/// @throws ScheduleError  if tasks wait for each other, or for SMs that communications hold
/// (HeldSms).
///
/// Example: `const tawpipe::Timeline predicted = simulate(schedule, cluster,
/// tawpipe::RooflineCost{.utilization = 0.45});`
template <CostModel Cost>
Timeline simulate(const Schedule& schedule, const Cluster& cluster, const Cost& cost) {
  return simulate_in_order(schedule, cluster, cost, order_of_calls(schedule, cluster, cost));
}

}  // namespace tawpipe
