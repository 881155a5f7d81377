// The rounds of a search for a plan: the bounds and simulations of some candidates at once, and
// what becomes of each.
// Not: in which order candidates are looked at (plan_search.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tawpipe/analysis/extrapolate.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan_result.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0::detail {

/// Work is done in rounds of a fixed number of items, and their results are taken in order, so that
/// the result does not depend on the number of threads.
class PlanRounds {
 public:
  PlanRounds(const PlanRequest& request, const Registry& registry, PlanThreads& parallel, PlanWatcher& goes_on,
             LayoutTimes* times = nullptr)
      : request_{request},
        registry_{registry},
        parallel_{parallel},
        goes_on_{goes_on},
        times_{times == nullptr ? own_times_ : *times},
        bounds_{request, &times_},
        prober_{request, registry, times_.collectives_, times_.pipelines_} {
    for (const ScheduleChoice& choice : request.schedules.empty() ? planned_schedules(registry) : request.schedules) {
      for (ScheduleChoice& one : variants_of(registry, choice, request.problem.cluster)) choices_.push_back(std::move(one));
    }
    layouts_ = planned_layouts(request);
    lost_.resize(choices_.size());
    for (const ScheduleChoice& choice : choices_) {
      const ScheduleInfo& info = registry.info(choice.schedule);
      has_plain_ = has_plain_ || info.plain;
      has_pipelines_ = has_pipelines_ || info.family == ScheduleFamily::pipeline;
    }
  }

 protected:
  ScheduleFamily family_of(std::size_t choice) const { return registry_.info(choices_[choice].schedule).family; }
  /// What a plan has to take less than.
  Duration to_beat() const {
    return std::min(best_ ? best_->summary.makespan : Duration::max(), request_.faster_than.value_or(Duration::max()));
  }
  bool may_win(Duration bound) const { return bound < min_worth(to_beat()); }
  static Duration min_worth(Duration best) { return best - best / static_cast<std::int64_t>(1 / plan_tolerance); }

  /// Computations of a replica, about.
  double tasks_of(const PlanLayout& layout) const {
    return 2.0 * std::max(layout.mesh.pipeline, request_.problem.model->layers) * microbatches_of(request_, layout);
  }
  /// The time of a layout with a usual schedule, of pipelines if any are tried, relative to its
  /// bound.
  double usual_wait(const PlanLayout& layout) {
    const double fill = has_pipelines_ ? 0.5 * (layout.mesh.pipeline - 1) / microbatches_of(request_, layout) : 0;
    return bounds_.usual_wait(layout) * (1 + fill);
  }

  /// Two simulations of more tasks than this run at once, before more bounds are found that may be
  /// better.
  static constexpr std::int64_t many_tasks = 100'000;
  /// The limit on tasks at once, for the memory of a plan.
  static constexpr std::int64_t max_tasks = 1'500'000;
  static constexpr std::int64_t of_simulated_task = 8;  ///< of the budget; of a bound's, 1
  /// Iterations of more tasks are estimated: some ranks' copies may have to be simulated in
  /// addition.
  static constexpr std::int64_t max_whole_tasks = 600'000;

  using Outcome = PlanOutcome;

  /// Whether it would move weights between ranks that have whole experts of their own.
  bool moves_experts(const PlanLayout& layout, const ScheduleChoice& choice) const {
    return layout.mesh.whole_experts && layout.mesh.pipeline > 1 &&
           registry_.info(choice.schedule).family != ScheduleFamily::pipeline;
  }
  /// Whether it is impossible, or another choice gives the same: what any schedule is on one rank; or a shard for each
  /// device, where there are no more layers.
  bool is_doubled(const PlanLayout& layout, const ScheduleChoice& choice) const {
    if (layout.mesh.pipeline == 1 && has_plain_ && !registry_.info(choice.schedule).plain) return true;
    if (moves_experts(layout, choice)) return true;
    if (prober_.may_be_shorter() && prober_.has_empty_stages(layout, choice)) return true;
    const auto shards = choice.options.find("shards");
    if (shards == choice.options.end() || shards->second != "layers") return false;
    if (request_.problem.model->layers > layout.mesh.pipeline) return false;
    ScheduleOptions devices = choice.options;
    devices["shards"] = "devices";
    return std::any_of(choices_.begin(), choices_.end(), [&](const ScheduleChoice& other) {
      return other.schedule == choice.schedule && other.options == devices;
    });
  }

