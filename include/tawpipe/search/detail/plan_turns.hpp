// In which order a search for a plan looks at candidates, and their bounds, found ahead of their
// turn so that all threads have work.
// Not: the estimates that order them (plan_order.hpp), nor what becomes of each (plan_rounds.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/detail/plan_rounds.hpp"

namespace tawpipe::inline v0::detail {

/// Groups of candidates, the best estimates first.
class PlanTurns : public PlanRounds {
 public:
  using PlanRounds::PlanRounds;

 protected:
  /// On a scale that stays, whatever groups become: most of it for the candidates in their order,
  /// the rest for what is tried after them. Who stops the search waits a little for a first plan.
  void tell_progress() {
    if (result_.stopped) return;
    constexpr std::int64_t whole = 1000;
    const auto part = [](auto done, auto of) { return std::min(1.0, static_cast<double>(done) / static_cast<double>(of)); };
    const double turns = order_.empty() ? 0 : part(next_, order_.size());
    const double rest = in_order_ ? part(spent_ - *in_order_, std::max<std::int64_t>(1, request_.budget / 2)) : 0;
    told_ = std::max(told_, in_order_ ? 0.8 + 0.2 * rest : 0.8 * std::max(turns, part(spent_, request_.budget)));
    const Plan* best = best_ ? &*best_ : nullptr;
    for (const auto& [which, early] : early_) {
      if (best == nullptr || early.plan.summary.makespan < best->summary.makespan) best = &early.plan;
    }
    if (!goes_on_({static_cast<std::int64_t>(told_ * whole), whole, best}))
      stop_after_ = std::min(stop_after_, spent_ + to_find_one);
    result_.stopped = spent_ > stop_after_ || (best != nullptr && stop_after_ < never);
  }
  /// By the bound, and estimates of a pipeline's fill time, of whether it fits and of the search's
  /// cost; they only order and drop nothing.
  void order_layouts() {
    // One of each family first, then the others; of both those that may have prices.
    const auto leads = [&](const ScheduleChoice& choice) { return registry_.info(choice.schedule).leads; };
    const auto is_pipeline = [&](const ScheduleChoice& choice) {
      return registry_.info(choice.schedule).family == ScheduleFamily::pipeline;
    };
    const auto number_of = [&](auto from, auto&& is_it) {
      return static_cast<std::size_t>(std::stable_partition(from, choices_.end(), is_it) - choices_.begin());
    };
    leading_ = number_of(choices_.begin(), leads);
    const auto leading_end = choices_.begin() + static_cast<std::ptrdiff_t>(leading_);
    const auto leading =
        static_cast<std::size_t>(std::stable_partition(choices_.begin(), leading_end, is_pipeline) - choices_.begin());
    const std::array<std::size_t, 5> ends{0, leading, leading_, number_of(leading_end, is_pipeline), choices_.size()};
    std::vector<double> guess;
    bounds_.prepare(layouts_, parallel_);
    for (const PlanLayout& layout : layouts_) {
      check_stop();
      min_times_.push_back(bounds_.min_time(layout));
      holds_.push_back(bounds_.can_hold(layout) ? 1 : 0);
      guess.push_back(to_seconds(min_times_.back()) * usual_wait(layout) * std::max(1.0, bounds_.usual_share(layout)) *
                      (1 + 0.01 * std::log2(1 + tasks_of(layout) / 2000)));
    }
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const double key = request_.cheapest_first ? tasks_of(layouts_[i]) : guess[i];
      for (std::size_t of = 0; of + 1 < ends.size(); ++of) {
        const double later = of < 2 || request_.cheapest_first ? key : key * 1.06;
        if (ends[of] < ends[of + 1]) order_.push_back({i, ends[of], ends[of + 1], later});
      }
    }
    sort_by_key(order_);
  }

