// The chain of tasks that the makespan waits for.
// Not: what each would save if it were faster.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// A chain of tasks, each starting when the one before ends, from the start to the end of the
/// iteration.
struct CriticalPath {
  std::vector<TaskId> tasks;               ///< in time order
  std::array<Duration, ops> time_of_op{};  ///< [op] time on the path; gaps in the timeline are not included
};

/// The critical path of `timeline`: from the task that ends last back through the predecessor
/// (dependency or previous task of a lane) that ended last. Complexity: O(tasks + edges).
inline CriticalPath critical_path(const Schedule& schedule, const Timeline& timeline) {
  CriticalPath path;
  if (schedule.tasks().empty()) return path;
  // The previous tasks on each of a task's lanes: the one that ended last is enough.
  std::vector<TaskId> before(schedule.tasks().size(), none<TaskId>);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      const auto program = schedule.program(Rank{rank}, lane);
      for (std::size_t i = 1; i < program.size(); ++i) {
        TaskId& known = before[index(program[i])];
        if (known == none<TaskId> || timeline.end_of(program[i - 1]) > timeline.end_of(known)) known = program[i - 1];
      }
    }
  }
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
