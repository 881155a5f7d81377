// Checks that a timeline belongs to a schedule.
// Not: whether its times are plausible (analysis/compare_timelines.hpp).
#pragma once

#include <cstddef>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// @throws InputError  if the timeline has a different number of tasks from the schedule.
inline void check_timeline(const Schedule& schedule, const Timeline& timeline) {
  const std::size_t tasks = schedule.tasks().size();
  if (timeline.start.size() == tasks && timeline.end.size() == tasks) return;
  throw InputError(concat("the timeline has ", timeline.end.size(), " tasks, but the schedule has ", tasks));
}

}  // namespace tawpipe
