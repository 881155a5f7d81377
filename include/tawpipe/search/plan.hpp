// How to train: the fastest layout and schedule of a defined space, found by bounds that exclude
// the rest and by exact simulation.
// Not: the space (search/plan_space.hpp) nor the bounds (search/layout_bound.hpp,
// search/lower_bound.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/plan_result.hpp"

namespace tawpipe::inline v0 {

class LayoutTimes;

/// The fastest way to train that the request leaves open: over all meshes, microbatch sizes,
/// recomputations and schedules (planned_layouts(), planned_schedules()), by exact simulation
/// (Predictor) of those that no bound excludes. Deterministic, for any number of threads, unless
/// stopped or ended by PlanRequest::seconds.
/// Told to stop by a StopScope of this thread, it ends at once with the best so far, if there is one.
/// @param goes_on   called between rounds; false ends the search with the best so far, or soon after with the first
/// @param known  of searches that only differ in what they look at, or in what lies in host memory; null: none
/// @throws InputError  for an invalid problem, one of Problem::stack, or an unknown schedule or
/// option.
/// Complexity: by request.budget and request.seconds.
///
/// Example:
/// ```cpp
/// const tawpipe::PlanRequest request{.problem = {.cluster = cluster, .model = model, .sequence = 4096, .global_batch = 512}};
/// const tawpipe::PlanResult found = plan(request, tawpipe::shipped_schedules());
/// // found.plans[0].layout.mesh.tensor, found.plans[0].summary.makespan
/// ```
TAWPIPE_INLINE PlanResult plan(const PlanRequest& request, const Registry& registry, PlanThreads parallel, PlanWatcher goes_on,
                               LayoutTimes* known = nullptr);

/// The same on this thread only, to its end.
TAWPIPE_INLINE PlanResult plan(const PlanRequest& request, const Registry& registry);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <ctime>
#include <variant>

#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/detail/plan_search.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Of a clock that only goes forward, from any moment.
inline double clock_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// PlanThreads on this thread only.
inline constexpr auto one_by_one = [](std::size_t count, FunctionRef<void(std::size_t)> run) {
  for (std::size_t i = 0; i < count; ++i) run(i);
};

}  // namespace detail

TAWPIPE_INLINE PlanResult plan(const PlanRequest& request, const Registry& registry, PlanThreads parallel, PlanWatcher goes_on,
                               LayoutTimes* known) {
  const Problem& problem = request.problem;
  if (problem.stack) {
    throw InputError(
        "a plan is of layouts that share a transformer's layers; choose() and predict() find the best for any model on a mesh");
  }
  if (!problem.model || problem.global_batch < 1 || problem.sequence < 1) {
    throw InputError("a plan needs a model, a sequence length and a global batch");
  }
  if (!std::holds_alternative<KernelCost>(problem.cost) && !std::holds_alternative<RooflineCost>(problem.cost)) {
    throw InputError("a plan needs costs that know any layout: kernels or roofline, not given or measured times");
  }
  if (!problem.noise.is_none()) throw InputError("a plan is of times without noise");
  const StopTold* const outer = detail::stop_told;
  const double end = detail::clock_seconds() + request.seconds;
  bool has_plan = false;  // set between rounds, when no other thread runs
  const auto is_late = [&] { return request.seconds > 0 && has_plan && detail::clock_seconds() >= end; };
  const auto ends = [&] { return (outer != nullptr && (*outer)()) || is_late(); };
  const StopScope scope{ends};
  const StopTold* const told = detail::stop_told;
  const auto watch = [&](const PlanProgress& now) {
    if (now.best != nullptr) has_plan = true;
    return goes_on(now);
  };
  const auto stoppable = [&](std::size_t count, FunctionRef<void(std::size_t)> run) {
    parallel(count, [&](std::size_t i) {
      const StopScope inherited{told};
      check_stop();
      run(i);
    });
  };
  try {
    PlanThreads threads{stoppable};
    PlanWatcher watcher{watch};
    PlanResult result = detail::PlanSearch{request, registry, threads, watcher, known}.run();
    result.timed_out = result.stopped && is_late() && !(outer != nullptr && (*outer)());
    result.stopped = result.stopped && !result.timed_out;
    return result;
  } catch (const Stopped&) {  // before the space was listed
    PlanResult nothing;
    nothing.stopped = true;
    return nothing;
  }
}

TAWPIPE_INLINE PlanResult plan(const PlanRequest& request, const Registry& registry) {
  return plan(request, registry, detail::one_by_one, [](const PlanProgress&) { return true; });
}

}  // namespace tawpipe
#endif
