// How to train: the fastest layout and schedule of a defined space, found by bounds that exclude the rest and by exact simulation.
// Not: the space (search/plan_space.hpp) nor the bounds (search/layout_bound.hpp, search/lower_bound.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0 {

/// Improvements below this fraction of the time are not searched for: many layouts differ by less.
inline constexpr double plan_tolerance = 1e-4;

/// One way to train, and its prediction.
struct Plan {
  PlanLayout layout;
  ScheduleChoice choice;
  Duration bound;  ///< a lower bound on its simulated time (least_need())
  Summary summary;
};

/// The outcome for the candidates: layouts, each with every schedule.
struct PlanCounts {
  std::int64_t layouts = 0;
  std::int64_t candidates = 0;  ///< layouts times schedules
  std::int64_t bounded = 0;     ///< those with an individual bound
  std::int64_t simulated = 0;
  // Why the others were not simulated.
  std::int64_t impossible = 0;  ///< the schedule does not exist for the layout
  std::int64_t memory = 0;      ///< needs more than available, under any timing
  std::int64_t time = 0;        ///< cannot be faster than the best found
  std::int64_t left = 0;        ///< not examined: the budget was used up, or the search was stopped
};

struct PlanResult {
  /// The simulated ones that fit, the fastest first; of those that are alike() the first one found.
  std::vector<Plan> plans;
  std::vector<Plan> closest;  ///< if none fits: the simulated one that exceeds memory least
  PlanCounts counts;
  /// A lower bound on all candidates: the best's own time, or the least bound of those not examined.
  Duration bound;
  bool proven_best = false;  ///< every candidate was simulated or dropped by a bound: none is faster beyond plan_tolerance
  bool stopped = false;      ///< on request

  /// How much faster an unexamined candidate may be: 0.05 is 5 %. @pre not plans.empty()
  double gap() const { return plans.front().summary.makespan / std::max(bound, Duration{1}) - 1; }
  /// The Pareto-optimal `plans` in time and memory, the fastest first.
  std::vector<std::size_t> pareto() const {
    std::vector<std::size_t> front;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (front.empty() || plans[i].summary.fullest() < plans[front.back()].summary.fullest()) front.push_back(i);
    }
    return front;
  }
};

/// Whether two plans are equivalent: the same time and memory, on axes of the same sizes with the same microbatches.
inline bool alike(const Plan& a, const Plan& b) {
  return a.summary.makespan == b.summary.makespan && a.summary.fullest() == b.summary.fullest() &&
         a.layout.mesh.tensor == b.layout.mesh.tensor && a.layout.mesh.context == b.layout.mesh.context &&
         a.layout.mesh.data == b.layout.mesh.data && a.layout.microbatch_size == b.layout.microbatch_size &&
         a.layout.recompute == b.layout.recompute;
}

/// The progress of the search, for a display.
struct PlanProgress {
  std::int64_t done = 0;  ///< groups of candidates
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
  problem.fold = Fold::automatic;
  return problem;
}

namespace detail {

/// A candidate with a bound, to be simulated unless something is faster.
struct PlanCandidate {
  std::size_t layout = 0;
  std::size_t choice = 0;
  LeastNeed need;
};

/// Best first: layouts by estimated time, candidates by their bounds. Work is done in rounds of a fixed number of items, and
/// their results are taken in order, so that the result does not depend on the number of threads.
template <class Parallel>
class PlanSearch {
 public:
  PlanSearch(const PlanRequest& request, const Registry& registry, Parallel& parallel)
      : request_{request}, registry_{registry}, parallel_{parallel}, bounds_{request} {
    for (const ScheduleChoice& choice : request.schedules.empty() ? planned_schedules(registry) : request.schedules) {
      for (ScheduleChoice& one : variants_of(registry, choice, request.problem.cluster)) choices_.push_back(std::move(one));
    }
    layouts_ = planned_layouts(request);
  }

