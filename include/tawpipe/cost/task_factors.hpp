// A cost model under factors: each computation's time and each message's size multiplied by its own
// factor.
// Not: the source of the factors (simulate/noise.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/held_sms.hpp"

namespace tawpipe::inline v0 {

/// `inner` with the time of task t times `factors[t]` if it computes. Empty factors change nothing.
/// Messages take `message(task)` times their latency and bytes.
template <CostModel Inner, class Message>
struct FactoredCost {
  const Inner& inner;
  std::span<const double> factors;
  Message message;

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster& cluster) const {
    const Duration time = inner.compute_time(schedule, id, cluster);
    return factors.empty() ? time : scaled(time, factors[index(id)]);
  }
  Path path(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    Path path = inner.path(schedule, task, cluster);
    const double factor = message(task);
    path.latency = scaled(path.latency, factor);
    path.fraction *= factor;
    return path;
  }
  bool paths_by_size() const { return tawpipe::paths_by_size(inner); }
  const HeldSms* held_sms() const { return held_sms_of(inner); }
};

}  // namespace tawpipe
