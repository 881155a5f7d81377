// Fits latency and bandwidth of both kinds of link to the times of communications.
// Not: public; the calibrations use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/analysis/calibration.hpp"
#include "tawpipe/analysis/detail/nonnegative_fit.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

class MessageFit {
 public:
  explicit MessageFit(const Cluster& cluster) : cluster_{cluster} {}

  /// @pre the schedule has no more ranks than the cluster, the timeline has all its tasks
  void add(const Schedule& schedule, const Timeline& timeline) {
    std::map<std::tuple<Op, Rank, std::int64_t>, Probe> probes;
    struct Flow {
      TimePoint start;
      TimePoint end;
      std::size_t task;
    };
    std::map<LinkId, std::vector<Flow>> flows;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (is_compute(task.op)) continue;
      const auto key = std::make_tuple(task.op, task.rank, task.route());
      if (!probes.contains(key)) probes.emplace(key, probe(schedule, task));
      const TimePoint start = timeline.start[t];
      for (const LinkId link : probes.at(key).links) flows[link].push_back({start, timeline.end[t], t});
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
      const Probe& known = probes.at(std::make_tuple(task.op, task.rank, task.route()));
      if (known.links.empty()) continue;  // a group of one
      const auto bytes = static_cast<double>(task.bytes.total().value());
      const double repeat = task.bytes.repeat();
      (known.inter_steps > 0 ? between_ : inside_)
          .push_back({known.intra_fraction * bytes, known.inter_fraction * bytes, repeat * known.intra_steps,
                      repeat * known.inter_steps, to_seconds(timeline.duration_of(id<TaskId>(t))), shared[t] == 0});
    }
  }

  /// Sets the links of the result's cost, and adds their classes.
  void finish(Calibration& result) {
    const auto steps_inside = [](const Message& message) { return message.intra_steps > 0; };
    if (inside_.empty() && std::any_of(between_.begin(), between_.end(), steps_inside)) {
      // Collectives that cross both kinds of link, and no message inside a node: the kinds cannot
      // be separated.
      result.cost.inter_node = fit_messages(result, "messages between nodes", between_, [](const Message& message) {
        return Sample{{std::max(message.intra_bytes, message.inter_bytes), message.intra_steps + message.inter_steps}, 0};
      });
      result.cost.intra_node = result.cost.inter_node;
      return;
    }
    if (!inside_.empty()) {
      result.cost.intra_node = fit_messages(result, "messages inside a node", inside_, [](const Message& message) {
        return Sample{{message.intra_bytes, message.intra_steps}, 0};
      });
    }
    if (!between_.empty()) {
      const double inner = result.cost.intra_node ? result.cost.intra_node->latency : 0;
      result.cost.inter_node = fit_messages(result, "messages between nodes", between_, [&](const Message& message) {
        return Sample{{message.inter_bytes, message.inter_steps}, message.intra_steps * inner};
      });
    }
  }

 private:
  /// The features of a communication's time, at a latency of 1 s and a bandwidth of 1 byte/s of
  /// either kind of link.
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
  /// The features by which a message's time is fitted, and the known seconds of it.
  struct Sample {
    NonnegativeFit<2>::Features features;
    double known;
  };

  template <class Describe>
  MeasuredLink fit_messages(Calibration& result, std::string class_name, const std::vector<Message>& messages,
                            Describe&& describe) {
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
    // Sizes close to each other, and times that scatter more than the sizes explain: a slope would
    // be noise.
    if (most < 4 * least && fit.relative_error(found) > 0.01) found = bytes_only.solve();
    result.classes.push_back({std::move(class_name), messages.size(), fit.size(), fit.mean(), fit.relative_error(found)});
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

  const Cluster& cluster_;
  std::vector<Message> inside_;
  std::vector<Message> between_;
};

}  // namespace tawpipe::detail
