// How to train: the fastest layout and schedule of a defined space, found by bounds that drop the rest and by exact simulation.
// Not: the space (search/plan_space.hpp) nor the bounds (search/layout_bound.hpp, search/lower_bound.hpp).
#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

#include "tawpipe/search/detail/plan_search.hpp"

namespace tawpipe::inline v0 {

/// The fastest way to train that the request leaves open: over all meshes, microbatch sizes, recomputations and schedules
/// (planned_layouts(), planned_schedules()), by exact simulation (Predictor) of what no bound drops. Deterministic, also in the
/// number of threads, unless it is told to stop.
/// @param parallel  `parallel(count, run)` calls run(i) for each i below count, in any order and on any threads
/// @param goes_on   `goes_on(PlanProgress)` between rounds; false ends the search with what was found so far
/// @throws InputError  for a problem that cannot be, or an unknown schedule or option.
/// Complexity: by request.budget.
///
/// Example:
/// ```cpp
/// const tawpipe::PlanRequest request{.problem = {.cluster = cluster, .model = model, .sequence = 4096, .global_batch = 512}};
/// const tawpipe::PlanResult found = plan(request, tawpipe::shipped_schedules());
/// // found.plans[0].layout.mesh.tensor, found.plans[0].summary.makespan
/// ```
template <class Parallel, class Goes>
PlanResult plan(const PlanRequest& request, const Registry& registry, Parallel&& parallel, Goes&& goes_on) {
  const Problem& problem = request.problem;
  if (!problem.model || problem.global_batch < 1 || problem.sequence < 1) {
    throw InputError("a plan needs a model, a sequence length and a global batch");
  }
  if (!std::holds_alternative<KernelCost>(problem.cost) && !std::holds_alternative<RooflineCost>(problem.cost)) {
    throw InputError("a plan needs costs that know any layout: kernels or roofline, not given or measured times");
  }
  if (!problem.noise.is_none()) throw InputError("a plan is of times without noise");
  return detail::PlanSearch<std::remove_reference_t<Parallel>>{request, registry, parallel}.run(goes_on);
}

/// The same on this thread alone, to its end.
inline PlanResult plan(const PlanRequest& request, const Registry& registry) {
  const auto one_by_one = [](std::size_t count, auto&& run) {
    for (std::size_t i = 0; i < count; ++i) run(i);
  };
  return plan(request, registry, one_by_one, [](const PlanProgress&) { return true; });
}

}  // namespace tawpipe
