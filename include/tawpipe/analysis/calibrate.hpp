// Finds the times of a MeasuredCost from measured timelines.
// Not: prediction with them (simulate/), nor how far it is off (analysis/compare_timelines.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/analysis/detail/nonnegative_fit.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe {

/// A schedule and the timeline that was measured of it. Refers to both.
struct MeasuredRun {
  const Schedule& schedule;
  const Timeline& timeline;
};

/// How well the tasks of one class are met.
struct CalibrationClass {
  std::string name;       ///< of an op, "messages inside a node" or "messages between nodes"
  std::size_t tasks = 0;  ///< measured
  std::size_t used = 0;   ///< of them in the fit; of messages those that shared no link, if there are any
  double mean = 0;        ///< seconds of those used
  double error = 0;       ///< sum of |measured - fitted| over the sum of measured, of those used
};

struct Calibration {
  MeasuredCost cost;
  std::vector<CalibrationClass> classes;  ///< those that occur, computations before messages
};

namespace detail {

class Calibrator {
 public:
  explicit Calibrator(const Cluster& cluster) : cluster_{cluster} {}

  void add(const MeasuredRun& run) {
    const Schedule& schedule = run.schedule;
    const std::size_t count = schedule.tasks().size();
    if (run.timeline.start.size() != count || run.timeline.end.size() != count) {
      throw InputError(concat("the timeline has ", run.timeline.end.size(), " tasks, but the schedule has ", count));
    }
    if (schedule.ranks() > cluster_.ranks()) {
      throw InputError(concat("the schedule has ", schedule.ranks(), " ranks, and cluster ", quote(cluster_.name()), " has ",
                              cluster_.ranks(), " devices; give the cluster that it ran on"));
    }
    result_.cost.check(schedule.workload());
    result_.cost.work = MeasuredWork::of(schedule.workload());
    for (std::size_t t = 0; t < count; ++t) add_computation(schedule, schedule.tasks()[t], duration(run, t));
    add_messages(run);
  }

  Calibration finish() {
    MeasuredCost& cost = result_.cost;
    finish_pass(Op::forward, forward_, cost.forward);
    finish_pass(Op::backward, backward_, cost.backward);
    finish_pass(Op::backward_input, backward_input_, cost.backward_input);
    finish_pass(Op::backward_weight, backward_weight_, cost.backward_weight);
    if (!update_.empty()) {
      const auto found = update_.solve();
      cost.update = MeasuredUpdate{.once = found[1], .byte = found[0]};
      report(std::string{name(Op::update)}, update_, found);
    }
    const auto steps_inside = [](const Message& message) { return message.intra_steps > 0; };
    if (inside_.empty() && std::any_of(between_.begin(), between_.end(), steps_inside)) {
      // Collectives that cross both kinds of link, and nothing that stays inside: the kinds cannot be told apart.
      cost.inter_node = fit_messages("messages between nodes", between_, [](const Message& message) {
        return Sample{{std::max(message.intra_bytes, message.inter_bytes), message.intra_steps + message.inter_steps}, 0};
      });
      cost.intra_node = cost.inter_node;
      return std::move(result_);
    }
    if (!inside_.empty()) {
      cost.intra_node = fit_messages("messages inside a node", inside_, [](const Message& message) {
        return Sample{{message.intra_bytes, message.intra_steps}, 0};
      });
    }
    if (!between_.empty()) {
      const double inner = cost.intra_node ? cost.intra_node->latency : 0;
      cost.inter_node = fit_messages("messages between nodes", between_, [&](const Message& message) {
        return Sample{{message.inter_bytes, message.inter_steps}, message.intra_steps * inner};
      });
    }
    return std::move(result_);
  }

 private:
  using PassFit = NonnegativeFit<3>;