  /// Candidates with prices are ordered by these; of the others, where an iteration has many
  /// microbatches, those of the first groups by the paths of a few microbatches, which cost more.
  /// Theirs is a part of the budget.
  void probe_first() {
    if (request_.cheapest_first) return;
    const std::int64_t most = std::min(request_.budget / 4, max_probed);
    constexpr double far = 1.3;  // estimates of layouts that are not worth prices
    probe_first([&](const PlanGroup& group) { return group.key < far * least_price_ && has_prices(group); }, spent_ + most);
    probe_first([&](const PlanGroup& group) { return is_probed(group) && !has_prices(group); }, spent_ + most / 2);
  }
  template <class Wanted>
  void probe_first(Wanted&& is_wanted, std::int64_t most) {
    const auto wanted = [&](const PlanGroup& group) {
      return !probed_.contains({group.layout, group.begin}) && is_wanted(group);
    };
    std::vector<PlanGroup> probed;
    std::vector<AheadProbes> ahead;  // the next one last
    std::size_t at = 0;
    for (; at < order_.size() && spent_ < most && !result_.stopped; ++at) {
      const PlanGroup& group = order_[at];
      if (ahead.empty() && wanted(group)) {
        ahead = probe_next(at, wanted);
        std::reverse(ahead.begin(), ahead.end());
      }
      if (ahead.empty() || ahead.back().at != at) {
        probed.push_back(group);
        continue;
      }
      take_probes(group, ahead.back().probes, probed);
      ahead.pop_back();
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
  /// Behind what was probed first: as long as something near the best estimate has a better one,
  /// what is near that is probed too. A part of the budget.
  void climb_by_probes() {
    if (request_.cheapest_first) return;
    const std::int64_t most = spent_ + request_.budget / 4;
    const auto is_open = [&](const PlanGroup& group) {
      return probed_.contains({group.layout, group.begin}) && group.key < PlanGroup::deferred;
    };
    const auto count_open = [&] { return std::find_if_not(order_.begin(), order_.end(), is_open) - order_.begin(); };
    std::set<std::pair<std::size_t, std::size_t>> tops;
    while (count_open() > 0 && spent_ < most && !result_.stopped) {
      const PlanGroup top = order_.front();
      if (!tops.insert({top.layout, top.begin}).second) return;
      const std::vector<PlanGroup> near = probe_near({top.layout, top.begin}, Near::probed);
      const auto deferred = std::find_if_not(near.begin(), near.end(), is_open);
      order_.insert(order_.begin() + count_open(), near.begin(), deferred);
      order_.insert(order_.end(), deferred, near.end());
      sort_by_key(std::span{order_}.first(static_cast<std::size_t>(count_open())));
      tell_progress();
    }
  }
  /// What is near the best so far comes next, but for what estimates say is slower.
  void bring_near(const PlanCandidate& best) {
    std::vector<PlanGroup> near = probe_near(best, Near::all);
    const double enough = to_seconds(min_worth(best_->summary.makespan));
    const auto slower = std::stable_partition(near.begin(), near.end(), [&](const PlanGroup& group) {
      return group.key < enough || !is_probed(group);  // what is not is cheap to look at
    });
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(next_ + 1), near.begin(), slower);
    auto last = order_.end();  // before what is deferred
    const auto next = order_.begin() + static_cast<std::ptrdiff_t>(next_ + 1);
    while (last != next && std::prev(last)->key >= PlanGroup::deferred) --last;
    order_.insert(last, slower, near.end());
  }
  /// Whether its price or estimate says that it is not the best or does not fit. Its bound, which may
  /// prove it, is found last.
  bool is_slow(const PlanGroup& group) const { return to_beat() < Duration::max() && is_slower(group, to_seconds(to_beat())); }
  bool is_slower(const PlanGroup& group, double time) const {
    if (proves_ || request_.cheapest_first) return false;
    const bool priced = has_estimate(group);
    if (!priced && group.key >= PlanGroup::deferred) return false;
    constexpr double above_price = 1.005;  // prices are estimates of bounds within less (pipeline_price_test.cpp)
    constexpr double above_estimate = 1.15;
    return group.key > (priced ? above_price : above_estimate) * time;
  }
  /// The bounds of the group whose turn it is. They are found together with those of the groups
  /// after it, for all threads to have work; bounds do not depend on when they are found, and those
  /// that are no longer wanted when their turn comes are not counted.
  std::vector<Outcome> bounds_of_next() {
    std::erase_if(ahead_, [&](const Ahead& ahead) { return !may_win(min_times_[ahead.group.layout]); });  // their turn is over
    const auto is_next = [&](const Ahead& ahead) { return ahead.of(order_[next_]); };
    auto found = std::find_if(ahead_.begin(), ahead_.end(), is_next);
    if (found == ahead_.end()) {
      look_ahead();
      found = std::find_if(ahead_.begin(), ahead_.end(), is_next);
    }
    std::vector<Outcome> outcomes = std::move(found->outcomes);
    ahead_.erase(found);
    return outcomes;
  }

 private:
  /// Of computations in what is found ahead, about: much of it may be dropped.
  static constexpr double ahead_tasks = 400'000;
  /// Tasks of probes, at most.
  static constexpr std::int64_t max_probed = 10'000'000;
  static constexpr std::int64_t to_find_one = 4'000'000;
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  /// The best probed so far, for a search that is stopped before any candidate's turn, and to be
  /// shown. What the search finds does not depend on it.
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
    const std::size_t before = ahead_.size();
    const std::size_t most = request_.cheapest_first ? 1 : 16;  // candidates; results come fast there, and drop the next ones
    // What is likely not the best is left for its turn, when more is known.
    const double next = has_estimate(order_[next_]) ? order_[next_].key : PlanGroup::deferred;
    const double enough = std::min(to_beat() < Duration::max() ? to_seconds(to_beat()) : PlanGroup::deferred, next);
    std::size_t count = 0;
    double tasks = 0;
    const std::size_t last = std::min(order_.size(), next_ + 16);
    for (std::size_t turn = next_; turn < last && count < most && tasks < ahead_tasks; ++turn) {
      const PlanGroup& group = order_[turn];
      const double each = tasks_of(layouts_[group.layout]);
      if (holds_[group.layout] == 0 || !may_win(min_times_[group.layout]) || each > max_tasks) continue;
      if (turn != next_ && is_slower(group, enough)) continue;
      if (std::any_of(ahead_.begin(), ahead_.end(), [&](const Ahead& ahead) { return ahead.of(group); })) continue;
      ahead_.push_back({group, {}});
      for (std::size_t i = group.begin; i < group.end; ++i) ahead_.back().outcomes.push_back({.candidate = {group.layout, i}});
      count += group.end - group.begin;
      tasks += each * static_cast<double>(group.size());
    }
    std::vector<Outcome*> all;
    for (std::size_t i = before; i < ahead_.size(); ++i) {
      for (Outcome& outcome : ahead_[i].outcomes) all.push_back(&outcome);
    }
    parallel_(all.size(), [&](std::size_t i) { bound(*all[i]); });
  }

