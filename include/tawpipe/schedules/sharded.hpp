// Sharded data parallelism by a plan: any scopes of weights, gradients and optimizer states.
// Not: the named strategies (data_parallel.hpp, fully_sharded.hpp, hybrid_sharded.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules {

/// One iteration of data parallelism by `plan`. Every rank computes the whole model, unit by unit
/// (first edge, each layer, last edge); microbatch u * ranks + r runs on rank r in round u, and a
/// last round may be short.
///
/// In each round a unit is gathered from the weights' scope before its forward and again before its
/// backward, and its gradient summed over the gradients' scope. In the last round each gradient is
/// then reduced to the optimizer's scope; updates follow in the order of the units, and new weights
/// are gathered back to the weights' scope. docs/sharded.md has the bytes and the memory of each
/// step.
/// @param nodes  the ranks of each node; they need not be equal
/// @throws InputError  as ShardingPlan::check.
/// Complexity: O(units * (ranks + nodes) * rounds) tasks and O(units * ranks * rounds) uses.
TAWPIPE_INLINE Schedule sharded(const Workload& workload, const DeviceGroups& nodes, const ShardingPlan& plan);

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include "tawpipe/schedules/detail/sharded_builder.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE Schedule sharded(const Workload& workload, const DeviceGroups& nodes, const ShardingPlan& plan) {
  plan.check();
  return detail::ShardedBuilder{workload, nodes, plan}.build();
}

}  // namespace tawpipe::schedules
#endif
