// How far a predicted timeline is from a measured one: the whole, each kind of task, the order on
// each lane.
// Not: the times that a prediction uses (analysis/calibrate.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/task.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// The tasks of one op and payload.
struct KindDifference {
  Op op = Op::forward;
  Payload payload = Payload::nothing;
  std::size_t tasks = 0;
  double predicted = 0;  ///< mean seconds
  double measured = 0;   ///< mean seconds
  double error = 0;      ///< predicted / measured - 1; 0 where both are 0
};

/// A lane of a rank on which the tasks started in a different order from that predicted.
struct OrderDifference {
  Rank rank = none<Rank>;
  int lane = 0;
  std::size_t tasks = 0;            ///< on the lane
  std::size_t displaced = 0;        ///< of them, at another position
  std::size_t place = 0;            ///< the first such position, from 0
  TaskId predicted = none<TaskId>;  ///< predicted at that position
  TaskId measured = none<TaskId>;
};

struct TimelineComparison {
  Duration predicted;  ///< from the first start to the last end
  Duration measured;
  double error = 0;                    ///< predicted / measured - 1
  std::vector<KindDifference> kinds;   ///< those that occur, by op and payload
  std::vector<OrderDifference> order;  ///< lanes whose order differs, by rank and lane
};

namespace detail {

inline Duration span_of(const Timeline& timeline) {
  if (timeline.start.empty()) return {};
  return *std::max_element(timeline.end.begin(), timeline.end.end()) -
         *std::min_element(timeline.start.begin(), timeline.start.end());
}

/// predicted / measured - 1; infinite if a task was predicted to take time and took none.
inline double relative_difference(double predicted, double measured) {
  if (measured > 0) return predicted / measured - 1;
  return predicted > 0 ? std::numeric_limits<double>::infinity() : 0;
}

/// `tasks` by start; ties by end, then by the order in which tasks were built.
inline std::vector<std::size_t> in_order_of_start(std::vector<std::size_t> tasks, const Timeline& timeline) {
  std::sort(tasks.begin(), tasks.end(), [&](std::size_t a, std::size_t b) {
    if (timeline.start[a] != timeline.start[b]) return timeline.start[a] < timeline.start[b];
    if (timeline.end[a] != timeline.end[b]) return timeline.end[a] < timeline.end[b];
    return a < b;
  });
  return tasks;
}

}  // namespace detail

/// Compares two timelines of the same tasks. A transfer counts on the lane of its source, a
/// collective on that of its first member or root: as in a timeline's CSV.
/// @param tasks  [task] tasks of the schedule of both timelines
/// @throws InputError  if a timeline has a different number of tasks.
/// Complexity: O(tasks log tasks).
inline TimelineComparison compare_timelines(std::span<const Task> tasks, const Timeline& predicted, const Timeline& measured) {
  for (const Timeline* timeline : {&predicted, &measured}) {
    if (timeline->start.size() == tasks.size() && timeline->end.size() == tasks.size()) continue;
    throw InputError(concat("a timeline has ", timeline->end.size(), " tasks, but the schedule has ", tasks.size()));
  }
  TimelineComparison result;
  result.predicted = detail::span_of(predicted);
  result.measured = detail::span_of(measured);
  result.error = detail::relative_difference(to_seconds(result.predicted), to_seconds(result.measured));

  std::map<std::pair<Op, Payload>, KindDifference> kinds;
  std::map<std::pair<Rank, int>, std::vector<std::size_t>> lanes;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const Task& task = tasks[t];
    KindDifference& kind = kinds[{task.op, task.payload}];
    ++kind.tasks;
    kind.predicted += to_seconds(predicted.duration_of(id<TaskId>(t)));
    kind.measured += to_seconds(measured.duration_of(id<TaskId>(t)));
    lanes[{task.rank, number(task.lane)}].push_back(t);
  }
  for (auto& [key, kind] : kinds) {
    kind.op = key.first;
    kind.payload = key.second;
    kind.error = detail::relative_difference(kind.predicted, kind.measured);
    kind.predicted /= static_cast<double>(kind.tasks);
    kind.measured /= static_cast<double>(kind.tasks);
    result.kinds.push_back(kind);
  }
  for (const auto& [key, on_lane] : lanes) {
    const std::vector<std::size_t> expected = detail::in_order_of_start(on_lane, predicted);
    const std::vector<std::size_t> found = detail::in_order_of_start(on_lane, measured);
    OrderDifference difference{.rank = key.first, .lane = key.second, .tasks = on_lane.size()};
    for (std::size_t i = on_lane.size(); i-- > 0;) {
      if (expected[i] == found[i]) continue;
      ++difference.displaced;
      difference.place = i;
      difference.predicted = id<TaskId>(expected[i]);
      difference.measured = id<TaskId>(found[i]);
    }
    if (difference.displaced > 0) result.order.push_back(difference);
  }
  return result;
}

}  // namespace tawpipe
