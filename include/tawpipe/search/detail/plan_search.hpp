// The search for a plan: in which order candidates are looked at, which are dropped, which are
// simulated.
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

#include "tawpipe/search/detail/plan_order.hpp"
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

/// Best first: layouts by estimated time, candidates by their bounds. Work is done in rounds of a
/// fixed number of items, and their results are taken in order, so that the result does not depend
/// on the number of threads.
template <class Parallel>
class PlanSearch {
 public:
  PlanSearch(const PlanRequest& request, const Registry& registry, Parallel& parallel)
      : request_{request}, registry_{registry}, parallel_{parallel}, bounds_{request}, prober_{request, registry, known_} {
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
    probe_first(goes_on);
    for (; next_ < order_.size() && spent_ < request_.budget && !result_.stopped; ++next_) {
      const PlanGroup group = order_[next_];
      if (holds_[group.layout] == 0) {
        result_.counts.memory += group.size();
      } else if (!may_win(least_[group.layout])) {
        result_.counts.time += group.size();
      } else {
        look_at(group.layout, group.choices());
        if (worth_simulating()) simulate_some(open_.back().need.steps > many_tasks ? 2 : 1);
      }
      result_.stopped = !goes_on(progress());
    }
    look_around_best();
    save_memory();
    while (!open_.empty() && spent_ < request_.budget && !result_.stopped) {
      simulate_some(2);
      result_.stopped = !goes_on(progress());
    }
    look_around_best();
    finish();
    return std::move(result_);
  }

 private:
  /// On a scale that stays, whatever groups become.
  PlanProgress progress() const {
    constexpr std::int64_t whole = 1000;
    const auto part = static_cast<double>(next_) / static_cast<double>(std::max<std::size_t>(1, order_.size()));
    return {static_cast<std::int64_t>(part * whole), whole, best_ ? &*best_ : nullptr};
  }
  /// Cheap candidates come first only to have a result: slightly better ones are skipped for the
  /// best of all.
  bool worth_simulating() const {
    if (open_.empty() || (best_ && !may_win(open_.back().need.usual))) return false;
    return !request_.cheapest_first || !best_ || open_.back().need.time < best_->summary.makespan * 9 / 10;
  }
  bool may_win(Duration bound) const { return !best_ || bound < least_worth(best_->summary.makespan); }
  static Duration least_worth(Duration best) { return best - best / static_cast<std::int64_t>(1 / plan_tolerance); }

