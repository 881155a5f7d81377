// The chain of tasks that the makespan waits for.
// Not: what each would save if it were faster.
#pragma once

#include <array>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// A chain of tasks, each starting when the one before ends, from the start to the end of the
/// iteration.
struct CriticalPath {
  std::vector<TaskId> tasks;  ///< in time order
  /// [op] time on the path; gaps in the timeline are not included
  std::array<Duration, ops> time_of_op{};
};

/// The critical path of `timeline`: from the task that ends last back through the predecessor
/// (dependency or previous task of a lane) that ended last. Complexity: O(tasks + edges).
TAWPIPE_INLINE CriticalPath critical_path(const Schedule& schedule, const Timeline& timeline);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tawpipe::inline v0 {

namespace detail {

/// Of the tasks before each task on its lanes, the one that ends last; of several, that of the
/// first rank and lane.
/// @return [task] none if it is the first on all its lanes
inline std::vector<TaskId> last_before(const Schedule& schedule, const Timeline& timeline) {
  std::vector<TaskId> before(schedule.tasks().size(), none<TaskId>);
  const Rows<TaskId>& program = schedule.parts().program;
  const auto later = [&](TaskId one, TaskId other) {
    return other == none<TaskId> || timeline.end_of(one) > timeline.end_of(other);
  };
  // Task by task, as they are in memory, if that is the order of all lanes.
  struct Lane {
    std::uint32_t next;  ///< where its next task is in the program
    TaskId last = none<TaskId>;
  };
  std::vector<Lane> lanes;
  for (std::size_t row = 0; row < program.size(); ++row) lanes.push_back({program.begins()[row]});
  std::size_t placed = 0;
  for (std::size_t t = 0; t < before.size(); ++t) {
    std::size_t first = lanes.size();  // of the rows with the last end
    for_each_end(schedule, id<TaskId>(t), [&](Rank rank, int lane) {
      const std::size_t row = index(rank) * schedule.lanes().size() + static_cast<std::size_t>(lane);
      Lane& here = lanes[row];
      if (here.next == program.begins()[row + 1] || program.items()[here.next] != id<TaskId>(t)) return;
      ++here.next;
      ++placed;
      const TaskId last = std::exchange(here.last, id<TaskId>(t));
      if (last == none<TaskId>) return;
      const bool equal = before[t] != none<TaskId> && timeline.end_of(last) == timeline.end_of(before[t]);
      if (equal ? row < first : later(last, before[t])) {
        before[t] = last;
        first = row;
      }
    });
  }
  if (placed == program.items().size()) return before;
  before.assign(before.size(), none<TaskId>);
  for (std::size_t row = 0; row < program.size(); ++row) {
    for (std::size_t i = 1; i < program[row].size(); ++i) {
      TaskId& known = before[index(program[row][i])];
      if (later(program[row][i - 1], known)) known = program[row][i - 1];
    }
  }
  return before;
}

}  // namespace detail

TAWPIPE_INLINE CriticalPath critical_path(const Schedule& schedule, const Timeline& timeline) {
  CriticalPath path;
  if (schedule.tasks().empty()) return path;
  const std::vector<TaskId> before = detail::last_before(schedule, timeline);
  TaskId at = TaskId{0};
  for (std::size_t t = 1; t < schedule.tasks().size(); ++t) {
    if (timeline.end[t] > timeline.end_of(at)) at = id<TaskId>(t);
  }
  while (at != none<TaskId>) {
    path.tasks.push_back(at);
    path.time_of_op[static_cast<std::size_t>(schedule.task(at).op)] += timeline.duration_of(at);
    TaskId next = before[index(at)];
    for (const TaskId earlier : schedule.dependencies(at)) {
      if (next == none<TaskId> || timeline.end_of(earlier) > timeline.end_of(next)) next = earlier;
    }
    at = next;
  }
  std::reverse(path.tasks.begin(), path.tasks.end());
  return path;
}

}  // namespace tawpipe
#endif
