// Activations that a backward_input leaves for its backward_weight: which buffers hold them, and which are still to be read.
// Not: what else activations hold (contents_walk.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// A stash is what a backward_input writes and a backward_weight reads: one of its stage, or of a stage that says it needs some.
class Stashes {
 public:
  explicit Stashes(const Schedule& schedule) : schedule_{schedule}, is_stash_(schedule.buffers().size(), 0) {
    std::vector<std::int32_t> writer(is_stash_.size(), -1);  // its stage
    for_each_use(Op::backward_input, [&](const Task& task, const Use& use) {
      if (use.access != Access::read) writer[index(use.buffer)] = number(task.stage);
    });
    for_each_use(Op::backward_weight, [&](const Task& task, const Use& use) {
      const std::int32_t stage = writer[index(use.buffer)];
      if (use.access != Access::read || stage < 0) return;
      if (stage == number(task.stage) || schedule_.stage(task.stage).stash > Bytes{}) is_stash_[index(use.buffer)] = 1;
    });
  }

  /// Whether the buffer holds a stash once `task` has written it; notes that there is one, then.
  bool leaves(const Task& task, BufferId buffer) {
    if (task.op != Op::backward_input || is_stash_[index(buffer)] == 0) return false;
    left_.insert({task.rank, number(task.stage), task.microbatch});
    return true;
  }
  /// Whether the task's own backward_input has left something that no backward_weight has asked for before.
  bool takes(const Task& task) {
    return task.op == Op::backward_weight && left_.erase({task.rank, number(task.stage), task.microbatch}) > 0;
  }

 private:
  /// Calls `visit(task, use)` for the activations that tasks of one op use.
  template <class Visit>
  void for_each_use(Op op, Visit&& visit) const {
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      if (schedule_.tasks()[t].op != op) continue;
      for (const Use& use : schedule_.uses(id<TaskId>(t))) {
        if (schedule_.buffer(use.buffer).kind() == BufferKind::activations) visit(schedule_.tasks()[t], use);
      }
    }
  }

  const Schedule& schedule_;
  std::vector<char> is_stash_;                                   ///< [buffer]
  std::set<std::tuple<Rank, std::int32_t, std::int32_t>> left_;  ///< rank, stage, microbatch
};

}  // namespace tawpipe::detail
