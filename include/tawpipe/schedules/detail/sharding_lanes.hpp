// The lanes on which sharded data parallelism communicates.
// Not: the messages on them (detail/sharded_builder.hpp).
#pragma once

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// One lane each for gathers, for sums (the same with gather_first: one communicator), and for sums
/// over the nodes where others run inside them; without overlap all are the compute lane.
struct ShardingLanes {
  ShardingLanes(ScheduleBuilder& builder, const ShardingPlan& plan) {
    if (!plan.overlap) return;
    const bool replicated = plan.optimizer == Scope::replicated;
    if (!replicated) gather = builder.lane("gather");
    scatter = plan.gather_first ? gather : builder.lane(replicated ? "reduce" : "scatter");
    if (plan.gradients == Scope::node) across = builder.lane("across");
  }

  LaneId gather{};
  LaneId scatter{};
  LaneId across{};
};

}  // namespace tawpipe::schedules::detail