  template <class Goes>
  PlanResult run(Goes&& goes_on) {
    result_.counts.layouts = static_cast<std::int64_t>(layouts_.size());
    result_.counts.candidates = result_.counts.layouts * static_cast<std::int64_t>(choices_.size());
    order_layouts();
    for (; next_ < order_.size() && spent_ < request_.budget && !result_.stopped; ++next_) {
      const auto [layout, group] = order_[next_];
      if (holds_[layout] == 0) {
        result_.counts.memory += size_of(group);
      } else if (!may_win(least_[layout])) {
        result_.counts.time += size_of(group);
      } else {
        bound_all(layout, group);
        if (worth_simulating()) simulate_some(1);
      }
      result_.stopped = !goes_on(progress());
    }
    while (!open_.empty() && spent_ < request_.budget && !result_.stopped) {
      simulate_some(2);
      result_.stopped = !goes_on(progress());
    }
    finish();
    return std::move(result_);
  }

 private:
  PlanProgress progress() const {
    return {static_cast<std::int64_t>(next_), static_cast<std::int64_t>(order_.size()), best_ ? &*best_ : nullptr};
  }
  /// Cheap candidates come first only to have a result: slightly better ones are skipped for the best of all.
  bool worth_simulating() const {
    return !request_.cheapest_first || !best_ || (!open_.empty() && open_.back().need.time < best_->summary.makespan * 9 / 10);
  }
  bool may_win(Duration bound) const { return !best_ || bound < least_worth(best_->summary.makespan); }
  static Duration least_worth(Duration best) { return best - best / static_cast<std::int64_t>(1 / plan_tolerance); }

  /// By the bound, and estimates of a pipeline's fill time, of whether it fits and of the search's cost; they only order and
  /// exclude nothing.
  void order_layouts() {
    // One of each family first, then the others.
    const auto leads = [](const ScheduleChoice& choice) {
      const auto& names = leading_schedules();
      return std::find(names.begin(), names.end(), choice.schedule) != names.end();
    };
    leading_ = std::stable_partition(choices_.begin(), choices_.end(), leads) - choices_.begin();
    std::vector<double> guess;
    for (const PlanLayout& layout : layouts_) {
      least_.push_back(bounds_.least_time(layout));
      const double microbatches = microbatches_of(layout);
      holds_.push_back(bounds_.can_hold(layout) ? 1 : 0);
      guess.push_back(to_seconds(least_.back()) * bounds_.usual_wait(layout) *
                      (1 + 0.5 * (layout.mesh.pipeline - 1) / microbatches) * std::max(1.0, bounds_.usual_share(layout)) *
                      (1 + 0.01 * std::log2(1 + tasks_of(layout) / 2000)));
    }
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      for (const int group : {0, 1}) {
        if (size_of(group) > 0) order_.push_back({i, group});
      }
    }
    const auto key = [&](const Group& group) {
      return request_.cheapest_first ? tasks_of(layouts_[group.layout]) : guess[group.layout] * (group.number == 0 ? 1 : 1.03);
    };
    std::stable_sort(order_.begin(), order_.end(), [&](const Group& a, const Group& b) { return key(a) < key(b); });
  }
  static const std::vector<std::string>& leading_schedules() {
    static const std::vector<std::string> names{"tawpipe", "fsdp", "1f1b", "interleaved-1f1b", "zb-v", "v-half", "v-min"};
    return names;
  }

  /// Microbatches of a replica.
  double microbatches_of(const PlanLayout& layout) const {
    return static_cast<double>(request_.problem.global_batch) / static_cast<double>(layout.microbatch_size) / layout.mesh.data;
  }
  /// The approximate number of computations of a replica.
  double tasks_of(const PlanLayout& layout) const {
    return 2.0 * std::max(layout.mesh.pipeline, request_.problem.model->layers) * microbatches_of(layout);
  }

