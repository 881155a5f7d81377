// In which order a search for a plan looks at candidates, and their bounds, found ahead of their
// turn so that all threads have work.
// Not: the estimates that order them (plan_order.hpp), nor what becomes of each (plan_rounds.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/detail/plan_rounds.hpp"

namespace tawpipe::inline v0::detail {

/// Groups of candidates, the best estimates first.
class PlanTurns : public PlanRounds {
 public:
  using PlanRounds::PlanRounds;

 protected:
  /// On a scale that stays, whatever groups become: most of it for the candidates in their order, the
  /// rest for what is tried after them. Who stops the search waits a little for a first plan.
  void tell_progress() {
    if (result_.stopped) return;
    constexpr std::int64_t whole = 1000;
    const auto part = [](auto done, auto of) { return std::min(1.0, static_cast<double>(done) / static_cast<double>(of)); };
    const double turns = order_.empty() ? 0 : part(next_, order_.size());
    const double rest = in_order_ ? part(spent_ - *in_order_, std::max<std::int64_t>(1, request_.budget / 2)) : 0;
    const double done = in_order_ ? 0.8 + 0.2 * rest : 0.8 * std::max(turns, part(spent_, request_.budget));
    const Plan* best = best_ ? &*best_ : nullptr;
    for (const auto& [which, early] : early_) {
      if (best == nullptr || early.plan.summary.makespan < best->summary.makespan) best = &early.plan;
    }
    if (!goes_on_({static_cast<std::int64_t>(done * whole), whole, best}))
      stop_after_ = std::min(stop_after_, spent_ + to_find_one);
    result_.stopped = spent_ > stop_after_ || (best != nullptr && stop_after_ < never);
  }
  /// By the bound, and estimates of a pipeline's fill time, of whether it fits and of the search's
  /// cost; they only order and drop nothing.
  void order_layouts() {
    // One of each family first, then the others.
    const auto leads = [](const ScheduleChoice& choice) { return is_leading_schedule(choice.schedule); };
    leading_ = static_cast<std::size_t>(std::stable_partition(choices_.begin(), choices_.end(), leads) - choices_.begin());
    std::vector<double> guess;
    bounds_.prepare(layouts_, parallel_);
    for (const PlanLayout& layout : layouts_) {
      min_times_.push_back(bounds_.min_time(layout));
      holds_.push_back(bounds_.can_hold(layout) ? 1 : 0);
      guess.push_back(to_seconds(min_times_.back()) * usual_wait(layout) * std::max(1.0, bounds_.usual_share(layout)) *
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
  void probe_first() {
    if (request_.cheapest_first) return;
    std::vector<PlanGroup> probed;
    std::vector<std::vector<PlanProbe>> ahead;
    const std::int64_t most = std::min(request_.budget / 4, max_probed);
    std::size_t at = 0;
    for (; at < order_.size() && spent_ < most && !result_.stopped; ++at) {
      const PlanGroup& group = order_[at];
      if (!is_probed(group)) {
        probed.push_back(group);
        continue;
      }
      if (ahead.empty()) ahead = probe_next(at);
      take_probes(group, ahead.front(), probed);
      ahead.erase(ahead.begin());
      if (ahead.empty()) simulate_early(probed);
      tell_progress();
    }
    sort_by_key(probed);
    const auto last =
        std::find_if(probed.begin(), probed.end(), [](const PlanGroup& group) { return group.key >= PlanGroup::deferred; });
    std::vector<PlanGroup> order{probed.begin(), last};
    order.insert(order.end(), order_.begin() + static_cast<std::ptrdiff_t>(at), order_.end());
    order.insert(order.end(), last, probed.end());
    order_ = std::move(order);
  }
  /// The bounds of the group whose turn it is. They are found together with those of the groups after
  /// it, for all threads to have work; bounds do not depend on when they are found, and those that
  /// are no longer wanted when their turn comes are not counted.
  std::vector<Outcome> bounds_of_next() {
    std::erase_if(ahead_, [&](const Ahead& group) { return group.turn < next_; });
    if (ahead_.empty()) look_ahead();
    return std::move(ahead_.front().outcomes);
  }

 private:
  /// Of computations in what is found ahead, about: much of it may be dropped.
  static constexpr double ahead_tasks = 400'000;
  /// Tasks of probes, at most.
  static constexpr std::int64_t max_probed = 10'000'000;
  static constexpr std::int64_t to_find_one = 4'000'000;
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  /// The best probed so far, for a search that is stopped before any candidate's turn, and to be shown.
  /// What the search finds does not depend on it.
  void simulate_early(const std::vector<PlanGroup>& probed) {
    const PlanGroup* best = nullptr;
    for (const PlanGroup& group : probed) {
      const bool better = group.key < (best == nullptr ? early_key_ : best->key);
      if (better && !looked_at_early_.contains({group.layout, group.begin})) best = &group;
    }
    if (best == nullptr) return;
    looked_at_early_.insert({best->layout, best->begin});
    std::vector<Outcome> one{{.candidate = {best->layout, best->begin}}};
    bound(one[0]);
    const std::int64_t bounds = one[0].cost;
    if (!one[0].impossible && one[0].candidate.need.fits) simulate(one);
    if (!one[0].plan || !one[0].plan->summary.fits()) return;
    early_key_ = best->key * 0.9;
    early_.insert({{best->layout, best->begin}, {*std::move(one[0].plan), one[0].cost - bounds}});
  }

  void look_ahead() {
    const std::size_t most = request_.cheapest_first ? 1 : 16;  // candidates; results come fast there, and drop the next ones
    std::size_t count = 0;
    double tasks = 0;
    for (std::size_t turn = next_; turn < order_.size() && count < most && tasks < ahead_tasks; ++turn) {
      const PlanGroup& group = order_[turn];
      const double each = tasks_of(layouts_[group.layout]);
      if (holds_[group.layout] == 0 || !may_win(min_times_[group.layout]) || each > max_tasks) continue;
      ahead_.push_back({turn, {}});
      for (std::size_t i = group.begin; i < group.end; ++i) ahead_.back().outcomes.push_back({.candidate = {group.layout, i}});
      count += group.end - group.begin;
      tasks += each * static_cast<double>(group.size());
    }
    std::vector<Outcome*> all;
    for (Ahead& group : ahead_) {
      for (Outcome& outcome : group.outcomes) all.push_back(&outcome);
    }
    parallel_(all.size(), [&](std::size_t i) { bound(*all[i]); });
  }

  bool is_probed(const PlanGroup& group) const { return holds_[group.layout] != 0 && prober_.is_worth(layouts_[group.layout]); }
  /// Probes of the groups from `at` on, at once like look_ahead().
  std::vector<std::vector<PlanProbe>> probe_next(std::size_t at) {
    constexpr std::size_t most = 64;  // candidates
    std::vector<std::vector<PlanProbe>> found;
    struct Item {
      std::size_t layout;
      std::size_t choice;
      PlanProbe* probe;
    };
    std::vector<Item> items;
    double tasks = 0;
    for (; at < order_.size() && items.size() < most && tasks < ahead_tasks; ++at) {
      const PlanGroup& group = order_[at];
      if (!is_probed(group)) continue;
      tasks += PlanProber::computations(layouts_[group.layout].mesh, *request_.problem.model) * static_cast<double>(group.size());
      found.emplace_back(group.end - group.begin);
      for (std::size_t i = group.begin; i < group.end; ++i) items.push_back({group.layout, i, &found.back()[i - group.begin]});
    }
    parallel_(items.size(),
              [&](std::size_t i) { *items[i].probe = prober_.probe(layouts_[items[i].layout], choices_[items[i].choice]); });
    return found;
  }
  /// Each choice of a group becomes one of its own.
  void take_probes(const PlanGroup& group, const std::vector<PlanProbe>& probes, std::vector<PlanGroup>& probed) {
    const double least = to_seconds(min_times_[group.layout]);
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

  /// The bounds of a group, before its turn in order_.
  struct Ahead {
    std::size_t turn;
    std::vector<Outcome> outcomes;
  };

  std::vector<Ahead> ahead_;
  double early_key_ = PlanGroup::deferred;  ///< a better one is simulated early
  std::set<std::pair<std::size_t, std::size_t>> looked_at_early_;
  std::int64_t stop_after_ = never;  ///< so many tasks, where nothing is found before
  std::size_t leading_ = 0;          ///< of choices_, those that are looked at first

 protected:
  std::vector<PlanGroup> order_;          ///< of all groups
  std::size_t next_ = 0;                  ///< in order_
  std::optional<std::int64_t> in_order_;  ///< what was spent when all that have a turn had it
};

}  // namespace tawpipe::detail