  /// What a communication's time depends on, at a latency of 1 s and a bandwidth of 1 byte/s of either kind of link.
  struct Probe {
    double intra_steps;
    double inter_steps;
    double intra_fraction;  ///< of the task's bytes, through the busiest link inside a node
    double inter_fraction;
    std::vector<LinkId> links;
  };
  struct Message {
    double intra_bytes;  ///< through the busiest link inside a node
    double inter_bytes;
    double intra_steps;
    double inter_steps;
    double seconds;
    bool alone;
  };
  /// What a message's time is fitted by, and seconds of it that are known already.
  struct Sample {
    NonnegativeFit<2>::Features features;
    double known;
  };

  static double duration(const MeasuredRun& run, std::size_t task) {
    return to_seconds(run.timeline.duration_of(id<TaskId>(task)));
  }

  void add_computation(const Schedule& schedule, const Task& task, double seconds_taken) {
    if (task.op == Op::update) update_.add({static_cast<double>(task.bytes.value()), 1}, seconds_taken);
    if (!is_work(task.op) || task.op == Op::update) return;
    const StageWork& stage = schedule.stage(task.stage);
    PassFit& fit = task.op == Op::forward          ? forward_
                   : task.op == Op::backward       ? backward_
                   : task.op == Op::backward_input ? backward_input_
                                                   : backward_weight_;
    fit.add({static_cast<double>(stage.layers), stage.embedding ? 1.0 : 0.0, stage.head ? 1.0 : 0.0}, seconds_taken);
  }

  void add_messages(const MeasuredRun& run) {
    const Schedule& schedule = run.schedule;
    std::map<std::tuple<Op, Rank, Rank, GroupId>, Probe> probes;
    struct Flow {
      TimePoint start;
      TimePoint end;
      std::size_t task;
    };
    std::map<LinkId, std::vector<Flow>> flows;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (is_compute(task.op)) continue;
      const auto key = std::make_tuple(task.op, task.rank, task.peer, task.group);
      if (!probes.contains(key)) probes.emplace(key, probe(schedule, task));
      const TimePoint start = run.timeline.start[t];
      for (const LinkId link : probes.at(key).links) flows[link].push_back({start, run.timeline.end[t], t});
    }
    std::vector<char> shared(schedule.tasks().size(), 0);
    for (auto& [link, on_link] : flows) {
      std::sort(on_link.begin(), on_link.end(),
                [](const Flow& a, const Flow& b) { return std::tie(a.start, a.end, a.task) < std::tie(b.start, b.end, b.task); });
      TimePoint busy_until = on_link.front().start;
      for (std::size_t i = 0; i < on_link.size(); ++i) {
        const bool meets_next = i + 1 < on_link.size() && on_link[i + 1].start < on_link[i].end;
        if (meets_next || on_link[i].start < busy_until) shared[on_link[i].task] = 1;
        busy_until = std::max(busy_until, on_link[i].end);
      }
    }
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (is_compute(task.op)) continue;
      const Probe& known = probes.at(std::make_tuple(task.op, task.rank, task.peer, task.group));
      if (known.links.empty()) continue;  // a group of one
      const auto bytes = static_cast<double>(task.bytes.value());
      (known.inter_steps > 0 ? between_ : inside_)
          .push_back({known.intra_fraction * bytes, known.inter_fraction * bytes, known.intra_steps, known.inter_steps,
                      duration(run, t), shared[t] == 0});
    }
  }

  template <class Describe>
  MeasuredLink fit_messages(std::string class_name, const std::vector<Message>& messages, Describe&& describe) {
    const bool any_alone = std::any_of(messages.begin(), messages.end(), [](const Message& message) { return message.alone; });
    NonnegativeFit<2> fit;
    NonnegativeFit<2> bytes_only;
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (const Message& message : messages) {
      if (any_alone && !message.alone) continue;
      const Sample sample = describe(message);
      const double seconds_taken = std::max(message.seconds - sample.known, 0.0);
      fit.add(sample.features, seconds_taken);
      bytes_only.add({sample.features[0], 0}, seconds_taken);
      least = std::min(least, sample.features[0]);
      most = std::max(most, sample.features[0]);
    }
    auto found = fit.solve();
    // Sizes close to each other, and times that scatter more than the sizes tell: a slope would be noise.
    if (most < 4 * least && fit.relative_error(found) > 0.01) found = bytes_only.solve();
    report(std::move(class_name), fit, found);
    result_.classes.back().tasks = messages.size();
    return {.latency = found[1], .byte = found[0]};
  }

  Probe probe(const Schedule& schedule, const Task& task) const {
    constexpr MeasuredLink unit{.latency = 1, .byte = 1};
    MeasuredCost inside;
    inside.intra_node = unit;
    inside.inter_node = MeasuredLink{};
    MeasuredCost between;
    between.intra_node = MeasuredLink{};
    between.inter_node = unit;
    const Path inner = inside.path(schedule, task, cluster_);
    const Path outer = between.path(schedule, task, cluster_);
    Probe probe{to_seconds(inner.latency), to_seconds(outer.latency), busiest(inner), busiest(outer), {}};
    for (const Path& path : {inner, outer}) {
      for (const LinkLoad& load : path.loads) probe.links.push_back(load.link);
    }
    std::sort(probe.links.begin(), probe.links.end());
    probe.links.erase(std::unique(probe.links.begin(), probe.links.end()), probe.links.end());
    return probe;
  }

  double busiest(const Path& path) const {
    double most = 0;
    for (const LinkLoad& load : path.loads) most = std::max(most, load.weight / cluster_.link(load.link).bandwidth.value());
    return most * path.fraction;
  }

  void finish_pass(Op op, PassFit& fit, std::optional<MeasuredPass>& pass) {
    if (fit.empty()) return;
    const auto found = fit.solve();
    pass = MeasuredPass{.layer = found[0], .embedding = found[1], .head = found[2]};
    report(std::string{name(op)}, fit, found);
  }

  template <std::size_t n>
  void report(std::string class_name, const NonnegativeFit<n>& fit, const typename NonnegativeFit<n>::Features& found) {
    result_.classes.push_back({std::move(class_name), fit.size(), fit.size(), fit.mean(), fit.relative_error(found)});
  }

  const Cluster& cluster_;
  Calibration result_;
  PassFit forward_;
  PassFit backward_;
  PassFit backward_input_;
  PassFit backward_weight_;
  NonnegativeFit<2> update_;
  std::vector<Message> inside_;
  std::vector<Message> between_;
};

}  // namespace detail