  /// The limit on tasks at once, for the memory of a plan.
  static constexpr double most_tasks = 1'500'000;

  std::int64_t size_of(int group) const { return group == 0 ? leading_ : static_cast<std::int64_t>(choices_.size()) - leading_; }

  void bound_all(std::size_t layout, int group) {
    const auto count = static_cast<std::size_t>(size_of(group));
    const auto first = static_cast<std::size_t>(group == 0 ? 0 : leading_);
    const PlanLayout& at = layouts_[layout];
    if (tasks_of(at) > most_tasks) return leave(layout, group);
    struct Outcome {
      LeastNeed need;
      bool impossible = false;
    };
    std::vector<Outcome> outcomes(count);
    const Problem problem = problem_of(request_, at, choices_.front());
    std::optional<Predictor> predictor;
    try {
      predictor.emplace(problem, registry_);
    } catch (const InputError&) {  // the ranks or the batch cannot be divided so
      result_.counts.impossible += size_of(group);
      return;
    }
    parallel_(count, [&](std::size_t i) {
      if (request_.runs != nullptr && !request_.runs(request_, at, choices_[first + i])) {
        outcomes[i].impossible = true;
        return;
      }
      try {
        outcomes[i].need = predictor->least(choices_[first + i], &known_);
      } catch (const InputError&) {
        outcomes[i].impossible = true;
      }
    });
    for (std::size_t i = 0; i < count; ++i) {
      const LeastNeed& need = outcomes[i].need;
      if (outcomes[i].impossible) {
        ++result_.counts.impossible;
        spent_ += 1000;
        continue;
      }
      ++result_.counts.bounded;
      spent_ += 1000 + need.ends;
      if (!need.fits) {
        ++result_.counts.memory;
      } else if (!may_win(need.time)) {
        ++result_.counts.time;
      } else {
        open_.push_back({layout, first + i, need});
      }
    }
    std::stable_sort(open_.begin(), open_.end(),
                     [](const PlanCandidate& a, const PlanCandidate& b) { return a.need.time > b.need.time; });
  }

  void leave(std::size_t layout, int group) {
    result_.counts.left += size_of(group);
    left_ = std::min(left_, least_[layout]);
  }

