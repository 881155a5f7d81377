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

struct EarlyMessages {
  MessagesAtTasks sums;     ///< after the last task that adds to the gradient
  MessagesAtTasks gathers;  ///< before the first that reads the weights
};

/// Finds them for each update of `schedule`. Complexity: O(uses).
inline EarlyMessages find_early_messages(const Schedule& schedule, bool sums, bool gathers) {
  EarlyMessages found;
  if (!sums && !gathers) return found;
  std::vector<TaskId> first(schedule.buffers().size(), none<TaskId>);
  std::vector<TaskId> last(schedule.buffers().size(), TaskId{0});
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId task = id<TaskId>(t);
    const bool update = schedule.task(task).op == Op::update;
    for (const Use& use : schedule.uses(task)) {
      const std::size_t buffer = index(use.buffer);
      const ContentKind kind = schedule.buffer(use.buffer).content.kind();
      if (!update) {
        if (first[buffer] == none<TaskId>) first[buffer] = task;
        last[buffer] = task;
      } else if (sums && kind == ContentKind::gradients && use.access == Access::read) {
        found.sums.add(last[buffer], task);
      } else if (gathers && kind == ContentKind::weights) {
        found.gathers.add(first[buffer] == none<TaskId> ? TaskId{0} : first[buffer], task);
      }
    }
  }
  found.sums.sort();
  found.gathers.sort();
  return found;
}

/// A set of parameters cut into equal parts, in order; their sizes differ by one at most.
inline std::vector<std::vector<ParameterRange>> equal_parts(std::span<const ParameterRange> ranges, int parts) {
  std::vector<std::vector<ParameterRange>> cut;
  const std::int64_t count = parameters_in(ranges);
  std::size_t range = 0;
  std::int64_t used = 0;  // of that range
  std::int64_t done = 0;
  for (int p = 0; p < parts; ++p) {
    const std::int64_t end = count / parts * (p + 1) + count % parts * (p + 1) / parts;
    std::vector<ParameterRange> own;
    while (done < end) {
      const std::int64_t take = std::min(ranges[range].count() - used, end - done);
      append(own, {ranges[range].begin + used, ranges[range].begin + used + take});
      done += take;
      used += take;
      if (used == ranges[range].count()) {
        ++range;
        used = 0;
      }
    }
    cut.push_back(std::move(own));
  }
  return cut;
}

}  // namespace tawpipe::detail
