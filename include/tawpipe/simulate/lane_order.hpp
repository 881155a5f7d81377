// Which of a schedule's tasks may start when: those that are first in all their lanes and whose
// dependencies have ended.
// Not: the times (simulate/engine.hpp).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/hash_index.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/simulate/engine.hpp"

namespace tawpipe::inline v0::detail {

/// The order of a schedule, for EngineRun, read from the schedule itself: a list of each task's
/// successors would take as much memory again. A task first waits until it is first in its lanes,
/// then for one dependency after another: no more tasks than there are lanes wait for a dependency
/// at any time.
class LaneOrder {
 public:
  /// @param graph  whose tasks are the distinct kinds of task
  /// @param kinds  [task of the schedule] its kind
  LaneOrder(const Schedule& schedule, const EngineGraph& graph, std::vector<std::int32_t> kinds)
      : schedule_{schedule},
        graph_{graph},
        kinds_{std::move(kinds)},
        progress_(kinds_.size(), 0),
        first_waiting_(kinds_.size(), -1),
        ended_(kinds_.size(), false),
        head_(schedule.parts().program.size(), 0) {}

  std::size_t tasks() const { return kinds_.size(); }
  const EngineTask& task(std::int32_t task) const { return graph_.tasks[at(kinds_[at(task)])]; }

  template <class Ready>
  void begin(Ready&& ready) {
    const Rows<TaskId>& program = schedule_.parts().program;
    for (const TaskId task : program.items()) --progress_[index(task)];
    for (std::size_t t = 0; t < kinds_.size(); ++t) {
      if (progress_[t] == 0) await_dependencies(static_cast<std::int32_t>(t), ready);  // not in any lane
    }
    for (std::size_t row = 0; row < program.size(); ++row) {
      if (!program[row].empty()) become_first(number(program[row][0]), ready);
    }
  }

  template <class Ready>
  void end(std::int32_t task, Ready&& ready) {
    ended_[at(task)] = true;
    for_each_end(schedule_, TaskId{task}, [&](Rank rank, int lane) {
      const auto program = schedule_.program(rank, lane);  // empty if a folded schedule leaves out the rank
      std::uint32_t& head = head_[index(rank) * schedule_.lanes().size() + static_cast<std::size_t>(lane)];
      if (head == program.size() || program[head] != TaskId{task}) return;
      if (++head < program.size()) become_first(number(program[head]), ready);
    });
    for (std::int32_t i = first_waiting_[at(task)]; i >= 0;) {
      const Waiting waiting = waiting_[at(i)];
      free_.push_back(i);
      i = waiting.next;
      await_dependencies(waiting.task, ready);
    }
  }

 private:
  /// A task that waits for a dependency, in a list of those that wait for the same task.
  struct Waiting {
    std::int32_t task;
    std::int32_t next;
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  /// The task has become first in one of its lanes.
  template <class Ready>
  void become_first(std::int32_t task, Ready&& ready) {
    if (++progress_[at(task)] == 0) await_dependencies(task, ready);
  }

  /// Advances to the first dependency that has not ended.
  template <class Ready>
  void await_dependencies(std::int32_t task, Ready&& ready) {
    const auto dependencies = schedule_.dependencies(TaskId{task});
    std::int32_t& passed = progress_[at(task)];
    while (at(passed) < dependencies.size() && ended_[index(dependencies[at(passed)])]) ++passed;
    if (at(passed) == dependencies.size()) {
      ready(task);
      return;
    }
    std::int32_t& first = first_waiting_[index(dependencies[at(passed)])];
    if (free_.empty()) {
      free_.push_back(static_cast<std::int32_t>(waiting_.size()));
      waiting_.emplace_back();
    }
    const std::int32_t place = free_.back();
    free_.pop_back();
    waiting_[at(place)] = {task, first};
    first = place;
  }

  const Schedule& schedule_;
  const EngineGraph& graph_;
  std::vector<std::int32_t> kinds_;
  std::vector<std::int32_t> progress_;       ///< below 0: lanes in which it is not first; then: dependencies that have ended
  std::vector<std::int32_t> first_waiting_;  ///< [task] head of its list in waiting_; -1: none
  std::vector<bool> ended_;
  std::vector<std::uint32_t> head_;  ///< [rank * lanes + lane] number of its tasks that have ended
  std::vector<Waiting> waiting_;
  std::vector<std::int32_t> free_;  ///< free entries in waiting_
};

/// The times of a schedule's tasks. @param graph, kinds  as of LaneOrder
TAWPIPE_INLINE Timeline run_in_lane_order(const Schedule& schedule, const EngineGraph& graph, std::vector<std::int32_t> kinds);

/// Engine tasks without duplicates: those with the same times and path occur once.
class TaskKinds {
 public:
  explicit TaskKinds(EngineGraph& graph) : graph_{graph} {}

  /// The index in the graph of tasks equal to this one.
  std::int32_t find(const EngineTask& task) {
    const std::uint64_t hash =
        (static_cast<std::uint64_t>(task.delay) + std::bit_cast<std::uint64_t>(task.bytes)) * 0xd1342543de82ef95U;
    return index_.find_or_add((hash ^ hash >> 32) + static_cast<std::uint32_t>(task.path),
                              [&](std::int32_t kind) {
                                const EngineTask& known = graph_.tasks[static_cast<std::size_t>(kind)];
                                return known.delay == task.delay && known.bytes == task.bytes && known.path == task.path;
                              },
                              [&] { graph_.tasks.push_back(task); });
  }

 private:
  EngineGraph& graph_;
  HashIndex index_;
};

}  // namespace tawpipe::detail

#if TAWPIPE_BODIES
namespace tawpipe::inline v0::detail {

TAWPIPE_INLINE Timeline run_in_lane_order(const Schedule& schedule, const EngineGraph& graph, std::vector<std::int32_t> kinds) {
  return EngineRun{graph, LaneOrder{schedule, graph, std::move(kinds)}}.run();
}

}  // namespace tawpipe::detail
#endif
