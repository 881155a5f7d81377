// The search for a plan: which candidates are dropped, which are simulated, and what is tried
// around the best.
// Not: in which order they are looked at (plan_turns.hpp), what becomes of each (plan_rounds.hpp),
// nor the bounds that drop them (search/layout_bound.hpp, search/lower_bound.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/detail/plan_families.hpp"
#include "tawpipe/search/detail/plan_order.hpp"

namespace tawpipe::inline v0::detail {

/// Best first: layouts by estimated time, candidates by their bounds.
class PlanSearch : PlanFamilies {
 public:
  using PlanFamilies::PlanFamilies;

  PlanResult run() {
    bool whole = true;
    try {
      search();
    } catch (const Stopped&) {
      whole = false;
      result_.stopped = true;
    }
    const StopScope to_the_end{nullptr};
    finish();
    if (!whole) forget_unfinished();
    return std::move(result_);
  }

 private:
  void search() {
    result_.counts.layouts = static_cast<std::int64_t>(layouts_.size());
    tell_progress();
    order_layouts();
    result_.counts.candidates = result_.counts.layouts * static_cast<std::int64_t>(choices_.size());
    probe_first();
    climb_by_probes();
    look_in_order();
    look_at_slow();
    in_order_ = spent_;
    look_around_best();
    save_memory();
    recompute_parts();
    // Those whose estimates are not the best so far are worth an eighth at least.
    const std::int64_t most = std::max(request_.budget, spent_ + request_.budget / 8);
    while (!open_.empty() && spent_ < most && !result_.stopped) {
      simulate_some(2);
      tell_progress();
    }
    look_around_best();
    simulate_families();
    look_around_best();
  }
  void look_in_order() {
    for (; next_ < order_.size() && spent_ < request_.budget && !result_.stopped; ++next_) {
      const PlanGroup group = order_[next_];
      if (is_dropped(group)) continue;
      if (tasks_of(layouts_[group.layout]) > max_tasks) {
        leave(group);
      } else if (is_slow(group)) {
        slow_.push_back(group);
      } else {
        take_bounds(bounds_of_next());
        const Duration before = best_ ? best_->summary.makespan : Duration::max();
        if (worth_simulating()) simulate_some(open_.back().need.steps > many_tasks ? 2 : 1);
        if (best_ && best_->summary.makespan < before && !request_.cheapest_first) bring_near(*around_);
      }
      tell_progress();
    }
  }
  /// Bounds of what prices say is not the best may prove it, where a quarter of the budget suffices for all of
  /// them.
  void look_at_slow() {
    std::erase_if(slow_, [&](const PlanGroup& group) { return is_dropped(group); });
    const auto suffices = [&](double part) {
      double cost = 0;
      for (const PlanGroup& group : slow_) cost += part * cost_of_bounds(group);
      return next_ >= order_.size() && static_cast<double>(spent_) + cost < static_cast<double>(request_.budget);
    };
    if (suffices(1.0 / PlanProber::steps_of_task)) drop_by_prices();
    if (suffices(4)) {
      proves_ = true;
      order_.insert(order_.end(), slow_.begin(), slow_.end());
      look_in_order();
    } else {
      for (const PlanGroup& group : slow_) leave(group);
    }
  }
  void drop_by_prices() {
    std::vector<PlanGroup> each;
    for (const PlanGroup& group : slow_) {
      for (std::size_t choice = group.begin; choice < group.end; ++choice)
        each.push_back({group.layout, choice, choice + 1, group.key});
    }
    std::vector<MinNeed> needs(each.size());
    parallel_(each.size(),
              [&](std::size_t i) { needs[i] = prober_.least_by_price(layouts_[each[i].layout], choices_[each[i].begin]); });
    std::vector<PlanGroup> rest;
    for (std::size_t i = 0; i < each.size(); ++i) {
      const PlanGroup& one = each[i];
      spent_ += needs[i].ends;
      if (may_win(needs[i].time)) {
        rest.push_back(one);
      } else {
        ++result_.counts.time;
        needs[i].fits ? lose({one.layout, one.begin, needs[i]}) : lose(one.begin, needs[i].time);
      }
    }
    slow_ = std::move(rest);
  }
  /// What a round had begun is left, and any layout's bound is one of what is left.
  void forget_unfinished() {
    PlanCounts& counts = result_.counts;
    counts.left = counts.candidates - counts.impossible - counts.memory - counts.time - counts.simulated;
    const auto least = std::min_element(min_times_.begin(), min_times_.end());
    result_.bound = least == min_times_.end() ? Duration{} : std::min(result_.bound, *least);
    result_.proven_best = false;
  }
  /// Cheap candidates come first only to have a result: slightly better ones are skipped for the
  /// best of all.
  bool worth_simulating() const {
    if (open_.empty() || open_.back().repeats || (best_ && !may_win(open_.back().need.usual))) return false;
    return !request_.cheapest_first || !best_ || open_.back().need.time < best_->summary.makespan * 9 / 10;
  }
  /// What else may be around the pipeline that is the best so far, and other sizes of its
  /// microbatch, whatever is left of the budget: it is little.
  void look_around_best() {
    while (around_ && !result_.stopped) {
      const PlanCandidate best = *std::exchange(around_, std::nullopt);
      const std::size_t first = layouts_.size();
      std::vector<Outcome> outcomes;
      std::vector<PlanLayout> around = planned_variants(request_, layouts_[best.layout], family_of(best.choice));
      const std::vector<PlanLayout> sizes = other_sizes(request_, layouts_[best.layout]);
      around.insert(around.end(), sizes.begin(), sizes.end());
      for (const PlanLayout& layout : around) {
        const std::pair<PlanLayout, std::size_t> one{layout, best.choice};
        if (std::find(around_tried_.begin(), around_tried_.end(), one) != around_tried_.end()) continue;
        around_tried_.push_back(one);
        outcomes.push_back({.candidate = {layouts_.size(), best.choice}});
        min_times_.push_back(bounds_.min_time(layout));
        layouts_.push_back(layout);
      }
      parallel_(outcomes.size(), [&](std::size_t i) {
        if (!is_lost_by_price(outcomes[i])) bound(outcomes[i]);
      });
      result_.counts.candidates += static_cast<std::int64_t>(outcomes.size());
      take_bounds(outcomes);
      while (!open_.empty() && open_.back().layout >= first) simulate_some(2);
      recompute_less_of(best);
    }
  }
  /// Whether its price proves that it cannot win.
  bool is_lost_by_price(Outcome& outcome) const {
    const PlanCandidate& candidate = outcome.candidate;
    const MinNeed need = prober_.least_by_price(layouts_[candidate.layout], choices_[candidate.choice]);
    outcome.cost += need.ends;
    if (may_win(need.time)) return false;
    outcome.candidate.need = need;
    outcome.candidate.need.fits = true;  // its memory proves nothing
    return true;
  }
  /// With something around it that recompute_parts() does not try.
  void recompute_less_of(const PlanCandidate& best) {
    PlanLayout kept = layouts_[best.layout];
    const bool copies = kept.offload && kept.offload->activations;
    if (!kept.is_variant() || copies || kept.recompute != Recompute::full || kept.recompute_layers > 0 ||
        !may_recompute_part(request_))
      return;
    kept.recompute = Recompute::none;
    const Duration least = bounds_.min_time(kept);
    layouts_.push_back(std::move(kept));
    min_times_.push_back(least);
    try_parts({{layouts_.size() - 1, best.choice, {.time = least}}});
  }

