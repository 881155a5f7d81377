// When a schedule's updates may send sums and weights before its end: which task completes a
// gradient, which needs weights.
// Not: the messages (schedule/compose.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/model/parameter_space.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Updates by the task at which their message is placed, taken in the order of the tasks.
class MessagesAtTasks {
 public:
  void add(TaskId task, TaskId update) { all_.emplace_back(task, update); }
  void sort() { std::sort(all_.begin(), all_.end()); }
  /// The updates whose message is placed at `task`. @pre tasks come in order
  std::vector<TaskId> next(TaskId task) {
    std::vector<TaskId> found;
    for (; at_ < all_.size() && all_[at_].first == task; ++at_) found.push_back(all_[at_].second);
    return found;
  }

 private:
  std::vector<std::pair<TaskId, TaskId>> all_;
  std::size_t at_ = 0;
};

/// What an update uses of a kind, or none; a gradient only where it reads it.
inline BufferId buffer_of(const Schedule& schedule, TaskId update, ContentKind kind) {
  for (const Use& use : schedule.uses(update)) {
    if (schedule.buffer(use.buffer).content.kind() != kind) continue;
    if (kind != ContentKind::gradients || use.access == Access::read) return use.buffer;
  }
  return none<BufferId>;
}

/// What uses the states of an update.
struct StateUses {
  TaskId update = none<TaskId>;
  PiecesId parameters = none<PiecesId>;  ///< of its gradient
  TaskId first = none<TaskId>;           ///< that reads the weights
  TaskId last_work = none<TaskId>;       ///< the last computation that adds to the gradient
  /// other updates follow, each of a piece of the same weights
  bool in_pieces = false;
};

struct EarlyMessages {
  std::vector<StateUses> updates;
  MessagesAtTasks sums;     ///< after the last task that adds to the gradient
  MessagesAtTasks gathers;  ///< before the first that reads the weights
};

/// Finds them for each update of `schedule`; for the first of several that update the same weights
/// piece by piece. Complexity: O(uses).
inline EarlyMessages find_early_messages(const Schedule& schedule, bool sums, bool gathers) {
  EarlyMessages found;
  if (!sums && !gathers) return found;
  constexpr std::size_t nobody = static_cast<std::size_t>(-1);
  std::vector<TaskId> first(schedule.buffers().size(), none<TaskId>);
  std::vector<TaskId> last(schedule.buffers().size(), TaskId{0});
  std::vector<TaskId> last_work(schedule.buffers().size(), none<TaskId>);
  std::vector<std::size_t> updated_by(schedule.buffers().size(), nobody);  // the first of found.updates
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId task = id<TaskId>(t);
    const bool update = schedule.task(task).op == Op::update;
    if (update) found.updates.push_back({.update = task});
    for (const Use& use : schedule.uses(task)) {
      const std::size_t buffer = index(use.buffer);
      const ContentKind kind = schedule.buffer(use.buffer).content.kind();
      if (!update) {
        if (first[buffer] == none<TaskId>) first[buffer] = task;
        last[buffer] = task;
        if (is_work(schedule.task(task).op)) last_work[buffer] = task;
        continue;
      }
      const bool gradient = kind == ContentKind::gradients && use.access == Access::read;
      if (!gradient && kind != ContentKind::weights) continue;
      if (updated_by[buffer] != nobody) {
        found.updates[updated_by[buffer]].in_pieces = true;
        continue;
      }
      updated_by[buffer] = found.updates.size() - 1;
      StateUses& uses = found.updates.back();
      if (gradient) {
        uses.parameters = schedule.buffer(use.buffer).content.parameters();
        uses.last_work = last_work[buffer];
        if (sums) found.sums.add(last[buffer], task);
      } else {
        uses.first = first[buffer];
        if (gathers) found.gathers.add(first[buffer] == none<TaskId> ? TaskId{0} : first[buffer], task);
      }
    }
  }
  found.sums.sort();
  found.gathers.sort();
  return found;
}

/// The parameters of a set from the one at `begin` to that before `end`, in the set's order.
inline std::vector<ParameterRange> slice(std::span<const ParameterRange> ranges, std::int64_t begin, std::int64_t end) {
  std::vector<ParameterRange> own;
  std::int64_t at = 0;
  for (const ParameterRange& range : ranges) {
    const std::int64_t from = std::max(begin - at, std::int64_t{0});
    const std::int64_t to = std::min(end - at, range.count());
    if (from < to) append(own, {range.begin + from, range.begin + to});
    at += range.count();
    if (at >= end) break;
  }
  return own;
}

/// One of that many equal parts of a set of parameters, in order; their sizes differ by one at
/// most.
inline std::vector<ParameterRange> equal_part(std::span<const ParameterRange> ranges, int part, int parts) {
  const std::int64_t count = parameters_in(ranges);
  const auto end_of = [&](std::int64_t p) { return count / parts * p + count % parts * p / parts; };
  return slice(ranges, end_of(part), end_of(part + 1));
}

}  // namespace tawpipe::detail