  /// What is near a candidate, taken out of order_, each as a group of its own, by its estimate:
  /// the same schedule on layouts near its own, and other schedules of its kind on its mesh.
  enum class Near { all, probed };
  std::vector<PlanGroup> probe_near(const PlanCandidate& best, Near which) {
    const std::vector<PlanGroup> groups = split_near(best, which);
    std::vector<std::vector<PlanProbe>> probes(groups.size(), std::vector<PlanProbe>(1));
    const auto wanted = [&](const PlanGroup& group) {
      return is_probed(group) && !probed_.contains({group.layout, group.begin});
    };
    parallel_(groups.size(), [&](std::size_t i) {
      if (wanted(groups[i])) probes[i][0] = probe(groups[i].layout, groups[i].begin);
    });
    std::vector<PlanGroup> near;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      wanted(groups[i]) ? take_probes(groups[i], probes[i], near) : near.push_back(groups[i]);
    }
    sort_by_key(near);
    return near;
  }
  std::vector<PlanGroup> split_near(const PlanCandidate& best, Near which) {
    std::vector<PlanGroup> near;
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(next_ + 1);
    std::vector<PlanGroup> others{order_.begin(), first};
    const PlanLayout& layout = layouts_[best.layout];
    for (auto at = first; at != order_.end(); ++at) {
      PlanGroup group = *at;
      const bool open = group.key < PlanGroup::deferred && holds_[group.layout] != 0 && may_win(min_times_[group.layout]) &&
                        (which == Near::all || is_probed(group));
      if (!open || !is_near(layouts_[group.layout], layout)) {
        others.push_back(group);
        continue;
      }
      const bool same_mesh = layouts_[group.layout].mesh == layout.mesh;
      for (std::size_t choice = group.begin; choice < group.end; ++choice) {
        const bool few = family_of(choice) == ScheduleFamily::data_parallel ||
                         (family_of(choice) == ScheduleFamily::pipeline && is_probed(group) && choice < leading_);
        const bool other = same_mesh && few && family_of(choice) == family_of(best.choice);
        if (choice != best.choice && !other) continue;
        near.push_back({group.layout, choice, choice + 1, group.key});
        if (group.begin < choice) others.push_back({group.layout, group.begin, choice, group.key});
        group.begin = choice + 1;
      }
      if (group.begin < group.end) others.push_back(group);
    }
    order_ = std::move(others);
    return near;
  }
  bool has_estimate(const PlanGroup& group) const { return probed_.contains({group.layout, group.begin}); }
  PlanProbe probe(std::size_t layout, std::size_t choice) const {
    const bool doubled = is_doubled(layouts_[layout], choices_[choice]);
    return doubled ? PlanProbe{} : prober_.probe(layouts_[layout], choices_[choice]);
  }
  /// Whether it has an estimate of its own, and its layout may be faster than the least price.
  bool is_probed(const PlanGroup& group) const {
    return may_beat_prices(group) && (prober_.is_worth(layouts_[group.layout]) || any_price(group));
  }
  bool has_prices(const PlanGroup& group) const { return may_beat_prices(group) && any_price(group); }
  bool may_beat_prices(const PlanGroup& group) const {
    return holds_[group.layout] != 0 && to_seconds(min_times_[group.layout]) <= least_price_;
  }
  bool any_price(const PlanGroup& group) const {
    for (std::size_t choice = group.begin; choice < group.end; ++choice) {
      if (prober_.has_price(layouts_[group.layout], choices_[choice])) return true;
    }
    return false;
  }
  /// Of a group of order_, its choices' probes.
  struct AheadProbes {
    std::size_t at;
    std::vector<PlanProbe> probes;
  };
  /// Probes of the groups from `at` on, at once like look_ahead().
  template <class Wanted>
  std::vector<AheadProbes> probe_next(std::size_t at, Wanted&& wanted) {
    constexpr std::size_t most = 64;  // candidates
    std::vector<AheadProbes> found;
    struct Item {
      std::size_t layout;
      std::size_t choice;
      PlanProbe* probe;
    };
    std::vector<Item> items;
    double tasks = 0;
    for (; at < order_.size() && items.size() < most && tasks < ahead_tasks; ++at) {
      const PlanGroup& group = order_[at];
      if (!wanted(group)) continue;
      tasks += PlanProber::computations(layouts_[group.layout].mesh, *request_.problem.model) * static_cast<double>(group.size());
      found.push_back({at, std::vector<PlanProbe>(group.end - group.begin)});
      for (std::size_t i = group.begin; i < group.end; ++i)
        items.push_back({group.layout, i, &found.back().probes[i - group.begin]});
    }
    parallel_(items.size(), [&](std::size_t i) { *items[i].probe = probe(items[i].layout, items[i].choice); });
    return found;
  }
  /// Each choice of a group becomes one of its own.
  void take_probes(const PlanGroup& group, const std::vector<PlanProbe>& probes, std::vector<PlanGroup>& probed) {
    const double least = to_seconds(min_times_[group.layout]);
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const PlanProbe& one = probes[i];
      spent_ += one.cost;
      probed_.insert({group.layout, group.begin + i});
      double key = one.seconds >= least ? one.seconds : group.key;
      const bool again = is_matched(probes, i);
      if (one.seconds > 0 && one.fits) least_price_ = std::min(least_price_, key);
      if (one.seconds > 0 && !one.fits && !again && nearly_fits(one.memory)) {
        const Duration time = seconds(key);
        too_large_.push_back({group.layout, group.begin + i, {.time = time, .memory = one.memory, .fits = false, .usual = time}});
        add_part({group.layout, group.begin + i, {.time = min_times_[group.layout], .fits = false, .usual = time}});
      }
      if (again || !one.fits) key += PlanGroup::deferred;
      probed.push_back({group.layout, group.begin + i, group.begin + i + 1, key});
    }
  }

  /// The bounds of a group, before its turn in order_.
  struct Ahead {
    PlanGroup group;
    std::vector<Outcome> outcomes;
    bool of(const PlanGroup& one) const { return group.layout == one.layout && group.begin == one.begin && group.end == one.end; }
  };

  std::vector<Ahead> ahead_;
  double told_ = 0;                         ///< of the progress
  double early_key_ = PlanGroup::deferred;  ///< a better one is simulated early
  std::set<std::pair<std::size_t, std::size_t>> looked_at_early_;
  std::set<std::pair<std::size_t, std::size_t>> probed_;  ///< layout and choice
  double least_price_ = PlanGroup::deferred;              ///< in seconds, of what fits
  /// so many tasks, where nothing is found before
  std::int64_t stop_after_ = never;
  /// of choices_, those that are looked at first
  std::size_t leading_ = 0;

 protected:
  /// Of the budget, about.
  double cost_of_bounds(const PlanGroup& group) const {
    constexpr double tasks_of_computation = 4;
    const PlanLayout& layout = layouts_[group.layout];
    const bool stages = family_of(group.begin) == ScheduleFamily::pipeline;
    const double computations = stages ? 2.0 * layout.mesh.pipeline * microbatches_of(request_, layout) : tasks_of(layout);
    return (2000 + tasks_of_computation * computations) * static_cast<double>(group.size());
  }

  std::vector<PlanGroup> order_;          ///< of all groups
  std::vector<PlanGroup> slow_;           ///< of those that had a turn, is_slow()
  bool proves_ = false;                   ///< nothing is_slow() any more
  std::size_t next_ = 0;                  ///< in order_
  std::optional<std::int64_t> in_order_;  ///< what was spent when all that have a turn had it
};

}  // namespace tawpipe::detail
