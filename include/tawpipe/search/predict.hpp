// The prediction for a schedule with given options and microbatch sizes: its timeline and summary.
// Not: the problem (search/problem.hpp) nor the choice of options left open (search/choose.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/least_memory.hpp"
#include "tawpipe/search/plausible.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

namespace detail {
class CollectiveTimes;
}  // namespace detail

/// Predicts the given `schedule` on the problem's cluster, using only the problem's cost, noise and
/// usable memory. Stages that ranks share are simulated step by step; the timeline has each
/// computation from its first step to its last.
/// @throws InputError  if it needs more ranks than there are, or times are wrong (check_plausible())
TAWPIPE_INLINE Prediction predict(const Problem& problem, Schedule schedule);

/// A problem with derived data, each computed once. May be shared between threads.
class Predictor {
 public:
  /// Both must outlive it. @throws InputError  for an invalid problem (Problem::check).
  Predictor(const Problem& problem, const Registry& registry);

  /// The best over the problem's schedules: the fastest of those that fit; if none fits, the first.
  /// @param hopeless  called before anything is simulated if there is one schedule and even its
  /// smallest size cannot fit by its bounds
  /// @throws InputError  for an unknown schedule or option, or an impossible size.
  Prediction best(const HopelessSchedule* hopeless = nullptr) const;

  /// The best over the microbatch sizes: the fastest of those that fit; if none fits, the smallest.
  /// Sizes with an eighth of the tasks that the problem allows, or more, are skipped.
  /// @throws InputError  if all sizes have more, with the number.
  Prediction best(const ScheduleChoice& choice) const;

  /// As best(), without what SMs held by communications cost (Summary::held); none if even the
  /// smallest size cannot fit by its bounds.
  std::optional<Prediction> best_that_may_fit(const ScheduleChoice& choice) const;

  /// The schedule's lower bounds with the smallest of the microbatch sizes, without simulating it.
  /// @param known  as for min_need()
  /// @throws InputError  as best()
  MinNeed least(const ScheduleChoice& choice, detail::CollectiveTimes* known = nullptr) const;

 private:
  /// The work with one microbatch size, of all devices and of one replica.
  struct Work {
    Workload whole;
    Workload replica;
  };

  /// The approximate number of a schedule's computations: a forward and a backward of each stage
  /// and microbatch.
  double computations(const Work& work) const;
  /// Whether best() takes this size: the largest, and those that leave room for more sizes.
  bool is_tried(const Work& work) const { return &work == &works_.back() || computations(work) <= problem_.max_tasks / 8; }
  /// @throws InputError  if there are more than the problem allows.
  void check_tasks(double tasks, const Work& work) const;

  Schedule build(const ScheduleChoice& choice, const Work& work) const;

  /// What build() gives, and its kept copies if they are known.
  struct Built {
    Schedule logical;
    std::optional<Schedule> kept;
    const Schedule& least() const { return kept ? *kept : logical; }
  };

  /// @param first      for the smallest size, if that is known
  /// @param with_held  also Summary::held
  Prediction best(const ScheduleChoice& choice, std::optional<Built> first, bool with_held) const;
  Prediction predict(Built built, const Work& work, bool with_held) const;

  /// With one copy along each axis of the mesh, if it is not plain.
  Built build_kept(const ScheduleChoice& choice) const;
  /// Whether what build_kept() gave may fit under some timing.
  bool may_fit(const Built& built) const;

  /// The additions of the mesh to a replica's schedule.
  Composition composition(const Schedule& logical) const;

  /// The prediction by kept copies, if it is exact; otherwise `refusal` has the reason.
  std::optional<Prediction> predict_folded(Built& built, const Workload& whole, const Composition& with, bool with_held,
                                           std::string& refusal) const;

