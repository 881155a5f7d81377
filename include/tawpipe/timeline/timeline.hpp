// When each task of a schedule started and ended: predicted by the simulator or measured by an
// executor.
// Not: what it means (analysis/).
#pragma once

#include <algorithm>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// Start and end of every task. Predicted and measured timelines have this same type, so they can
/// be subtracted.
struct Timeline {
  std::vector<TimePoint> start;  ///< [task]
  std::vector<TimePoint> end;    ///< [task]

  TimePoint start_of(TaskId task) const { return start[index(task)]; }
  TimePoint end_of(TaskId task) const { return end[index(task)]; }
  Duration duration_of(TaskId task) const { return end_of(task) - start_of(task); }
  /// The latest end. Complexity: O(tasks).
  Duration makespan() const {
    TimePoint latest;
    for (const auto time : end) latest = std::max(latest, time);
    return latest.since_start();
  }

  bool operator==(const Timeline&) const = default;
};

}  // namespace tawpipe
