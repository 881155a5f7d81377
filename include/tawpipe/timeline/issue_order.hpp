// The order in which an executor issues the tasks of all ranks.
// Not: what limits when they then start (simulate/, execute/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// The order in which tasks are issued, the same on all ranks and topological: by their expected
/// start, then by id. @param expected  null: by id
inline std::vector<TaskId> issue_order(const Schedule& schedule, const Timeline* expected) {
  std::vector<TaskId> order;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) order.push_back(id<TaskId>(t));
  if (expected == nullptr) return order;
  std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) { return expected->start_of(a) < expected->start_of(b); });
  return order;
}

}  // namespace tawpipe
