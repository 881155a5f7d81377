// The answer of a search for a plan: plans, best first, and what became of all candidates.
// Not: the space (search/plan_space.hpp) nor the search (search/plan.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/plan_space.hpp"

namespace tawpipe::inline v0 {

/// What is not faster by more than this part of its time is not looked for: many layouts differ by less.
inline constexpr double plan_tolerance = 1e-4;

/// One way to train, and what is predicted for it.
struct Plan {
  PlanLayout layout;
  ScheduleChoice choice;
  Duration bound;  ///< no simulation of it is shorter (least_need())
  Summary summary;
};

/// What became of the candidates: layouts, each with every schedule.
struct PlanCounts {
  std::int64_t layouts = 0;
  std::int64_t candidates = 0;  ///< layouts times schedules
  std::int64_t bounded = 0;     ///< of which a bound of their own was found
  std::int64_t simulated = 0;
  // Why the others were not simulated.
  std::int64_t impossible = 0;  ///< the schedule does not exist for the layout
  std::int64_t memory = 0;      ///< needs more than there is, whatever the timing
  std::int64_t time = 0;        ///< cannot be faster than what was found
  std::int64_t left = 0;        ///< not looked at: the budget was used up, or the search was stopped
};

struct PlanResult {
  /// Those simulated that fit, the fastest first; of those that are alike() the one found first.
  std::vector<Plan> plans;
  std::vector<Plan> closest;  ///< where none fits: the one simulated that lacks least
  PlanCounts counts;
  /// No candidate is faster: the best's own time, or the least bound of those that were left.
  Duration bound;
  bool proven_best = false;  ///< every candidate was simulated or dropped by a bound: none is faster, plan_tolerance aside
  bool stopped = false;      ///< told to

  /// By how much something that was not looked at may be faster: 0.05 is 5 %. @pre not plans.empty()
  double gap() const { return plans.front().summary.makespan / std::max(bound, Duration{1}) - 1; }
  /// Of `plans`, those that no other beats in time and memory at once, the fastest first.
  std::vector<std::size_t> pareto() const {
    std::vector<std::size_t> front;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (front.empty() || plans[i].summary.fullest() < plans[front.back()].summary.fullest()) front.push_back(i);
    }
    return front;
  }
};

/// Whether two plans cannot be told apart: as fast, in as much memory, on axes of the same sizes with the same microbatches.
inline bool alike(const Plan& a, const Plan& b) {
  return a.summary.makespan == b.summary.makespan && a.summary.fullest() == b.summary.fullest() &&
         a.layout.mesh.tensor == b.layout.mesh.tensor && a.layout.mesh.context == b.layout.mesh.context &&
         a.layout.mesh.data == b.layout.mesh.data && a.layout.microbatch_size == b.layout.microbatch_size &&
         a.layout.recompute == b.layout.recompute && a.layout.offload == b.layout.offload;
}

/// How the search stands, for a display.
struct PlanProgress {
  std::int64_t done = 0;  ///< of groups of candidates
  std::int64_t groups = 0;
  const Plan* best = nullptr;  ///< null until something fits
};

/// The problem of one layout with one schedule, as simulated.
inline Problem problem_of(const PlanRequest& request, const PlanLayout& layout, const ScheduleChoice& choice) {
  Problem problem = request.problem;
  problem.mesh = layout.mesh;
  problem.recompute = layout.recompute;
  problem.microbatch_sizes = {layout.microbatch_size};
  problem.schedules = {choice};
  if (layout.sharding) problem.sharding = *layout.sharding;
  if (layout.offload) problem.offload = *layout.offload;
  if (layout.balanced_stages) problem.stage_cut = {.balanced = true};
  problem.fold = Fold::automatic;
  return problem;
}

}  // namespace tawpipe