  const Problem& problem_;
  const Registry& registry_;
  Mesh mesh_;
  DeviceGroups nodes_;  ///< from the view of a replica's schedule
  bool own_adapters_;
  std::vector<double> speeds_;  ///< [logical rank]; empty if times do not follow from the devices
  Bytes memory_;                ///< usable, of the smallest device; 0 without a model
  std::vector<Work> works_;     ///< by microbatch size
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "tawpipe/core/stop.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/search/balanced_cut.hpp"
#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/sharing.hpp"
#include "tawpipe/simulate/folding.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Whether stages hand activations to other ranks.
inline bool sends_activations(const Schedule& logical) {
  return std::any_of(logical.tasks().begin(), logical.tasks().end(),
                     [](const Task& task) { return is_point_to_point(task.op) && is_of_tokens(task.payload); });
}

/// The number of the schedule's tasks and of the steps of its stages' bodies, for one copy.
inline double steps(const Schedule& logical, const Composition& with) {
  double count = static_cast<double>(logical.tasks().size());
  if (with.stages.empty()) return count;
  for (const Task& task : logical.tasks()) {
    const Passes passes = traits(task.op).passes;
    if (!passes.forward && !passes.backward_input && !passes.backward_weight) continue;
    const SharedStage& stage = with.stages[static_cast<std::size_t>(task.stage)];
    count += static_cast<double>(passes.forward ? stage.forward.size() : stage.backward.size());
  }
  return count;
}

inline Bytes smallest_memory(const Cluster& cluster) {
  Bytes memory = cluster.device(Rank{0}).memory;
  for (int r = 1; r < cluster.ranks(); ++r) memory = std::min(memory, cluster.device(Rank{r}).memory);
  return memory;
}

/// [logical rank] FLOP/s of the slowest device that runs a part of it
inline std::vector<double> speeds_of(const Cluster& cluster, const Mesh& mesh) {
  std::vector<double> speeds(static_cast<std::size_t>(mesh.pipeline), 0);
  for (int r = 0; r < cluster.ranks(); ++r) {
    double& slowest = speeds[static_cast<std::size_t>(mesh.place(Rank{r}).pipeline)];
    const double speed = cluster.device(Rank{r}).peak.value();
    slowest = slowest > 0 ? std::min(slowest, speed) : speed;
  }
  return speeds;
}

/// The fastest of those that fit; if none fits, the first. @tparam Answer  with a `summary`
template <class Answer>
void keep_better(std::optional<Answer>& best, Answer next) {
  if (best && !next.summary.fits()) return;
  if (!best || !best->summary.fits() || next.summary.makespan < best->summary.makespan) best = std::move(next);
}

/// tawpipe::predict(). @param with_held  also Summary::held
inline Prediction predict(const Problem& problem, Schedule schedule, bool with_held) {
  const HeldSms* const held = with_held ? held_sms_of(problem.cost) : nullptr;
  if (const auto* measured = std::get_if<MeasuredCost>(&problem.cost)) measured->check(schedule.workload(), problem.cluster);
  if (const auto* kernels = std::get_if<KernelCost>(&problem.cost)) kernels->check_devices(problem.cluster);
  std::vector<TaskId> calls;
  const auto run = [&](const Schedule& tasks) {
    check_stop();
    return std::visit(
        [&](const auto& cost) {
          calls = order_of_calls(tasks, problem.cluster, cost);
          return simulate_in_order(tasks, problem.cluster, cost, problem.noise, calls);
        },
        problem.cost);
  };
  if (!has_bodies(schedule)) {
    Timeline timeline = run(schedule);
    Summary summary = plausible(summarize(schedule, problem.cluster, timeline, problem.usable_memory), problem);
    if (held != nullptr) summary.held = held_time(schedule, problem.cluster, timeline, *held, {}, calls);
    return {std::move(schedule), std::move(timeline), std::move(summary)};
  }
  const ExpandedSchedule steps = expand_bodies(schedule);
  const Timeline of_steps = run(steps.schedule);
  Timeline timeline;
  for (std::size_t t = 0; t < steps.first.size(); ++t) {
    timeline.start.push_back(of_steps.start_of(steps.first[t]));
    timeline.end.push_back(of_steps.end_of(steps.last[t]));
  }
  Summary summary = plausible(summarize(steps.schedule, problem.cluster, of_steps, problem.usable_memory), problem);
  if (held != nullptr) summary.held = held_time(steps.schedule, problem.cluster, of_steps, *held, {}, calls);
  return {std::move(schedule), std::move(timeline), std::move(summary)};
}

}  // namespace detail

TAWPIPE_INLINE Prediction predict(const Problem& problem, Schedule schedule) {
  return detail::predict(problem, std::move(schedule), true);
}

