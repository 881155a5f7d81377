// The search for a plan: in which order candidates are looked at, which are dropped, which are simulated.
// Not: the bounds that drop them (search/layout_bound.hpp, search/lower_bound.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan_result.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0::detail {

/// A candidate with a bound, to be simulated unless something is faster.
struct PlanCandidate {
  std::size_t layout = 0;
  std::size_t choice = 0;
  LeastNeed need = {};
};

/// Best first: layouts by how fast they look, candidates by their bounds. Work is done in rounds of a fixed number of items, and
/// their results are taken in order, so that the answer does not depend on how many threads there are.
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
    order_layouts();
    result_.counts.candidates = result_.counts.layouts * static_cast<std::int64_t>(choices_.size());
    for (; next_ < order_.size() && spent_ < request_.budget && !result_.stopped; ++next_) {
      const Group group = order_[next_];
      if (holds_[group.layout] == 0) {
        result_.counts.memory += size_of(group);
      } else if (!may_win(least_[group.layout])) {
        result_.counts.time += size_of(group);
      } else {
        look_at(group.layout, choices_of(group));
        if (worth_simulating()) simulate_some(open_.back().need.steps > many_tasks ? 2 : 1);
      }
      result_.stopped = !goes_on(progress());
    }
    look_around_best();
    while (!open_.empty() && spent_ < request_.budget && !result_.stopped) {
      simulate_some(2);
      result_.stopped = !goes_on(progress());
    }
    look_around_best();
    finish();
    return std::move(result_);
  }

 private:
  /// A layout with some of the schedules.
  struct Group {
    std::size_t layout;
    int number;  ///< 0: the leading ones, 1: the others
  };

  PlanProgress progress() const {
    return {static_cast<std::int64_t>(next_), static_cast<std::int64_t>(order_.size()), best_ ? &*best_ : nullptr};
  }
  /// Cheap candidates come first only to have something: those a little better are passed over for the best of all.
  bool worth_simulating() const {
    if (open_.empty()) return false;
    return !request_.cheapest_first || !best_ || open_.back().need.time < best_->summary.makespan * 9 / 10;
  }
  bool may_win(Duration bound) const { return !best_ || bound < least_worth(best_->summary.makespan); }
  static Duration least_worth(Duration best) { return best - best / static_cast<std::int64_t>(1 / plan_tolerance); }

  /// By the bound, and guesses of what a pipeline's fill adds, of whether it fits and what looking costs; they order and
  /// drop nothing.
  void order_layouts() {
    // One of each family first, then the others.
    const auto leads = [](const ScheduleChoice& choice) {
      const auto& names = leading_schedules();
      return std::find(names.begin(), names.end(), choice.schedule) != names.end();
    };
    leading_ = static_cast<std::size_t>(std::stable_partition(choices_.begin(), choices_.end(), leads) - choices_.begin());
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
      for (const int number : {0, 1}) {
        if (size_of({i, number}) > 0) order_.push_back({i, number});
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
  /// Computations of a replica, about.
  double tasks_of(const PlanLayout& layout) const {
    return 2.0 * std::max(layout.mesh.pipeline, request_.problem.model->layers) * microbatches_of(layout);
  }

  /// Two simulations of more tasks than this run at once, before more bounds are found that may be better.
  static constexpr std::int64_t many_tasks = 100'000;
  /// More tasks than this at once would take more memory than a plan may.
  static constexpr double most_tasks = 1'500'000;

  /// Of choices_, those of a group.
  std::vector<std::size_t> choices_of(const Group& group) const {
    std::vector<std::size_t> found;
    for (std::size_t i = group.number == 0 ? 0 : leading_; i < (group.number == 0 ? leading_ : choices_.size()); ++i)
      found.push_back(i);
    return found;
  }
  std::int64_t size_of(const Group& group) const {
    return static_cast<std::int64_t>(group.number == 0 ? leading_ : choices_.size() - leading_);
  }

  /// What became of a candidate, in a round.
  struct Outcome {
    PlanCandidate candidate;
    std::optional<Plan> plan = {};
    bool impossible = false;
    bool left = false;
    std::int64_t cost = 1000;
  };

  /// Finds the bounds of a layout with some schedules.
  void look_at(std::size_t layout, const std::vector<std::size_t>& choices) {
    const PlanLayout& at = layouts_[layout];
    const auto count = static_cast<std::int64_t>(choices.size());
    if (tasks_of(at) > most_tasks) return leave(layout, count);
    const Problem problem = problem_of(request_, at, choices_[choices[0]]);
    std::optional<Predictor> predictor;
    try {
      predictor.emplace(problem, registry_);
    } catch (const InputError&) {  // the ranks or the batch cannot be cut so
      result_.counts.impossible += count;
      return;
    }
    std::vector<Outcome> outcomes;
    for (const std::size_t choice : choices) outcomes.push_back({.candidate = {layout, choice}});
    parallel_(outcomes.size(), [&](std::size_t i) { bound(outcomes[i], *predictor); });
    take_bounds(outcomes);
  }

  void bound(Outcome& outcome, const Predictor& predictor) {
    const ScheduleChoice& choice = choices_[outcome.candidate.choice];
    outcome.impossible = request_.runs != nullptr && !request_.runs(request_, layouts_[outcome.candidate.layout], choice);
    if (outcome.impossible) return;
    try {
      outcome.candidate.need = predictor.least(choice, &known_);
      outcome.cost += outcome.candidate.need.ends;
    } catch (const InputError&) {
      outcome.impossible = true;
    }
  }

  void take_bounds(std::vector<Outcome>& outcomes) {
    for (Outcome& outcome : outcomes) {
      if (!outcome.impossible) ++result_.counts.bounded;
      take(outcome);
    }
    std::stable_sort(open_.begin(), open_.end(),
                     [](const PlanCandidate& a, const PlanCandidate& b) { return a.need.time > b.need.time; });
  }

  /// What a round found of a candidate.
  void take(Outcome& outcome) {
    const PlanCandidate& candidate = outcome.candidate;
    spent_ += outcome.cost;
    if (outcome.plan) {
      const Duration before = best_ ? best_->summary.makespan : Duration::max();
      take_plan(*std::move(outcome.plan));
      if (best_ && best_->summary.makespan < before) around_ = candidate;
    } else if (outcome.impossible) {
      ++result_.counts.impossible;
    } else if (!candidate.need.fits) {
      ++result_.counts.memory;
    } else if (outcome.left) {
      ++result_.counts.left;
      left_ = std::min(left_, candidate.need.time);
    } else if (!may_win(candidate.need.time)) {
      ++result_.counts.time;
    } else {
      open_.push_back(candidate);
    }
  }

  void leave(std::size_t layout, std::int64_t choices) {
    result_.counts.left += choices;
    left_ = std::min(left_, least_[layout]);
  }

  /// Simulates the `count` candidates of the least bounds.
  void simulate_some(std::size_t count) {
    drop_slow();
    std::vector<Outcome> outcomes;
    for (; !open_.empty() && outcomes.size() < count; open_.pop_back()) {
      outcomes.push_back({.candidate = open_.back(), .cost = 0});
    }
    parallel_(outcomes.size(), [&](std::size_t i) { simulate(outcomes[i]); });
    for (Outcome& outcome : outcomes) take(outcome);
  }

  /// Left where it would take too much memory: more tasks than fit, or all copies of a layout that cannot be folded.
  void simulate(Outcome& outcome) const {
    const PlanCandidate& candidate = outcome.candidate;
    const PlanLayout& layout = layouts_[candidate.layout];
    const ScheduleChoice& choice = choices_[candidate.choice];
    const auto steps = static_cast<double>(candidate.need.steps);
    outcome.left = steps > most_tasks;
    if (outcome.left) return;
    Problem problem = problem_of(request_, layout, choice);
    const bool in_full = steps * layout.mesh.copies() <= most_tasks;
    if (!in_full) problem.fold = Fold::on;
    try {
      outcome.plan = Plan{layout, choice, candidate.need.time, Predictor{problem, registry_}.best().summary};
    } catch (const InputError&) {
      if (in_full) throw;
      outcome.left = true;
      return;
    }
    const Folding& folding = outcome.plan->summary.folding;
    outcome.cost = 8 * (folding.factor > 1 ? folding.tasks : std::max(outcome.plan->summary.tasks, candidate.need.steps));
  }

  /// What else may be around the pipeline that is the best so far, whatever is left of the budget: it is little.
  void look_around_best() {
    while (around_ && !result_.stopped) {
      const PlanCandidate best = *std::exchange(around_, std::nullopt);
      if (!keeps_stages(choices_[best.choice].schedule)) return;
      const std::size_t first = layouts_.size();
      std::vector<Outcome> outcomes;
      for (PlanLayout& layout : planned_variants(request_, layouts_[best.layout])) {
        outcomes.push_back({.candidate = {layouts_.size(), best.choice}});
        layouts_.push_back(std::move(layout));
        least_.push_back(least_[best.layout]);
      }
      parallel_(outcomes.size(), [&](std::size_t i) {
        const Problem problem = problem_of(request_, layouts_[first + i], choices_[best.choice]);
        bound(outcomes[i], Predictor{problem, registry_});
      });
      take_bounds(outcomes);
      while (!open_.empty() && open_.back().layout >= first) simulate_some(2);
    }
  }

  void take_plan(Plan plan) {
    ++result_.counts.simulated;
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

  /// Candidates that what was found since beats. @pre open_ has the least bound last
  void drop_slow() {
    const auto slow = std::find_if(open_.begin(), open_.end(), [&](const PlanCandidate& c) { return may_win(c.need.time); });
    result_.counts.time += slow - open_.begin();
    open_.erase(open_.begin(), slow);
  }

  void finish() {
    drop_slow();
    for (; next_ < order_.size(); ++next_) {
      const Group group = order_[next_];
      const std::int64_t open = size_of(group);
      if (holds_[group.layout] == 0) {
        result_.counts.memory += open;
      } else if (!may_win(least_[group.layout])) {
        result_.counts.time += open;
      } else {
        leave(group.layout, open);
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

  const PlanRequest& request_;
  const Registry& registry_;
  Parallel& parallel_;
  LayoutBounds bounds_;
  CollectiveTimes known_;
  std::vector<ScheduleChoice> choices_;
  std::vector<PlanLayout> layouts_;
  std::vector<Duration> least_;          ///< [layout]
  std::vector<char> holds_;              ///< [layout] whether the devices can hold what any schedule must
  std::size_t leading_ = 0;              ///< of choices_, those that are looked at first
  std::vector<Group> order_;             ///< of all groups
  std::size_t next_ = 0;                 ///< in order_
  std::vector<PlanCandidate> open_;      ///< the least bound last
  std::optional<PlanCandidate> around_;  ///< the best, before what else may be around it was looked at
  std::int64_t spent_ = 0;               ///< of the budget
  Duration left_ = Duration::max();      ///< the least bound of what was left
  std::optional<Plan> best_;
  PlanResult result_;
};

}  // namespace tawpipe::detail
