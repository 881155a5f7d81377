// The concept of a cost model: a computation's time, or the links that a communication loads.
// Not: a particular model (fixed.hpp, roofline.hpp).
#pragma once

#include <concepts>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// The multiplicity of a link in a path: a rate of x bytes/s uses x * weight of the link's
/// bandwidth.
struct LinkLoad {
  LinkId link = none<LinkId>;
  double weight = 1;
};

/// The network load of a communication, for any message size: after `latency`, once for each of its
/// repetitions, it is one flow of `fraction` times the task's bytes over all `loads` at once.
/// Without loads it takes `latency`, for any size.
struct Path {
  Duration latency;
  double fraction = 1;
  std::vector<LinkLoad> loads;
};

/// A cost model. compute_time() is called for each computation of the schedule, by its id. path()
/// is called once for each distinct (op, rank, Task::route()), for any such task, possibly one that
/// the schedule does not have: it must depend on nothing else of the task, except as declared by
/// paths_by_size().
template <class Model>
concept CostModel = requires(const Model& model, const Schedule& schedule, TaskId computation, const Task& message,
                             const Cluster& cluster) {
  { model.compute_time(schedule, computation, cluster) } -> std::same_as<Duration>;
  { model.path(schedule, message, cluster) } -> std::same_as<Path>;
};

/// Whether path() depends on a task's bytes too: the result of a model's own paths_by_size().
template <CostModel Model>
constexpr bool paths_by_size(const Model& model) {
  if constexpr (requires { model.paths_by_size(); }) {
    return model.paths_by_size();
  } else {
    return false;
  }
}

/// Whether compute_time() depends on nothing but a task's op, stage, split and bytes, and the
/// DeviceSpec of its rank: the result of a model's own times_by_work().
template <CostModel Model>
constexpr bool times_by_work(const Model& model) {
  if constexpr (requires { model.times_by_work(); }) {
    return model.times_by_work();
  } else {
    return false;
  }
}

}  // namespace tawpipe
