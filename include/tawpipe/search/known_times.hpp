// Predictions with known times of computations, as from a trace: only the network is predicted.
// Not: times by operation, which hold for other schedules too (cost/measured.hpp).
#pragma once

#include <span>
#include <variant>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/search/plausible.hpp"
#include "tawpipe/search/problem.hpp"
#include "tawpipe/simulate/noise.hpp"

namespace tawpipe::inline v0 {

/// A cost model with given times of computations: [task]; below 0: from `cost`.
struct KnownTimes {
  const Cost& cost;
  std::span<const Duration> times;

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster& cluster) const {
    const Duration known = times[index(id)];
    if (known.value() >= 0) return known;
    return std::visit([&](const auto& model) { return model.compute_time(schedule, id, cluster); }, cost);
  }
  Path path(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    return std::visit([&](const auto& model) { return model.path(schedule, task, cluster); }, cost);
  }
  bool paths_by_size() const {
    return std::visit([](const auto& model) { return tawpipe::paths_by_size(model); }, cost);
  }
  const HeldSms* held_sms() const { return held_sms_of(cost); }
};
static_assert(CostModel<KnownTimes>);

/// Predicts `schedule` on the problem's cluster, its messages by the problem's cost model.
/// @param times  of computations [task]; below 0: from the cost model
/// @throws InputError  if the number of times differs from that of tasks, the schedule needs more
/// ranks than there are, or the times are faster than the devices compute.
TAWPIPE_INLINE Prediction predict(const Problem& problem, Schedule schedule, std::span<const Duration> times);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>

#include "tawpipe/simulate/simulate.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Prediction predict(const Problem& problem, Schedule schedule, std::span<const Duration> times) {
  if (times.size() != schedule.tasks().size())
    throw InputError("the times are not those of the schedule: give one for each task");
  Timeline timeline = simulate(schedule, problem.cluster, KnownTimes{problem.cost, times}, problem.noise);
  Summary summary = summarize(schedule, problem.cluster, timeline, problem.usable_memory);
  check_plausible(summary, problem, true);
  add_device_memory(summary, problem);
  return {std::move(schedule), std::move(timeline), std::move(summary)};
}

}  // namespace tawpipe
#endif
