// Finds the times of a MeasuredCost from measured timelines.
// Not: prediction with them (simulate/), nor its error (analysis/compare_timelines.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tawpipe/analysis/calibration.hpp"
#include "tawpipe/analysis/detail/message_fit.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/check_timeline.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// A schedule and its measured timeline. Refers to both.
struct MeasuredRun {
  const Schedule& schedule;
  const Timeline& timeline;
};

namespace detail {

class Calibrator {
 public:
  explicit Calibrator(const Cluster& cluster) : cluster_{cluster} {}

  void add(const MeasuredRun& run) {
    const Schedule& schedule = run.schedule;
    check_timeline(schedule, run.timeline);
    if (schedule.ranks() > cluster_.ranks()) {
      throw InputError(concat("the schedule has ", schedule.ranks(), " ranks, and cluster ", quote(cluster_.name()), " has ",
                              cluster_.ranks(), " devices; give the cluster that it ran on"));
    }
    result_.cost.check_work(schedule.workload());
    result_.cost.work = MeasuredWork::of(schedule.workload());
    result_.cost.device = cluster_.device(Rank{0}).name;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) add_computation(schedule, schedule.tasks()[t], duration(run, t));
    messages_.add(schedule, run.timeline);
  }

  Calibration finish() {
    MeasuredCost& cost = result_.cost;
    finish_pass(result_, Op::forward, forward_, cost.forward);
    finish_pass(result_, Op::backward, backward_, cost.backward);
    finish_pass(result_, Op::backward_input, backward_input_, cost.backward_input);
    finish_pass(result_, Op::backward_weight, backward_weight_, cost.backward_weight);
    if (!update_.empty()) {
      const auto found = update_.solve();
      cost.update = MeasuredUpdate{.once = found[1], .byte = found[0]};
      add_class(result_, Op::update, update_, found);
    }
    cost.check_times();
    messages_.finish(result_);
    return std::move(result_);
  }

 private:
  static double duration(const MeasuredRun& run, std::size_t task) {
    return to_seconds(run.timeline.duration_of(id<TaskId>(task)));
  }

  void add_computation(const Schedule& schedule, const Task& task, double seconds_taken) {
    if (task.op == Op::update) update_.add({static_cast<double>(task.bytes.value()), 1}, seconds_taken);
    const Passes passes = traits(task.op).passes;
    if (!is_work(task.op) || !passes.any()) return;
    const StageWork& stage = schedule.stage(task.stage);
    PassFit& fit = passes.forward            ? forward_
                   : !passes.backward_weight ? backward_input_
                   : !passes.backward_input  ? backward_weight_
                                             : backward_;
    fit.add({static_cast<double>(stage.layers), stage.first_edge ? 1.0 : 0.0, stage.last_edge ? 1.0 : 0.0}, seconds_taken);
  }

  const Cluster& cluster_;
  Calibration result_;
  PassFit forward_;
  PassFit backward_;
  PassFit backward_input_;
  PassFit backward_weight_;
  NonnegativeFit<2> update_;
  MessageFit messages_{cluster_};
};

}  // namespace detail

/// The measured cost that fits the runs best: for each class of tasks, least squares over the
/// medians of equal tasks, with nonnegative times. Only messages that shared no link with another
/// while they ran are used, if there are any: the simulator adds the cost of sharing. A message's
/// time must not include the wait for its other end; an executor's starts when its last end is
/// ready.
///
/// Times that one timeline cannot separate (a layer from the embedding where each stage has one of
/// both) go to the layer; messages of a single size, or of sizes within a factor of 4 with
/// scattered times, count as bandwidth only; two kinds of link measured only by collectives over
/// both get the same values.
/// @param cluster  where the runs were measured: it tells which ranks share a node, and their links
/// @throws InputError  if there are no runs, or a run does not match its timeline, the cluster, or
/// the work of the previous run, or a layer took no time.
/// Complexity: O(tasks (links of a path + log tasks)).
/// Example:
/// ```cpp
/// const tawpipe::MeasuredRun run{schedule, measured};
/// const tawpipe::Calibration found = tawpipe::calibrate({&run, 1}, cluster);
/// const tawpipe::Timeline predicted = tawpipe::simulate(another_schedule, cluster, found.cost);
/// ```
inline Calibration calibrate(std::span<const MeasuredRun> runs, const Cluster& cluster) {
  if (runs.empty()) throw InputError("there is no measured timeline to calibrate from");
  detail::Calibrator calibrator{cluster};
  for (const MeasuredRun& run : runs) calibrator.add(run);
  return calibrator.finish();
}

}  // namespace tawpipe