  /// Finds the bounds of a candidate.
  void bound(Outcome& outcome) {
    const PlanLayout& layout = layouts_[outcome.candidate.layout];
    const ScheduleChoice& choice = choices_[outcome.candidate.choice];
    if (is_doubled(layout, choice)) {
      outcome.impossible = true;
      outcome.cost = 0;
      return;
    }
    const Problem problem = prober_.problem_of(layout, choice);
    std::optional<Predictor> predictor;
    try {
      predictor.emplace(problem, registry_);
    } catch (const InputError&) {  // the ranks or the batch cannot be divided so
      outcome.impossible = true;
      outcome.cost = 0;
      return;
    }
    bound(outcome, *predictor);
  }

  void bound(Outcome& outcome, const Predictor& predictor) {
    const ScheduleChoice& choice = choices_[outcome.candidate.choice];
    outcome.impossible = !prober_.allows(layouts_[outcome.candidate.layout], choice);
    if (outcome.impossible) return;
    try {
      outcome.candidate.need = predictor.least(choice, &times_.collectives_);
      outcome.cost += outcome.candidate.need.ends;
    } catch (const InputError&) {
      outcome.impossible = true;
    }
  }

  /// What keeps the candidates of a choice from being the best.
  struct Lost {
    /// the least bound of those that may fit
    Duration least = Duration::max();
    /// the least need of those that do not
    Bytes memory{std::numeric_limits<std::int64_t>::max()};
    /// of those that fit by their bounds, the least estimate
    std::optional<PlanCandidate> nearest = {};
  };
  void lose(std::size_t choice, Duration bound) { lost_[choice].least = std::min(lost_[choice].least, bound); }
  void lose(std::size_t choice, Bytes memory) { lost_[choice].memory = std::min(lost_[choice].memory, memory); }
  /// One that fits by its bounds.
  void lose(const PlanCandidate& candidate) {
    lose(candidate.choice, candidate.need.time);
    std::optional<PlanCandidate>& nearest = lost_[candidate.choice].nearest;
    if (!nearest || candidate.need.usual < nearest->need.usual) nearest = candidate;
  }

  void take_bounds(std::vector<Outcome> outcomes) {
    for (Outcome& outcome : outcomes) {
      if (!outcome.impossible) ++result_.counts.bounded;
      take(outcome);
    }
    sort_open();
  }
  void sort_open() {
    std::stable_sort(open_.begin(), open_.end(), [](const PlanCandidate& a, const PlanCandidate& b) {
      return a.repeats != b.repeats ? a.repeats : a.need.usual > b.need.usual;
    });
  }

  /// What a round found of a candidate.
  void take(Outcome& outcome) {
    const PlanCandidate& candidate = outcome.candidate;
    spent_ += outcome.cost;
    early_.erase({candidate.layout, candidate.choice});
    if (outcome.plan) {
      if (!outcome.plan->summary.fits()) {
        unfit_.push_back(candidate);
        lose(candidate.choice, outcome.plan->summary.fullest());
      }
      const Duration before = best_ ? best_->summary.makespan : Duration::max();
      take_plan(*std::move(outcome.plan));
      if (best_ && best_->summary.makespan < before) around_ = candidate;
    } else if (outcome.impossible) {
      ++result_.counts.impossible;
    } else if (!candidate.need.fits) {
      ++result_.counts.memory;
      lose(candidate.choice, candidate.need.memory);
      if (layouts_[candidate.layout].recompute == Recompute::full) never_fits_.insert({candidate.layout, candidate.choice});
      if (may_win(candidate.need.time) || part_of_.contains({candidate.layout, candidate.choice})) add_part(candidate);
      if (may_win(candidate.need.time) && nearly_fits(candidate.need.memory)) too_large_.push_back(candidate);
    } else if (outcome.left) {
      ++result_.counts.left;
      left_ = std::min(left_, candidate.need.time);
      lose(candidate.choice, candidate.need.time);
    } else if (!may_win(candidate.need.time)) {
      ++result_.counts.time;
      lose(candidate);
    } else {
      if (const auto part = part_of_.find({candidate.layout, candidate.choice}); part != part_of_.end())
        parts_[part->second].need.time = Duration::max();  // it fits, other than its price said
      open_.push_back(candidate);
      open_.back().repeats =
          std::any_of(kept_.begin(), kept_.end(), [&](const PlanCandidate& o) { return repeats(candidate, o); });
      if (!open_.back().repeats) kept_.push_back(candidate);
    }
  }
  /// A candidate that is too large, unless it has nothing that may be computed again. Its bound comes
  /// in place of what its price said.
  void add_part(const PlanCandidate& candidate) {
    const PlanLayout& layout = layouts_[candidate.layout];
    if (layout.recompute != Recompute::none || layout.is_variant() || !may_recompute_part(request_)) return;
    const auto [at, added] = part_of_.try_emplace({candidate.layout, candidate.choice}, parts_.size());
    added ? parts_.push_back(candidate) : void(parts_[at->second] = candidate);
  }
  bool repeats(const PlanCandidate& candidate, const PlanCandidate& other) const {
    if (candidate.choice != other.choice || candidate.need.usual != other.need.usual) return false;
    PlanLayout moved = layouts_[candidate.layout];
    moved.mesh.order = layouts_[other.layout].mesh.order;
    return moved == layouts_[other.layout];
  }

