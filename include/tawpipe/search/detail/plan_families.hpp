// Schedules of which a search for a plan has simulated nothing near the best: their best candidates,
// and what keeps them from being the best.
// Not: the candidates in their order (plan_turns.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/search/detail/plan_turns.hpp"

namespace tawpipe::inline v0::detail {

/// By schedules, whatever their options.
class PlanFamilies : public PlanTurns {
 public:
  using PlanTurns::PlanTurns;

 protected:
  /// The best estimate of each leading schedule of which nothing near the best was simulated, also
  /// as the best plans are, the least first: how much slower it is, if it is. Theirs is half of the
  /// budget.
  void simulate_families() {
    if (!best_ || request_.cheapest_first || result_.stopped) return;
    const std::int64_t most = spent_ + request_.budget / 2;
    std::vector<std::pair<std::string, std::vector<std::size_t>>> families = losses_by_schedule(best_->summary.makespan * 3 / 2);
    std::erase_if(families, [&](const auto& family) { return !registry_.info(family.first).leads; });
    const std::size_t first = layouts_.size();
    add_best_layouts();
    std::vector<Outcome> nearest(families.size());
    parallel_(families.size(), [&](std::size_t i) { nearest[i] = nearest_of(families[i].second, first); });
    for (const Outcome& one : nearest) spent_ += one.cost;
    std::erase_if(nearest, [](const Outcome& one) { return one.impossible; });
    std::stable_sort(nearest.begin(), nearest.end(),
                     [](const Outcome& a, const Outcome& b) { return a.candidate.need.usual < b.candidate.need.usual; });
    for (const Outcome& candidate : nearest) {
      std::vector<Outcome> one{{.candidate = candidate.candidate, .cost = 0}};
      if (spent_ + cost_to_simulate(candidate) > most) continue;
      simulate(one);
      ++result_.counts.candidates;  // once more: its bound has counted
      take(one[0]);
      tell_progress();
    }
  }
  /// Schedules of which nothing that fits was simulated, or nothing in less than `near`, with their
  /// choices.
  std::vector<std::pair<std::string, std::vector<std::size_t>>> losses_by_schedule(std::optional<Duration> near = {}) const {
    std::vector<std::pair<std::string, std::vector<std::size_t>>> found;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const std::string& schedule = choices_[i].schedule;
      const auto is_it = [&](const auto& one) { return one.first == schedule; };
      if (std::any_of(result_.plans.begin(), result_.plans.end(), [&](const Plan& plan) {
            return plan.choice.schedule == schedule && (!near || plan.summary.makespan < *near);
          })) {
        continue;
      }
      auto at = std::find_if(found.begin(), found.end(), is_it);
      if (at == found.end()) at = found.insert(found.end(), {schedule, {}});
      at->second.push_back(i);
    }
    return found;
  }
  void list_losses() {
    for (const auto& [schedule, choices] : losses_by_schedule()) {
      Lost all;
      for (const std::size_t choice : choices) {
        all.least = std::min(all.least, lost_[choice].least);
        all.memory = std::min(all.memory, lost_[choice].memory);
      }
      PlanLoss& loss = result_.losses.emplace_back(PlanLoss{schedule});
      if (all.least < Duration::max()) loss.least = all.least;
      if (all.memory < Lost{}.memory) loss.memory = all.memory;
    }
  }

 private:
  /// Those of the three fastest pipelines, with what is around them.
  void add_best_layouts() {
    std::vector<Plan> plans = result_.plans;
    sort_plans(plans);
    const std::size_t first = layouts_.size();
    for (const Plan& plan : plans) {
      const bool known =
          std::find(layouts_.begin() + static_cast<std::ptrdiff_t>(first), layouts_.end(), plan.layout) != layouts_.end();
      if (known || plan.layout.mesh.pipeline == 1 || registry_.info(plan.choice.schedule).family != ScheduleFamily::pipeline)
        continue;
      layouts_.push_back(plan.layout);
      min_times_.push_back(bounds_.min_time(plan.layout));
      if (layouts_.size() == first + 3) return;
    }
  }
  /// The best estimate among the choices' candidates that fit by their bounds, the first in the order
  /// of layouts, or where none has bounds, the first two, and the layouts from `added` on.
  /// Impossible: there is none.
  Outcome nearest_of(const std::vector<std::size_t>& choices, std::size_t added) {
    Outcome best{.candidate = {}, .impossible = true, .cost = 0};
    const auto take_nearer = [&](const PlanCandidate& one) {
      if (!best.impossible && one.need.usual >= best.candidate.need.usual) return;
      best.candidate = one;
      best.impossible = false;
    };
    const auto look_at = [&](std::size_t layout, std::size_t choice) {
      Outcome one{.candidate = {layout, choice}};
      bound(one);
      best.cost += one.cost;
      const bool fits = !one.impossible && one.candidate.need.fits;
      if (fits) take_nearer(one.candidate);
      return fits;
    };
    for (const std::size_t choice : choices) {
      if (lost_[choice].nearest) take_nearer(*lost_[choice].nearest);
    }
    if (best.candidate.need.steps == 0 && !best.impossible) {  // known by its price alone
      bound(best);
      best.impossible = best.impossible || !best.candidate.need.fits;
    }
    const std::int64_t part = request_.budget / 128;
    int open = best.impossible ? 2 : 1;
    for (auto group = order_.begin(); group != order_.end() && open > 0 && best.cost < part; ++group) {
      if (group->key >= PlanGroup::deferred) break;
      if (holds_[group->layout] == 0 || tasks_of(layouts_[group->layout]) > max_tasks) continue;
      const auto of = [&](std::size_t choice) { return choice >= group->begin && choice < group->end; };
      const auto choice = std::find_if(choices.begin(), choices.end(), of);
      if (choice != choices.end() && look_at(group->layout, *choice)) --open;
    }
    const std::int64_t most = best.cost + part;
    for (std::size_t layout = added; layout < layouts_.size(); ++layout) {
      for (const std::size_t choice : choices) {
        if (family_of(choice) == ScheduleFamily::pipeline && best.cost < most) look_at(layout, choice);
      }
    }
    return best;
  }
};

}  // namespace tawpipe::inline v0::detail