/// The measured cost that fits the runs best: for each class of tasks, least squares over the medians of those that are alike,
/// with times of 0 or more. Of messages, those count that shared no link with another while they ran, if there are any: the
/// simulator adds what sharing costs. A message's own time must not hold the wait for its other end; an executor's starts when
/// the last end is ready.
///
/// What one timeline cannot tell apart (a layer from the embedding where each stage has one of both) goes to the layer; what
/// has a single size, or sizes within a factor of 4 and times that scatter, to the bytes; two kinds of link that only collectives
/// over both were measured on, to both alike.
/// @param cluster  that the runs were measured on: which ranks share a node, and the links between them
/// @throws InputError  if there are no runs, or a run does not fit its timeline, the cluster, or the work of the run before.
/// Complexity: O(tasks (links of a path + log tasks)).
/// Example:
/// ```cpp
/// const tawpipe::MeasuredRun run{schedule, measured};
/// const tawpipe::Calibration found = tawpipe::calibrate({&run, 1}, cluster);
/// const tawpipe::Timeline predicted = tawpipe::Simulator{cluster, found.cost}.run(another_schedule);
/// ```
inline Calibration calibrate(std::span<const MeasuredRun> runs, const Cluster& cluster) {
  if (runs.empty()) throw InputError("there is no measured timeline to calibrate from");
  detail::Calibrator calibrator{cluster};
  for (const MeasuredRun& run : runs) calibrator.add(run);
  return calibrator.finish();
}

}  // namespace tawpipe