  void leave(const PlanGroup& group) {
    result_.counts.left += group.size();
    left_ = std::min(left_, min_times_[group.layout]);
    for (std::size_t i = group.begin; i < group.end; ++i) lose(i, min_times_[group.layout]);
  }
  /// Whether a bound of the layout drops a group as a whole.
  bool is_dropped(const PlanGroup& group) {
    const bool holds = holds_[group.layout] != 0;
    if (holds && may_win(min_times_[group.layout])) return false;
    (holds ? result_.counts.time : result_.counts.memory) += group.size();
    const Bytes memory{static_cast<std::int64_t>(bounds_.min_memory(layouts_[group.layout]))};
    for (std::size_t i = group.begin; i < group.end; ++i) holds ? lose(i, min_times_[group.layout]) : lose(i, memory);
    return true;
  }

  /// Simulates the `count` candidates that are most likely the fastest.
  void simulate_some(std::size_t count) {
    drop_slow();
    std::vector<Outcome> outcomes;
    for (; !open_.empty() && outcomes.size() < count; open_.pop_back()) {
      if (!outcomes.empty() && open_.back().repeats) break;
      outcomes.push_back({.candidate = open_.back(), .cost = 0});
    }
    simulate(outcomes);
    for (Outcome& outcome : outcomes) take(outcome);
  }

  /// A long iteration of many microbatches is estimated from two with fewer. Left where these are
  /// too large too, or all copies of a layout that cannot be folded.
  void simulate(std::vector<Outcome>& outcomes) const {
    std::vector<Run> runs;
    for (Outcome& outcome : outcomes) add_runs(outcome, runs);
    parallel_(runs.size(), [&](std::size_t i) { simulate(runs[i]); });
    for (Run& run : runs) take_run(run);
  }

  /// One iteration of a candidate.
  struct Run {
    Outcome* outcome;
    std::int64_t batch;  ///< global, of the iteration
    std::optional<Summary> summary = {};
  };
  /// The whole iteration; or where that has many tasks, and microbatches enough, two short ones.
  void add_runs(Outcome& outcome, std::vector<Run>& runs) const {
    const PlanCandidate& candidate = outcome.candidate;
    if (const auto early = early_.find({candidate.layout, candidate.choice}); early != early_.end()) {
      outcome.plan = early->second.plan;
      outcome.cost += early->second.cost;
      return;
    }
    const PlanLayout& layout = layouts_[candidate.layout];
    const std::int64_t all = request_.problem.global_batch;
    const std::int64_t round = layout.microbatch_size * layout.mesh.batch_parts() * layout.mesh.pipeline;
    const ShortIterations rounds = short_iterations(all / round);
    const bool whole = candidate.need.steps <= max_whole_tasks || rounds.longer == 0;
    const std::int64_t longest = whole ? all : rounds.longer * round + all % round;
    outcome.left = steps_of(outcome, longest) > max_tasks;
    if (outcome.left) return;
    if (!whole) runs.push_back({&outcome, rounds.shorter * round + all % round});
    runs.push_back({&outcome, longest});
  }
  /// What simulate() will take of the budget, about.
  std::int64_t cost_to_simulate(Outcome outcome) const {
    std::vector<Run> runs;
    add_runs(outcome, runs);
    std::int64_t cost = 0;
    for (const Run& run : runs) cost += of_simulated_task * steps_of(outcome, run.batch);
    return cost;
  }
  std::int64_t steps_of(const Outcome& outcome, std::int64_t batch) const {
    const double part = static_cast<double>(batch) / static_cast<double>(request_.problem.global_batch);
    return static_cast<std::int64_t>(static_cast<double>(outcome.candidate.need.steps) * part);
  }
  void simulate(Run& run) const {
    const PlanCandidate& candidate = run.outcome->candidate;
    const PlanLayout& layout = layouts_[candidate.layout];
    Problem problem = prober_.problem_of(layout, choices_[candidate.choice]);
    problem.global_batch = run.batch;
    const bool in_full = steps_of(*run.outcome, run.batch) * layout.mesh.copies() <= max_tasks;
    if (!in_full) problem.fold = Fold::on;
    try {
      run.summary = Predictor{problem, registry_}.best().summary;
    } catch (const InputError&) {
      if (in_full && run.batch == request_.problem.global_batch) throw;
    }
  }
  /// Of two short iterations the longer one comes second.
  void take_run(Run& run) const {
    Outcome& outcome = *run.outcome;
    outcome.left = outcome.left || !run.summary;
    if (outcome.left) {
      outcome.plan.reset();
      return;
    }
    outcome.cost += cost_of(*run.summary, steps_of(outcome, run.batch));
    const PlanLayout& layout = layouts_[outcome.candidate.layout];
    const Duration least = outcome.candidate.need.time;
    const std::int64_t all = request_.problem.global_batch;
    if (!outcome.plan) {
      const ScheduleChoice& choice = choices_[outcome.candidate.choice];
      outcome.plan = Plan{prober_.layout_of(layout, choice), choice, least, *std::move(run.summary), run.batch < all};
      return;
    }
    Summary& summary = outcome.plan->summary;
    summary = extrapolate(summary, *run.summary, all);
    summary.makespan = std::max(summary.makespan, least);
  }
  static std::int64_t cost_of(const Summary& summary, std::int64_t steps) {
    const Folding& folding = summary.folding;
    return of_simulated_task * (folding.factor > 1 ? folding.tasks : std::max(summary.tasks, steps));
  }