  /// What was only too large is tried with less memory, the least estimates first, whatever is left
  /// of the budget. Its part is a quarter of it.
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
        if (!may_win(large.need.time) || memory_savers(request_, layouts_[large.layout], family_of(large.choice)).empty())
          continue;
        outcomes.push_back({.candidate = {layouts_.size(), large.choice}});
        layouts_.push_back(layouts_[large.layout]);
      }
      parallel_(outcomes.size(), [&](std::size_t i) { save(outcomes[i], layouts_[first + i]); });
      for (std::size_t i = 0; i < outcomes.size(); ++i) min_times_.push_back(bounds_.min_time(layouts_[first + i]));
      result_.counts.candidates += static_cast<std::int64_t>(outcomes.size());
      take_bounds(outcomes);
      while (!open_.empty() && open_.back().layout >= first && may_win(open_.back().need.time) && spent_ < most) simulate_some(2);
      tell_progress();
    }
  }

  /// What does not fit with nothing computed again is tried with full recomputation of the least
  /// part of each stage's layers with which it does, the least estimates first. Theirs is a quarter
  /// of the budget, or little where the budget did not suffice for the others.
  void recompute_parts() {
    const bool complete = next_ >= order_.size() && (slow_.empty() || proves_);
    if (complete) add_parts_of_layouts();
    part_of_.clear();
    std::stable_sort(parts_.begin(), parts_.end(),
                     [](const PlanCandidate& a, const PlanCandidate& b) { return a.need.usual < b.need.usual; });
    const std::int64_t most = spent_ + request_.budget / (complete ? 4 : 32);
    std::size_t next = 0;
    while (next < parts_.size() && spent_ < most && !result_.stopped) {
      std::vector<PlanCandidate> some;
      for (; next < parts_.size() && some.size() < 8; ++next) {
        if (is_open(parts_[next])) {
          some.push_back(parts_[next]);
        } else if (!may_win(parts_[next].need.time)) {
          lose(parts_[next].choice, parts_[next].need.time);
        }
      }
      try_parts(some);
      tell_progress();
    }
    for (; next < parts_.size(); ++next) {
      if (!is_open(parts_[next])) continue;
      ++result_.counts.candidates;
      ++result_.counts.left;
      left_ = std::min(left_, parts_[next].need.time);
      lose(parts_[next].choice, parts_[next].need.time);
    }
  }
  void try_parts(const std::vector<PlanCandidate>& candidates) {
    const std::size_t first = layouts_.size();
    std::vector<Outcome> outcomes;
    std::vector<PlanPart> parts;
    for (const PlanCandidate& candidate : candidates) {
      outcomes.push_back({.candidate = {layouts_.size(), candidate.choice, {.time = candidate.need.time}}});
      parts.push_back(part_of(candidate));
      layouts_.push_back(parts.back().layout);
      min_times_.push_back(candidate.need.time);
    }
    parallel_(outcomes.size(), [&](std::size_t i) { recompute(outcomes[i], parts[i], layouts_[first + i]); });
    take_parts(outcomes);
    unfit_.clear();
    while (!open_.empty() && open_.back().layout >= first && may_win(open_.back().need.time)) simulate_some(2);
    for (const PlanCandidate& large : std::vector<PlanCandidate>{unfit_}) {
      if (large.layout >= first) recompute_more(parts[large.layout - first], large);
    }
  }
  /// Those that are dropped are counted already, as what does not fit with nothing computed again.
  void take_parts(std::vector<Outcome>& outcomes) {
    for (Outcome& outcome : outcomes) {
      const PlanCandidate& candidate = outcome.candidate;
      if (!outcome.impossible) ++result_.counts.bounded;
      if (outcome.left || (!outcome.impossible && candidate.need.fits && may_win(candidate.need.time))) {
        ++result_.counts.candidates;
        take(outcome);
      } else {
        spent_ += outcome.cost;
        if (best_ && !outcome.impossible)
          lose(candidate.choice, std::max(candidate.need.time, min_worth(best_->summary.makespan)));
      }
    }
    sort_open();
  }
  /// The same by simulations, where one needs more memory than its bound says.
  void recompute_more(const PlanPart& part, const PlanCandidate& large) {
    int least = layouts_[large.layout].recompute_layers + 1;
    for (int enough = part.most; least < enough && may_win(large.need.time);) {
      const int layers = (least + enough) / 2;
      layouts_.push_back(recomputing(part.layout, layers));
      min_times_.push_back(large.need.time);
      std::vector<Outcome> one{{.candidate = {layouts_.size() - 1, large.choice}}};
      const Problem problem = prober_.problem_of(layouts_.back(), choices_[large.choice]);
      bound(one[0], Predictor{problem, registry_});
      const MinNeed need = one[0].candidate.need;
      unfit_.clear();
      take_parts(one);
      if (!open_.empty() && open_.back().layout + 1 == layouts_.size()) simulate_some(1);
      const bool fits = need.fits && unfit_.empty();
      (fits ? enough : least) = fits ? layers : layers + 1;
    }
  }
  /// Those of layouts whose devices cannot hold what any schedule keeps of one microbatch.
  void add_parts_of_layouts() {
    if (!may_recompute_part(request_)) return;
    for (const PlanGroup& group : order_) {
      const PlanLayout& layout = layouts_[group.layout];
      if (holds_[group.layout] != 0 || layout.recompute != Recompute::none || !may_win(min_times_[group.layout])) continue;
      if (const std::size_t full = full_of(group.layout); full < holds_.size() && holds_[full] == 0) continue;
      const std::optional<Duration> time = bounds_.min_time_of_part(layout);
      if (!time || !may_win(*time)) continue;
      const Duration usual = seconds(to_seconds(*time) * usual_wait(layout));
      for (std::size_t choice = group.begin; choice < group.end; ++choice)
        parts_.push_back({group.layout, choice, {.time = *time, .usual = usual}});
    }
  }
  /// Unless it cannot win, or does not fit with all layers computed again.
  bool is_open(const PlanCandidate& part) const {
    return may_win(part.need.time) && !never_fits_.contains({full_of(part.layout), part.choice});
  }
  std::size_t full_of(std::size_t layout) const {
    for (std::size_t i = layout; i < layouts_.size(); ++i) {
      const PlanLayout& full = layouts_[i];
      const PlanLayout& none = layouts_[layout];
      const bool alike = full.mesh == none.mesh && full.microbatch_size == none.microbatch_size && full.exchange == none.exchange;
      if (alike && full.recompute == Recompute::full && full.recompute_layers == 0 && !full.is_variant()) return i;
    }
    return layouts_.size();  // unknown
  }
  /// Where the time grows with the layers computed again as it does for any schedule, the first
  /// number to try is the least that cannot win.
  PlanPart part_of(const PlanCandidate& candidate) {
    const PlanLayout& layout = layouts_[candidate.layout];
    const int layers = request_.problem.model->layers;
    const bool stages = family_of(candidate.choice) == ScheduleFamily::pipeline;
    const int most = stages ? (layers - 1) / layout.mesh.pipeline + 1 : layers;
    const double none = to_seconds(bounds_.min_time(layout));
    const double full = to_seconds(bounds_.min_time(recomputing(layout, 0)));
    const double open = best_ ? to_seconds(best_->summary.makespan) / to_seconds(candidate.need.time) - 1 : 1;
    const double part = most * std::min(1.0, std::max(0.0, open) / std::max(1e-9, full / none - 1));
    int lost = layers;
    for (int least = 1; least < lost;) {
      const int tried = (least + lost) / 2;
      may_win(bounds_.min_time(recomputing(layout, tried))) ? least = tried + 1 : lost = tried;
    }
    return {layout, most, static_cast<int>(part) + 1, lost};
  }
  void recompute(Outcome& outcome, const PlanPart& part, PlanLayout& layout) const {
    const ScheduleChoice& choice = choices_[outcome.candidate.choice];
    outcome.left = tasks_of(layout) > max_tasks;
    outcome.impossible = !outcome.left && !prober_.allows(recomputing(layout, 1), choice);
    if (outcome.left || outcome.impossible) return;
    // The order of schedules that move weights depends on how long stages take: their bounds may
    // fall.
    const bool reorders = family_of(outcome.candidate.choice) == ScheduleFamily::weight_pipeline;
    const auto found = min_recompute(part, choice, prober_, [&](Duration bound) { return reorders || may_win(bound); });
    outcome.impossible = !found;
    if (!found) return;
    layout = found->layout;
    outcome.candidate.need = found->need;
    outcome.cost += found->cost;
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

  void finish() {
    if (result_.stopped) {
      for (const auto& [which, early] : early_) {
        ++result_.counts.candidates;  // once more: it is also left
        take_plan(early.plan);
      }
    }
    drop_slow();
    for (; next_ < order_.size(); ++next_) {
      if (!is_dropped(order_[next_])) leave(order_[next_]);
    }
    for (const PlanCandidate& candidate : open_) {
      left_ = std::min(left_, candidate.need.time);
      lose(candidate);
    }
    result_.counts.left += static_cast<std::int64_t>(open_.size());
    sort_plans(result_.plans);
    const Duration open = std::min(left_, estimated_);
    result_.bound = best_ ? std::min(best_->summary.makespan, open) : open;
    if (best_) result_.closest.clear();
    list_losses();
    result_.proven_best = !best_ ? result_.counts.left == 0 : !best_->estimated && open >= min_worth(best_->summary.makespan);
  }
};

}  // namespace tawpipe::detail
