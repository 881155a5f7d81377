// Simulates composed schedules by the fewest copies for which the result is exact.
// Not: when it is exact (cost/folded_cost.hpp) nor how the kept copies are made
// (schedule/fold.hpp).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/cost/folded_cost.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace tawpipe::inline v0 {

/// The kept copies and their timeline.
struct FoldedRun {
  FoldedSchedule schedule;
  Timeline timeline;
  std::vector<TaskId> calls;  ///< that it was simulated with (order_of_calls)
};

/// A folded run, or the reason why there is none.
struct FoldedSimulation {
  std::optional<FoldedRun> run;
  std::string refusal;  ///< why more was not folded; empty if nothing was refused
};

/// The ways to fold a layout, largest folds first.
inline std::vector<FoldAxes> fold_choices(const Mesh& mesh) {
  std::vector<FoldAxes> choices;
  for (int bits = 15; bits > 0; --bits) {
    const FoldAxes axes{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    if ((axes.tensor && mesh.tensor == 1) || (axes.context && mesh.context == 1) || (axes.data && mesh.data == 1)) continue;
    if (axes.expert && mesh.expert == 1) continue;
    choices.push_back(axes);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [&](const FoldAxes& a, const FoldAxes& b) { return a.factor(mesh) > b.factor(mesh); });
  return choices;
}

/// Simulates compose(logical, whole, mesh) on `cluster` without making it: with one copy for each
/// folded axis, where all copies provably do the same at the same time. Folds the axes that leave
/// the least to simulate.
/// @param kept  compose_kept() for all axes, if the caller has it
/// @pre as folded_cost(): `cost` does not depend on a computation's task
template <CostModel Cost>
FoldedSimulation simulate_folded(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with,
                                 const Cluster& cluster, const Cost& cost, std::optional<Schedule> kept = std::nullopt) {
  FoldedSimulation result;
  if (mesh.is_plain()) result.refusal = "the layout has no copies";
  for (const FoldAxes& axes : fold_choices(mesh)) {
    // The first choice folds all axes of more than one rank, and so takes `kept`.
    FoldedSchedule folded =
        fold_kept(kept ? *std::exchange(kept, std::nullopt) : compose_kept(logical, whole, mesh, with, axes), whole, mesh, axes);
    FoldOutcome<Cost> outcome = folded_cost(folded, cluster, cost);
    if (!outcome.cost) {
      if (result.refusal.empty()) result.refusal = std::move(outcome.refusal);
      continue;
    }
    std::vector<TaskId> calls = order_of_calls(folded.schedule, cluster, *outcome.cost);
    Timeline timeline = simulate_in_order(folded.schedule, cluster, *outcome.cost, calls);
    result.run = FoldedRun{std::move(folded), std::move(timeline), std::move(calls)};
    break;
  }
  return result;
}

}  // namespace tawpipe