  bool nearly_fits(Bytes memory) const {
    const Bytes usable = usable_part(request_.problem.cluster.device(Rank{0}).memory, request_.problem.usable_memory);
    return memory / usable < 1.5;
  }
  void take_plan(Plan plan) {
    ++result_.counts.simulated;
    if (plan.estimated) estimated_ = std::min(estimated_, plan.bound);
    if (!plan.summary.fits()) {
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
    result_.counts.time += static_cast<std::int64_t>(std::erase_if(open_, [&](const PlanCandidate& c) {
      if (may_win(c.need.time)) return false;
      lose(c);
      return true;
    }));
  }

  const PlanRequest& request_;
  const Registry& registry_;
  PlanThreads& parallel_;
  PlanWatcher& goes_on_;
  LayoutTimes own_times_;
  LayoutTimes& times_;
  LayoutBounds bounds_;
  PlanProber prober_;
  std::vector<ScheduleChoice> choices_;
  bool has_plain_ = false;      ///< a schedule that any other is on one rank
  bool has_pipelines_ = false;  ///< pipelines, which have a time to fill
  std::vector<PlanLayout> layouts_;
  std::vector<Duration> min_times_;  ///< [layout]
  /// [layout] whether the devices can hold what any schedule must
  std::vector<char> holds_;
  std::vector<Lost> lost_;  ///< [choice]
  /// the least estimate last; first of all, those that repeat
  std::vector<PlanCandidate> open_;
  std::vector<PlanCandidate> kept_;       ///< that were opened and repeat none
  std::vector<PlanCandidate> too_large_;  ///< without the memory that they need
  /// layout and choice, with all layers computed again
  std::set<std::pair<std::size_t, std::size_t>> never_fits_;
  /// that may fit with a part of the layers computed again
  std::vector<PlanCandidate> parts_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> part_of_;  ///< layout and choice of these, until they are sorted
  /// simulated lately, and without the memory that they need
  std::vector<PlanCandidate> unfit_;
  /// the best, before what else may be around it was looked at
  std::optional<PlanCandidate> around_;
  std::vector<std::pair<PlanLayout, std::size_t>> around_tried_;  ///< with what choice
  std::int64_t spent_ = 0;                                        ///< of the budget
  Duration left_ = Duration::max();                               ///< the least bound of what was left
  Duration estimated_ = Duration::max();                          ///< and of what was estimated
  std::optional<Plan> best_;
  struct Early {
    Plan plan;
    std::int64_t cost;  ///< of its simulation
  };
  /// of layout and choice, simulated before their turn
  std::map<std::pair<std::size_t, std::size_t>, Early> early_;
  PlanResult result_;
};

}  // namespace tawpipe::detail
