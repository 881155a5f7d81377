// Predicts a schedule's timeline on a cluster under a cost model.
// Not: what the timeline means (analysis/) nor running it for real (execute/).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/simulate/engine.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe {

namespace detail {

/// The distinct paths of a schedule's communications, each asked of the cost model once.
template <CostModel Cost>
class PathTable {
 public:
  PathTable(const Schedule& schedule, const Cluster& cluster, const Cost& cost)
      : schedule_{schedule}, cluster_{cluster}, cost_{cost} {}

  /// The index of the task's path.
  std::int32_t find(const Task& task) {
    const auto key = std::tuple{static_cast<int>(task.op), number(task.rank), number(task.peer), number(task.group)};
    const auto [at, added] = index_.try_emplace(key, static_cast<std::int32_t>(paths_.size()));
    if (added) paths_.push_back(cost_.path(schedule_, task, cluster_));
    return at->second;
  }
  const Path& operator[](std::int32_t path) const { return paths_[static_cast<std::size_t>(path)]; }
  std::size_t size() const { return paths_.size(); }

 private:
  const Schedule& schedule_;
  const Cluster& cluster_;
  const Cost& cost_;
  std::map<std::tuple<int, std::int32_t, std::int32_t, std::int32_t>, std::int32_t> index_;
  std::vector<Path> paths_;
};

/// Visits each edge of dependencies and program order.
template <class Visit>
void for_each_edge(const Schedule& schedule, Visit&& visit) {
  const std::size_t count = schedule.tasks().size();
  for (std::size_t t = 0; t < count; ++t) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) visit(index(earlier), t);
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      const auto program = schedule.program(Rank{rank}, lane);
      for (std::size_t i = 1; i < program.size(); ++i) visit(index(program[i - 1]), index(program[i]));
    }
  }
}

}  // namespace detail

/// Simulates schedules on one cluster under one cost model. Deterministic; may be shared between threads.
///
/// Example:
/// ```cpp
/// const tawpipe::Simulator simulator{cluster, tawpipe::RooflineCost{.utilization = 0.45}};
/// const tawpipe::Timeline predicted = simulator.run(schedule);
/// ```
template <CostModel Cost>
class Simulator {
 public:
  Simulator(Cluster cluster, Cost cost) : cluster_{std::move(cluster)}, cost_{std::move(cost)} {}

  const Cluster& cluster() const { return cluster_; }
  const Cost& cost() const { return cost_; }

  /// @throws InputError  if the schedule needs more ranks than the cluster has.
  /// @throws ScheduleError  if tasks wait for each other.
  Timeline run(const Schedule& schedule) const {
    if (schedule.ranks() > cluster_.ranks()) {
      throw InputError(concat("the schedule needs ", schedule.ranks(), " ranks and cluster ", quote(cluster_.name()), " has ",
                              cluster_.ranks(), " devices"));
    }
    return run_engine(lower(schedule));
  }

 private:
  EngineGraph lower(const Schedule& schedule) const {
    EngineGraph graph;
    graph.tasks.reserve(schedule.tasks().size());
    detail::PathTable<Cost> paths{schedule, cluster_, cost_};
    std::vector<std::int32_t> engine_path;
    for (const Task& task : schedule.tasks()) {
      if (is_compute(task.op)) {
        graph.tasks.push_back({cost_.compute_time(schedule, task, cluster_).value(), 0, -1, 0});
        continue;
      }
      const std::int32_t found = paths.find(task);
      const Path& path = paths[found];
      if (static_cast<std::size_t>(found) == engine_path.size()) {
        engine_path.push_back(path.loads.empty() ? -1 : graph.add_path(path.loads));
      }
      graph.tasks.push_back({path.latency.value(), path.fraction * static_cast<double>(task.bytes.value()),
                             engine_path[static_cast<std::size_t>(found)], 0});
    }
    for (int link = 0; link < cluster_.links(); ++link) graph.capacities.push_back(cluster_.link(LinkId{link}).bandwidth.value());
    graph.connect([&](auto&& visit) { detail::for_each_edge(schedule, visit); });
    return graph;
  }

  Cluster cluster_;
  Cost cost_;
};

}  // namespace tawpipe