  /// Simulates the `count` candidates with the least bounds.
  void simulate_some(std::size_t count) {
    drop_slow();
    std::vector<PlanCandidate> chosen;
    for (; !open_.empty() && chosen.size() < count; open_.pop_back()) {
      const double tasks = static_cast<double>(open_.back().need.steps);
      if (tasks <= most_tasks) {
        chosen.push_back(open_.back());
      } else {
        ++result_.counts.left;
        left_ = std::min(left_, open_.back().need.time);
      }
    }
    std::vector<std::optional<Plan>> plans(chosen.size());
    parallel_(chosen.size(), [&](std::size_t i) { plans[i] = simulate(chosen[i]); });
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!plans[i]) {
        ++result_.counts.left;
        left_ = std::min(left_, chosen[i].need.time);
        continue;
      }
      const Folding& folding = plans[i]->summary.folding;
      spent_ += 8 * (folding.factor > 1 ? folding.tasks : std::max(plans[i]->summary.tasks, chosen[i].need.steps));
      ++result_.counts.simulated;
      take(*std::move(plans[i]));
    }
  }

  /// None if it would take too much memory: all copies of a layout that cannot be folded.
  std::optional<Plan> simulate(const PlanCandidate& candidate) const {
    const PlanLayout& layout = layouts_[candidate.layout];
    Problem problem = problem_of(request_, layout, choices_[candidate.choice]);
    const bool in_full = static_cast<double>(candidate.need.steps) * layout.mesh.copies() <= most_tasks;
    if (!in_full) problem.fold = Fold::on;
    try {
      return Plan{layout, choices_[candidate.choice], candidate.need.time, Predictor{problem, registry_}.best().summary};
    } catch (const InputError&) {
      if (in_full) throw;
      return std::nullopt;
    }
  }

  void take(Plan plan) {
    if (!plan.summary.fits()) {
      ++result_.counts.memory;
      if (result_.closest.empty() || plan.summary.fullest() < result_.closest[0].summary.fullest()) {
        result_.closest.assign(1, std::move(plan));
      }
      return;
    }
    if (!best_ || plan.summary.makespan < best_->summary.makespan) best_ = plan;
    result_.plans.push_back(std::move(plan));
  }

  /// Drops candidates that later results beat. @pre open_ has the least bound last
  void drop_slow() {
    const auto slow = std::find_if(open_.begin(), open_.end(), [&](const PlanCandidate& c) { return may_win(c.need.time); });
    result_.counts.time += slow - open_.begin();
    open_.erase(open_.begin(), slow);
  }

  void finish() {
    drop_slow();
    for (; next_ < order_.size(); ++next_) {
      const auto [layout, group] = order_[next_];
      if (holds_[layout] == 0) {
        result_.counts.memory += size_of(group);
      } else if (may_win(least_[layout])) {
        leave(layout, group);
      } else {
        result_.counts.time += size_of(group);
      }
    }
    for (const PlanCandidate& candidate : open_) left_ = std::min(left_, candidate.need.time);
    result_.counts.left += static_cast<std::int64_t>(open_.size());
    std::stable_sort(result_.plans.begin(), result_.plans.end(),
                     [](const Plan& a, const Plan& b) { return a.summary.makespan < b.summary.makespan; });
    result_.plans.erase(std::unique(result_.plans.begin(), result_.plans.end(), alike), result_.plans.end());
    result_.bound = best_ ? std::min(best_->summary.makespan, left_) : left_;
    if (best_) result_.closest.clear();
    result_.proven_best = !best_ ? result_.counts.left == 0 : left_ >= least_worth(best_->summary.makespan);
  }

  /// A layout with some of the schedules.
  struct Group {
    std::size_t layout;
    int number;  ///< 0: the leading ones, 1: the others
  };

  const PlanRequest& request_;
  const Registry& registry_;
  Parallel& parallel_;
  LayoutBounds bounds_;
  CollectiveTimes known_;
  std::vector<ScheduleChoice> choices_;
  std::vector<PlanLayout> layouts_;
  std::vector<Duration> least_;      ///< [layout]
  std::vector<char> holds_;          ///< [layout] whether the devices can hold the minimum for any schedule
  std::ptrdiff_t leading_ = 0;       ///< of choices_, those examined first
  std::vector<Group> order_;         ///< of all groups
  std::size_t next_ = 0;             ///< in order_
  std::vector<PlanCandidate> open_;  ///< the least bound last
  std::int64_t spent_ = 0;           ///< part of the budget used
  Duration left_ = Duration::max();  ///< the least bound of those not examined
  std::optional<Plan> best_;
  PlanResult result_;
};

}  // namespace detail

/// The fastest way to train that the request leaves open: over all meshes, microbatch sizes, recomputations and schedules
/// (planned_layouts(), planned_schedules()), by exact simulation (Predictor) of those that no bound excludes. Deterministic, for any
/// number of threads, unless stopped.
/// @param parallel  `parallel(count, run)` calls run(i) for each i below count, in any order and on any threads
/// @param goes_on   `goes_on(PlanProgress)` between rounds; false ends the search with the best so far
/// @throws InputError  for an invalid problem, or an unknown schedule or option.
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

/// The same on this thread only, to its end.
inline PlanResult plan(const PlanRequest& request, const Registry& registry) {
  const auto one_by_one = [](std::size_t count, auto&& run) {
    for (std::size_t i = 0; i < count; ++i) run(i);
  };
  return plan(request, registry, one_by_one, [](const PlanProgress&) { return true; });
}

}  // namespace tawpipe
