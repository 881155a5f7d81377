// The lanes on which sharded data parallelism communicates.
// Not: what goes on them (detail/sharded_builder.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/schedule/schedules/sharding_plan.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// One lane each for gathers, for sums (none of their own with gather_first: one communicator), and for sums over the nodes where
/// others run inside them; without overlap none beside the one that computes.
inline std::vector<std::string> sharding_lanes(const ShardingPlan& plan) {
  std::vector<std::string> lanes{"compute"};
  if (!plan.overlap) return lanes;
  if (plan.optimizer != Scope::replicated) lanes.emplace_back("gather");
  if (!plan.gather_first) lanes.emplace_back(plan.optimizer == Scope::replicated ? "reduce" : "scatter");
  if (plan.gradients == Scope::node) lanes.emplace_back("across");
  return lanes;
}

/// The number of a lane; without overlap that of the one that computes.
inline std::uint8_t sharding_lane(const ShardingPlan& plan, std::string_view name) {
  const auto lanes = sharding_lanes(plan);
  const auto found = std::find(lanes.begin(), lanes.end(), name);
  return found == lanes.end() ? std::uint8_t{0} : static_cast<std::uint8_t>(found - lanes.begin());
}

/// The lane of sums of gradients.
inline std::uint8_t sharding_scatter_lane(const ShardingPlan& plan) {
  return sharding_lane(plan, plan.optimizer == Scope::replicated ? "reduce" : plan.gather_first ? "gather" : "scatter");
}

}  // namespace tawpipe::schedules::detail