TAWPIPE_INLINE Predictor::Predictor(const Problem& problem, const Registry& registry)
    : problem_{problem},
      registry_{registry},
      mesh_{problem.mesh.over(problem.cluster.ranks())},
      nodes_{problem.cluster.groups_by_node()},
      own_adapters_{detail::have_own_adapters(problem.cluster)} {
  problem.check();
  for (const std::int64_t size : problem.candidate_sizes()) {
    works_.push_back({problem.workload(size), problem.workload(size, problem.mesh.data)});
    if (!problem.has_model() || !problem.stage_cut.balanced) continue;
    const StageCut cut = balanced_cut(problem, mesh_, works_.back().replica);
    works_.back().whole.cut_by(cut);
    works_.back().replica.cut_by(cut);
  }
  if (!mesh_.is_plain()) nodes_ = mesh_.pipeline_nodes(nodes_);
  if (std::holds_alternative<KernelCost>(problem.cost) || std::holds_alternative<RooflineCost>(problem.cost))
    speeds_ = detail::speeds_of(problem.cluster, mesh_);
  if (problem.has_model()) memory_ = usable_part(detail::smallest_memory(problem.cluster), problem.usable_memory);
}

TAWPIPE_INLINE Prediction Predictor::best(const HopelessSchedule* hopeless) const {
  if (problem_.schedules.size() == 1 && hopeless != nullptr && is_tried(works_.front())) {
    check_tasks(computations(works_.front()), works_.front());
    Built first = build_kept(problem_.schedules[0]);
    if (!may_fit(first)) (*hopeless)(first.logical);
    return best(problem_.schedules[0], std::move(first), true);
  }
  std::optional<Prediction> best;
  for (const ScheduleChoice& choice : problem_.schedules) detail::keep_better(best, this->best(choice));
  if (!best) throw InputError("the problem names no schedule to predict");
  return *std::move(best);
}

TAWPIPE_INLINE Prediction Predictor::best(const ScheduleChoice& choice) const { return best(choice, std::nullopt, true); }

TAWPIPE_INLINE std::optional<Prediction> Predictor::best_that_may_fit(const ScheduleChoice& choice) const {
  Built first = build_kept(choice);
  if (!may_fit(first)) return std::nullopt;
  return best(choice, std::move(first), false);
}

TAWPIPE_INLINE Prediction Predictor::best(const ScheduleChoice& choice, std::optional<Built> first, bool with_held) const {
  std::optional<Prediction> best;
  for (const Work& work : works_) {
    if (!is_tried(work)) continue;
    check_tasks(computations(work), work);
    const bool is_first = first.has_value() && &work == &works_.front();
    Prediction next = predict(is_first ? *std::move(first) : Built{build(choice, work), std::nullopt}, work, with_held);
    const bool fits = next.fits();
    detail::keep_better(best, std::move(next));
    if (!fits) break;  // a larger microbatch keeps more
  }
  return *std::move(best);
}

TAWPIPE_INLINE MinNeed Predictor::least(const ScheduleChoice& choice, detail::CollectiveTimes* known) const {
  const Built built = build_kept(choice);
  check_stop();
  return std::visit(
      [&](const auto& cost) { return min_need(built.least(), problem_.cluster, cost, problem_.usable_memory, known); },
      problem_.cost);
}

TAWPIPE_INLINE Predictor::Built Predictor::build_kept(const ScheduleChoice& choice) const {
  const Work& work = works_.front();
  Built built{build(choice, work), std::nullopt};
  if (!mesh_.is_plain())
    built.kept = compose_kept(built.logical, work.whole, mesh_, composition(built.logical), {true, true, true, true});
  return built;
}

TAWPIPE_INLINE bool Predictor::may_fit(const Built& built) const {
  return std::visit(
      [&](const auto& cost) { return detail::may_fit(built.least(), problem_.cluster, cost, problem_.usable_memory); },
      problem_.cost);
}

