// A schedule as a graph: an edge for each dependency and each pair of neighbours in a lane.
// Not: buffers (the builder has turned them into dependencies).
#pragma once

#include <cstddef>
#include <vector>

#include "tawpipe/graph/algorithms.hpp"
#include "tawpipe/graph/digraph.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Calls `visit(from, to)` with task indices for each dependency, then for each pair of neighbours
/// in a lane.
template <class Visit>
void for_each_wait(const Schedule& schedule, Visit&& visit) {
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) visit(index(earlier), t);
  }
  const Rows<TaskId>& program = schedule.parts().program;
  for (std::size_t row = 0; row < program.size(); ++row) {
    const auto lane = program[row];
    for (std::size_t i = 1; i < lane.size(); ++i) visit(index(lane[i - 1]), index(lane[i]));
  }
}

inline Digraph task_graph(const Schedule& schedule) {
  return Digraph{schedule.tasks().size(), [&](auto&& visit) { for_each_wait(schedule, visit); }};
}

/// Whether the task ids themselves are an order in which the tasks can run.
inline bool ids_in_order(const Schedule& schedule) {
  bool in_order = true;
  for_each_wait(schedule, [&](std::size_t from, std::size_t to) { in_order = in_order && from < to; });
  return in_order;
}

/// An order in which the tasks can run: by id if that is such an order. Shorter than the tasks if
/// there is a cycle.
inline std::vector<TaskId> run_order(const Schedule& schedule) {
  std::vector<TaskId> order;
  order.reserve(schedule.tasks().size());
  if (ids_in_order(schedule)) {
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) order.push_back(id<TaskId>(t));
    return order;
  }
  for (const auto t : topological_order(task_graph(schedule))) order.push_back(id<TaskId>(t));
  return order;
}

}  // namespace tawpipe::detail
