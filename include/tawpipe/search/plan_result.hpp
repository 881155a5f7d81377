// The answer of a search for a plan: plans, best first, and what became of all candidates.
// Not: the space (search/plan_space.hpp) nor the search (search/plan.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/function_ref.hpp"
#include "tawpipe/search/plan_space.hpp"

namespace tawpipe::inline v0 {

/// Improvements below this fraction of the time are not searched for: many layouts differ by less.
inline constexpr double plan_tolerance = 1e-4;

/// One way to train, and its prediction.
struct Plan {
  PlanLayout layout;
  ScheduleChoice choice;
  Duration bound;  ///< a lower bound on its simulated time (min_need())
  Summary summary;
  bool estimated = false;  ///< from iterations of few microbatches: the whole has too many tasks
};

/// The outcome for the candidates: layouts, each with every schedule.
struct PlanCounts {
  std::int64_t layouts = 0;
  std::int64_t candidates = 0;  ///< layouts times schedules, and what was tried around some
  std::int64_t bounded = 0;     ///< those with an individual bound
  std::int64_t simulated = 0;
  // Each candidate is simulated or one of these. Why the others were not simulated.
  std::int64_t impossible = 0;  ///< the schedule does not exist for the layout
  std::int64_t memory = 0;      ///< needs more than available, under any timing
  std::int64_t time = 0;        ///< cannot be faster than the best found
  std::int64_t left = 0;        ///< not examined: the budget was used up, or the search was stopped
};

/// A schedule of which nothing that fits was simulated, and why.
struct PlanLoss {
  std::string schedule;
  /// a lower bound on its time, where it may fit; none: it does not
  std::optional<Duration> least = {};
  /// of a device: what it needs at least, where it does not fit
  std::optional<Bytes> memory = {};
};

struct PlanResult {
  /// The simulated ones that fit, the fastest first, of equal times that of the least memory; of those
  /// that are alike() the first one found.
  std::vector<Plan> plans;
  std::vector<PlanLoss> losses;  ///< of the other schedules, as the request lists them
  std::vector<Plan> closest;     ///< if none fits: the simulated one that exceeds memory least
  PlanCounts counts;
  /// A lower bound on all candidates: the best's own time, or the least bound of those not
  /// examined or only estimated.
  Duration bound;
  /// Every candidate was simulated in full or dropped by a bound: none is faster beyond
  /// plan_tolerance.
  bool proven_best = false;
  bool stopped = false;    ///< told to
  bool timed_out = false;  ///< by PlanRequest::seconds

  /// How much faster an unexamined candidate may be: 0.05 is 5 %. @pre not plans.empty()
  double gap() const { return plans.front().summary.makespan / std::max(bound, Duration{1}) - 1; }
  /// The Pareto-optimal `plans` in time and memory, the fastest first. What was dropped by a bound
  /// of time may need less memory.
  std::vector<std::size_t> pareto() const {
    std::vector<std::size_t> front;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (front.empty() || plans[i].summary.fullest() < plans[front.back()].summary.fullest()) front.push_back(i);
    }
    return front;
  }
};

/// Whether two plans are equivalent: a schedule with the same time and memory, on axes of the same
/// sizes with the same microbatches, recomputation and offload.
inline bool alike(const Plan& a, const Plan& b) {
  return a.choice.schedule == b.choice.schedule && a.summary.makespan == b.summary.makespan &&
         a.summary.fullest() == b.summary.fullest() && a.layout.mesh.tensor == b.layout.mesh.tensor &&
         a.layout.mesh.context == b.layout.mesh.context && a.layout.mesh.data == b.layout.mesh.data &&
         a.layout.mesh.expert == b.layout.mesh.expert && a.layout.mesh.whole_experts == b.layout.mesh.whole_experts &&
         a.layout.microbatch_size == b.layout.microbatch_size && a.layout.recompute == b.layout.recompute &&
         a.layout.recompute_layers == b.layout.recompute_layers && a.layout.offload == b.layout.offload;
}

/// As in PlanResult::plans.
inline void sort_plans(std::vector<Plan>& plans) {
  const auto key = [](const Plan& plan) { return std::pair{plan.summary.makespan, plan.summary.fullest()}; };
  std::stable_sort(plans.begin(), plans.end(), [&](const Plan& a, const Plan& b) { return key(a) < key(b); });
  std::vector<Plan> sorted;
  for (Plan& plan : plans) {
    const auto other = [&](const Plan& one) { return key(one) != key(plan); };
    const auto equal = std::find_if(sorted.rbegin(), sorted.rend(), other).base();
    if (std::none_of(equal, sorted.end(), [&](const Plan& one) { return alike(one, plan); })) sorted.push_back(std::move(plan));
  }
  plans = std::move(sorted);
}

/// Calls `run(i)` for each i below `count`, in any order and on any threads.
using PlanThreads = FunctionRef<void(std::size_t count, FunctionRef<void(std::size_t)> run)>;

/// The progress of the search, for a display.
struct PlanProgress {
  std::int64_t done = 0;  ///< of `whole`: 0.8 for the candidates in their order, then the rest
  std::int64_t whole = 0;
  const Plan* best = nullptr;  ///< null until something fits
};

/// Is told the progress between rounds; false ends the search.
using PlanWatcher = FunctionRef<bool(const PlanProgress&)>;

/// The problem of one layout with one schedule, as simulated.
inline Problem problem_of(const PlanRequest& request, const PlanLayout& layout, const ScheduleChoice& choice) {
  Problem problem = request.problem;
  problem.mesh = layout.mesh;
  problem.recompute = layout.recompute;
  problem.microbatch_sizes = {layout.microbatch_size};
  problem.schedules = {choice};
  if (layout.exchange) problem.context_exchange = *layout.exchange;
  if (layout.recompute_layers > 0) problem.model->recompute_layers = layout.recompute_layers;
  if (layout.loss_chunk > 0) problem.model->loss_chunk = layout.loss_chunk;
  if (layout.sharding) problem.sharding = *layout.sharding;
  if (layout.offload) problem.offload = *layout.offload;
  if (layout.balanced_stages) problem.stage_cut = {.balanced = true};
  problem.fold = Fold::automatic;
  return problem;
}

}  // namespace tawpipe