  /// By the bound, and estimates of a pipeline's fill time, of whether it fits and of the search's
  /// cost; they only order and drop nothing.
  void order_layouts() {
    // One of each family first, then the others.
    const auto leads = [](const ScheduleChoice& choice) { return is_leading_schedule(choice.schedule); };
    leading_ = static_cast<std::size_t>(std::stable_partition(choices_.begin(), choices_.end(), leads) - choices_.begin());
    std::vector<double> guess;
    for (const PlanLayout& layout : layouts_) {
      least_.push_back(bounds_.least_time(layout));
      const double microbatches = microbatches_of(request_, layout);
      holds_.push_back(bounds_.can_hold(layout) ? 1 : 0);
      guess.push_back(to_seconds(least_.back()) * bounds_.usual_wait(layout) *
                      (1 + 0.5 * (layout.mesh.pipeline - 1) / microbatches) * std::max(1.0, bounds_.usual_share(layout)) *
                      (1 + 0.01 * std::log2(1 + tasks_of(layout) / 2000)));
    }
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const double key = request_.cheapest_first ? tasks_of(layouts_[i]) : guess[i];
      if (leading_ > 0) order_.push_back({i, 0, leading_, key});
      if (leading_ < choices_.size())
        order_.push_back({i, leading_, choices_.size(), request_.cheapest_first ? key : key * 1.06});
    }
    sort_by_key(order_);
  }

  /// Where an iteration has many microbatches, the candidates of the first groups are ordered by the
  /// paths of a few microbatches, which cost little. Theirs is a part of the budget.
  template <class Goes>
  void probe_first(Goes&& goes_on) {
    if (request_.cheapest_first) return;
    std::vector<PlanGroup> probed;
    std::size_t at = 0;
    for (; at < order_.size() && spent_ < request_.budget / 4 && !result_.stopped; ++at) {
      const PlanGroup& group = order_[at];
      const PlanLayout& layout = layouts_[group.layout];
      if (holds_[group.layout] == 0 || !prober_.is_worth(layout)) {
        probed.push_back(group);
        continue;
      }
      std::vector<PlanProbe> probes(group.end - group.begin);
      parallel_(probes.size(), [&](std::size_t i) { probes[i] = prober_.probe(layout, choices_[group.begin + i]); });
      take_probes(group, probes, probed);
      result_.stopped = !goes_on(progress());
    }
    sort_by_key(probed);
    const auto last =
        std::find_if(probed.begin(), probed.end(), [](const PlanGroup& group) { return group.key >= PlanGroup::deferred; });
    std::vector<PlanGroup> order{probed.begin(), last};
    order.insert(order.end(), order_.begin() + static_cast<std::ptrdiff_t>(at), order_.end());
    order.insert(order.end(), last, probed.end());
    order_ = std::move(order);
  }
  /// Each choice of a group becomes one of its own.
  void take_probes(const PlanGroup& group, const std::vector<PlanProbe>& probes, std::vector<PlanGroup>& probed) {
    const double least = to_seconds(least_[group.layout]);
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const PlanProbe& one = probes[i];
      spent_ += one.cost;
      double key = one.seconds >= least ? one.seconds : group.key;
      const bool again = is_matched(probes, i);
      if (one.seconds > 0 && !one.fits && !again && nearly_fits(one.memory)) {
        const Duration time = seconds(key);
        too_large_.push_back({group.layout, group.begin + i, {.time = time, .memory = one.memory, .fits = false, .usual = time}});
      }
      if (again || !one.fits) key += PlanGroup::deferred;
      probed.push_back({group.layout, group.begin + i, group.begin + i + 1, key});
    }
  }
  /// Computations of a replica, about.
  double tasks_of(const PlanLayout& layout) const {
    return 2.0 * std::max(layout.mesh.pipeline, request_.problem.model->layers) * microbatches_of(request_, layout);
  }

  /// Two simulations of more tasks than this run at once, before more bounds are found that may be
  /// better.
  static constexpr std::int64_t many_tasks = 100'000;
  /// The limit on tasks at once, for the memory of a plan.
  static constexpr double most_tasks = 1'500'000;

  /// What became of a candidate, in a round.
  struct Outcome {
    PlanCandidate candidate;
    std::optional<Plan> plan = {};
    bool impossible = false;
    bool left = false;
    std::int64_t cost = 2000;
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
    } catch (const InputError&) {  // the ranks or the batch cannot be divided so
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
    outcome.impossible = !request_.allows(layouts_[outcome.candidate.layout], choice);
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
                     [](const PlanCandidate& a, const PlanCandidate& b) { return a.need.usual > b.need.usual; });
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
      if (may_win(candidate.need.time) && nearly_fits(candidate.need.memory)) too_large_.push_back(candidate);
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

  /// Simulates the `count` candidates that are most likely the fastest.
  void simulate_some(std::size_t count) {
    drop_slow();
    std::vector<Outcome> outcomes;
    for (; !open_.empty() && outcomes.size() < count; open_.pop_back()) {
      outcomes.push_back({.candidate = open_.back(), .cost = 0});
    }
    parallel_(outcomes.size(), [&](std::size_t i) { simulate(outcomes[i]); });
    for (Outcome& outcome : outcomes) take(outcome);
  }

  /// Left where it would take too much memory: more tasks than fit, or all copies of a layout that
  /// cannot be folded.
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

  /// What else may be around the pipeline that is the best so far, whatever is left of the budget:
  /// it is little.
  void look_around_best() {
    while (around_ && !result_.stopped) {
      const PlanCandidate best = *std::exchange(around_, std::nullopt);
      const std::size_t first = layouts_.size();
      std::vector<Outcome> outcomes;
      for (PlanLayout& layout : planned_variants(request_, layouts_[best.layout], choices_[best.choice].schedule)) {
        outcomes.push_back({.candidate = {layouts_.size(), best.choice}});
        least_.push_back(layout.recompute_layers > 0 ? bounds_.least_time(layout) : least_[best.layout]);
        layouts_.push_back(std::move(layout));
      }
      parallel_(outcomes.size(), [&](std::size_t i) {
        const Problem problem = problem_of(request_, layouts_[first + i], choices_[best.choice]);
        bound(outcomes[i], Predictor{problem, registry_});
      });
      take_bounds(outcomes);
      while (!open_.empty() && open_.back().layout >= first) simulate_some(2);
    }
  }

  /// What was only too large is tried with less memory, the least bounds first, whatever is left of
  /// the budget. Its part is a quarter of it.
  void save_memory() {
    std::erase_if(too_large_, [&](const PlanCandidate& c) { return !may_win(c.need.time); });
    std::stable_sort(too_large_.begin(), too_large_.end(),
                     [](const PlanCandidate& a, const PlanCandidate& b) { return a.need.usual < b.need.usual; });
    const std::int64_t most = spent_ + request_.budget / 4;
    for (std::size_t next = 0; next < too_large_.size() && spent_ < most && !result_.stopped;) {
      const std::size_t first = layouts_.size();
      std::vector<Outcome> outcomes;
      for (; next < too_large_.size() && outcomes.size() < 8; ++next) {
        const PlanCandidate& large = too_large_[next];
        if (!may_win(large.need.time) || !can_save_memory(request_, layouts_[large.layout])) continue;
        outcomes.push_back({.candidate = {layouts_.size(), large.choice}});
        layouts_.push_back(layouts_[large.layout]);
      }
      parallel_(outcomes.size(), [&](std::size_t i) { save(outcomes[i], layouts_[first + i]); });
      for (std::size_t i = 0; i < outcomes.size(); ++i) least_.push_back(bounds_.least_time(layouts_[first + i]));
      take_bounds(outcomes);
      while (!open_.empty() && open_.back().layout >= first && may_win(open_.back().need.time) && spent_ < most) simulate_some(2);
    }
    too_large_.clear();
  }
  bool nearly_fits(Bytes memory) const {
    const Bytes usable = usable_part(request_.problem.cluster.device(Rank{0}).memory, request_.problem.usable_memory);
    return memory / usable < 1.5;
  }
  void save(Outcome& outcome, PlanLayout& layout) {
    const ScheduleChoice& choice = choices_[outcome.candidate.choice];
    const std::optional<SavedMemory> found = save_memory_of(layout, choice, prober_);
    outcome.impossible = !found;
    if (!found) return;
    layout = found->layout;
    outcome.candidate.need = found->need;
    outcome.cost += found->cost;
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

  /// Drops candidates that later results beat.
  void drop_slow() {
    result_.counts.time +=
        static_cast<std::int64_t>(std::erase_if(open_, [&](const PlanCandidate& c) { return !may_win(c.need.time); }));
  }

  void finish() {
    drop_slow();
    for (; next_ < order_.size(); ++next_) {
      const PlanGroup group = order_[next_];
      const std::int64_t open = group.size();
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
  PlanProber prober_;
  std::vector<ScheduleChoice> choices_;
  std::vector<PlanLayout> layouts_;
  std::vector<Duration> least_;           ///< [layout]
  std::vector<char> holds_;               ///< [layout] whether the devices can hold what any schedule must
  std::size_t leading_ = 0;               ///< of choices_, those that are looked at first
  std::vector<PlanGroup> order_;          ///< of all groups
  std::size_t next_ = 0;                  ///< in order_
  std::vector<PlanCandidate> open_;       ///< the least estimate last
  std::vector<PlanCandidate> too_large_;  ///< without the memory that they need
  std::optional<PlanCandidate> around_;   ///< the best, before what else may be around it was looked at
  std::int64_t spent_ = 0;                ///< of the budget
  Duration left_ = Duration::max();       ///< the least bound of what was left
  std::optional<Plan> best_;
  PlanResult result_;
};

}  // namespace tawpipe::detail
