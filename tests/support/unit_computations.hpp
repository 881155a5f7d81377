// What sharded and data-parallel schedules are asked in many tests: tasks of a kind, and their time
// when a forward takes 1 s.
// Not: pipelines (pipelines.hpp).
#pragma once

#include <algorithm>

#include "support/clusters.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace support {

inline int count(const tawpipe::Schedule& schedule, tawpipe::Op op) {
  return static_cast<int>(std::ranges::count_if(schedule.tasks(), [&](const auto& task) { return task.op == op; }));
}

/// A forward takes 1 s, a backward 2 s, a collective `transfer`.
inline tawpipe::Duration makespan(const tawpipe::Schedule& schedule, tawpipe::Duration transfer) {
  const tawpipe::FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = transfer};
  return tawpipe::simulate(schedule, cluster(schedule.ranks()), cost).makespan();
}

}  // namespace support