TAWPIPE_INLINE Schedule Predictor::build(const ScheduleChoice& choice, const Work& work) const {
  check_stop();
  const ScheduleRequest request{.workload = work.replica,
                                .nodes = nodes_,
                                .options = choice.options,
                                .device_memory = memory_ * mesh_.shared(),
                                .speeds = speeds_,
                                .offload = problem_.offload,
                                .own_adapters = own_adapters_,
                                .pairs = detail::pairs_of(problem_, mesh_, registry_.info(choice.schedule))};
  if (computations(work) > problem_.max_tasks / Registry::most_of_computation) {
    const auto steps = [&](const Schedule& few) { return detail::steps(few, composition(few)); };
    check_tasks(registry_.expected(choice.schedule, request, steps).value_or(0), work);
  }
  return registry_.build(choice.schedule, request);
}

TAWPIPE_INLINE Prediction Predictor::predict(Built built, const Work& work, bool with_held) const {
  const Composition with = composition(built.logical);
  check_tasks(detail::steps(built.logical, with), work);
  std::string refusal;
  if (problem_.fold == Fold::on || (problem_.fold == Fold::automatic && !mesh_.is_plain())) {
    if (std::optional<Prediction> folded = predict_folded(built, work.whole, with, with_held, refusal)) return *std::move(folded);
    if (problem_.fold == Fold::on) {
      throw InputError(concat("fold on: ", refusal, ", so folding would not be exact; fold auto simulates it in full"));
    }
  }
  built.kept.reset();
  Schedule whole = mesh_.is_plain() ? std::move(built.logical) : compose(built.logical, work.whole, mesh_, with);
  Prediction full = detail::predict(problem_, std::move(whole), with_held);
  full.summary.folding.refusal = std::move(refusal);
  return full;
}

TAWPIPE_INLINE Composition Predictor::composition(const Schedule& logical) const {
  Composition with{.sequence_parallel = problem_.sequence_parallel,
                   .sharding = problem_.sharding,
                   .reshard = problem_.reshard,
                   .overlap_gradients = problem_.overlap_gradients,
                   .overlap_gathers = problem_.overlap_gathers,
                   .bucket = problem_.bucket};
  if (problem_.model && mesh_.shared() > 1) {
    with.stages = share_stages(*problem_.model, logical.workload().batch(), problem_.recompute, logical.stages(),
                               sharing_of(problem_, mesh_, detail::sends_activations(logical)));
  }
  return with;
}

TAWPIPE_INLINE std::optional<Prediction> Predictor::predict_folded(Built& built, const Workload& whole, const Composition& with,
                                                                   bool with_held, std::string& refusal) const {
  if (!problem_.noise.is_none()) {
    refusal = "noise is drawn for each device";
    return std::nullopt;
  }
  if (const auto* measured = std::get_if<MeasuredCost>(&problem_.cost)) measured->check(whole, problem_.cluster);
  check_stop();
  FoldedSimulation folded = std::visit(
      [&](const auto& cost) {
        return simulate_folded(built.logical, whole, mesh_, with, problem_.cluster, cost, std::move(built.kept));
      },
      problem_.cost);
  refusal = std::move(folded.refusal);
  if (!folded.run) return std::nullopt;
  auto& [kept, timeline, calls] = *folded.run;
  Summary summary = plausible(summarize(kept, problem_.cluster, timeline, problem_.usable_memory), problem_);
  summary.folding.refusal = refusal;
  if (const HeldSms* const held = with_held ? held_sms_of(problem_.cost) : nullptr)
    summary.held = held_time(kept.schedule, problem_.cluster, timeline, *held, kept.same_as, calls);
  return Prediction{std::move(kept.schedule), std::move(timeline), std::move(summary)};
}

TAWPIPE_INLINE double Predictor::computations(const Work& work) const {
  const int stages = work.replica.is_abstract() ? mesh_.pipeline : std::min(mesh_.pipeline, work.replica.model().layers);
  return 2.0 * stages * static_cast<double>(work.replica.microbatches());
}

TAWPIPE_INLINE void Predictor::check_tasks(double tasks, const Work& work) const {
  if (tasks <= problem_.max_tasks) return;
  throw InputError(concat("an iteration of ", work.replica.microbatches(), " microbatches", mesh_.data > 1 ? " a replica" : "",
                          " has about ", static_cast<std::int64_t>(tasks), " tasks, and at most ",
                          static_cast<std::int64_t>(problem_.max_tasks),
                          " are simulated; choose a larger microbatch, a smaller batch or a higher limit"));
}

}  // namespace tawpipe
#endif
