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
#include "tawpipe/core/prefetch.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/simulate/engine.hpp"

namespace tawpipe::inline v0::detail {

/// The rows of a schedule's program that a task is in; a collective names none, nor does a task
/// whose kind does not tell.
struct LaneEnds {
  std::int32_t first = -1;
  std::int32_t other = -1;  ///< of a message, that of its receiver

  bool operator==(const LaneEnds&) const = default;
};

inline LaneEnds lane_ends(const Schedule& schedule, const Task& task) {
  if (is_collective(task.op)) return {};
  const auto row = [&](Rank rank, LaneId lane) {
    return number(rank) * static_cast<std::int32_t>(schedule.lanes().size()) + number(lane);
  };
  return {row(task.rank, task.lane), is_point_to_point(task.op) ? row(task.peer, task.peer_lane) : -1};
}

/// The order of a schedule, for EngineRun, read from the schedule itself: a list of each task's
/// successors would take as much memory again. A task first waits until it is first in its lanes,
/// then for one dependency after another: no more tasks than there are lanes wait for a dependency
/// at any time.
class LaneOrder {
 public:
  /// @param graph  whose tasks are the distinct kinds of task
  /// @param kinds  [task of the schedule] its kind
  /// @param ends   [kind] of all its tasks; empty: looked up in each task, which is slower
  LaneOrder(const Schedule& schedule, const EngineGraph& graph, std::vector<std::int32_t> kinds, std::vector<LaneEnds> ends = {})
      : schedule_{schedule},
        graph_{graph},
        ends_{std::move(ends)},
        states_(kinds.size()),
        ended_(kinds.size(), 0),
        rows_(schedule.parts().program.size()) {
    for (std::size_t t = 0; t < kinds.size(); ++t) states_[t].kind = kinds[t];
    ends_.resize(graph.tasks.size());
  }

  std::size_t tasks() const { return states_.size(); }
  const EngineTask& task(std::int32_t task) const { return graph_.tasks[at(states_[at(task)].kind)]; }
  std::int32_t kind(std::int32_t task) const { return states_[at(task)].kind; }

  template <class Ready>
  void begin(Ready&& ready) {
    const Rows<TaskId>& program = schedule_.parts().program;
    for (const TaskId task : program.items()) --states_[index(task)].progress;
    for (std::size_t t = 0; t < states_.size(); ++t) {
      if (states_[t].progress == 0) await_dependencies(static_cast<std::int32_t>(t), ready);  // not in any lane
    }
    for (std::size_t row = 0; row < program.size(); ++row) {
      rows_[row] = {program.begins()[row], program.begins()[row + 1]};
      for (int i = 0; i < 3; ++i) load_next(rows_[row]);
    }
    for (std::size_t row = 0; row < program.size(); ++row) {
      if (!program[row].empty()) become_first(number(program[row][0]), ready);
    }
  }

  /// Loads where the task is in its lanes.
  void look_ahead(std::int32_t task) const {
    const LaneEnds ends = ends_[at(states_[at(task)].kind)];
    const TaskId* const program = schedule_.parts().program.items().data();
    if (ends.first >= 0) prefetch(program + rows_[at(ends.first)].after);
    if (ends.other >= 0) prefetch(program + rows_[at(ends.other)].after);
  }

  template <class Ready>
  void end(std::int32_t task, Ready&& ready) {
    ended_[at(task)] = 1;
    if (const LaneEnds ends = ends_[at(states_[at(task)].kind)]; ends.first >= 0) {
      advance(at(ends.first), TaskId{task}, ready);
      if (ends.other >= 0) advance(at(ends.other), TaskId{task}, ready);
    } else {
      for_each_end(schedule_, TaskId{task}, [&](Rank rank, int lane) {
        advance(index(rank) * schedule_.lanes().size() + static_cast<std::size_t>(lane), TaskId{task}, ready);
      });
    }
    for (std::int32_t i = states_[at(task)].first_waiting; i >= 0;) {
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

  /// What a task's start looks at, in one place: each further place would be another cache miss.
  struct State {
    std::int32_t kind = 0;
    /// below 0: lanes in which it is not first; then: dependencies that have ended
    std::int32_t progress = 0;
    std::int32_t first_waiting = -1;  ///< head of its list in waiting_; -1: none
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  /// A row of the program: its first three tasks that have not ended, and where those after them
  /// are. None has a task if a folded schedule leaves out the rank.
  struct Row {
    std::uint32_t after = 0;
    std::uint32_t end = 0;
    TaskId first = none<TaskId>;
    TaskId second = none<TaskId>;
    TaskId third = none<TaskId>;
  };

  void load_next(Row& row) const {
    row.first = row.second;
    row.second = row.third;
    row.third = row.after < row.end ? schedule_.parts().program.items()[row.after++] : none<TaskId>;
  }

  /// The task of that row has ended.
  template <class Ready>
  void advance(std::size_t number_of_row, TaskId task, Ready&& ready) {
    Row& row = rows_[number_of_row];
    if (row.first != task) return;
    load_next(row);
    if (row.first == none<TaskId>) return;
    // Loads what the tasks after the next one need to become first.
    const Rows<TaskId>& dependencies = schedule_.parts().dependencies;
    if (row.third != none<TaskId>) prefetch(&dependencies.begins()[index(row.third)]);
    if (row.second != none<TaskId>) {
      prefetch(&states_[index(row.second)]);
      prefetch(dependencies.items().data() + dependencies.begins()[index(row.second)]);
    }
    become_first(number(row.first), ready);
  }

  /// The task has become first in one of its lanes.
  template <class Ready>
  void become_first(std::int32_t task, Ready&& ready) {
    if (++states_[at(task)].progress == 0) await_dependencies(task, ready);
  }

  /// Advances to the first dependency that has not ended.
  template <class Ready>
  void await_dependencies(std::int32_t task, Ready&& ready) {
    const auto dependencies = schedule_.dependencies(TaskId{task});
    std::int32_t& passed = states_[at(task)].progress;
    while (at(passed) < dependencies.size() && ended_[index(dependencies[at(passed)])] != 0) ++passed;
    if (at(passed) == dependencies.size()) {
      ready(task);
      return;
    }
    std::int32_t& first = states_[index(dependencies[at(passed)])].first_waiting;
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
  std::vector<LaneEnds> ends_;        ///< [kind]
  std::vector<State> states_;         ///< [task]
  std::vector<unsigned char> ended_;  ///< [task]: read faster than bits
  std::vector<Row> rows_;             ///< [rank * lanes + lane]
  std::vector<Waiting> waiting_;
  std::vector<std::int32_t> free_;  ///< free entries in waiting_
};

/// The times of a schedule's tasks. @param graph, kinds, ends  as for LaneOrder
TAWPIPE_INLINE Timeline run_in_lane_order(const Schedule& schedule, const EngineGraph& graph, std::vector<std::int32_t> kinds,
                                          std::vector<LaneEnds> ends);

/// What a task holds of its devices while it runs.
struct TaskHold {
  std::int32_t rank = -1;  ///< -1: a collective's members
  std::int32_t peer = -1;  ///< of a message, its receiver
  std::int32_t sms = 0;    ///< at each of them
  bool computes = false;   ///< a computation, which is slower while others hold SMs

  bool operator==(const TaskHold&) const = default;
};

/// @param sms  that it holds at each of its ranks
inline TaskHold hold_of(const Task& task, std::int32_t sms) {
  if (is_work(task.op)) return {.rank = number(task.rank), .computes = true};
  if (sms == 0) return {};
  if (is_collective(task.op)) return {.sms = sms};
  return {.rank = number(task.rank), .peer = is_point_to_point(task.op) ? number(task.peer) : -1, .sms = sms};
}

/// Engine tasks without duplicates: those with the same times, path, ends and holds occur once.
class TaskKinds {
 public:
  explicit TaskKinds(EngineGraph& graph) : graph_{graph} {}

  /// The index in the graph of tasks equal to this one. @param hold  of all tasks or of none
  std::int32_t find(const EngineTask& task, const LaneEnds& ends = {}, const TaskHold* hold = nullptr) {
    std::uint64_t hash =
        (static_cast<std::uint64_t>(task.delay) + std::bit_cast<std::uint64_t>(task.bytes)) * 0xd1342543de82ef95U;
    hash = (hash ^ hash >> 32) + static_cast<std::uint32_t>(task.path);
    hash = hash * 0xd1342543de82ef95U + (static_cast<std::uint64_t>(ends.first) << 32 | static_cast<std::uint32_t>(ends.other));
    return index_.find_or_add(
        hash ^ hash >> 32,
        [&](std::int32_t kind) {
          const auto k = static_cast<std::size_t>(kind);
          const EngineTask& known = graph_.tasks[k];
          return known.delay == task.delay && known.bytes == task.bytes && known.path == task.path && ends_[k] == ends &&
                 (hold == nullptr || holds_[k] == *hold);
        },
        [&] {
          graph_.tasks.push_back(task);
          ends_.push_back(ends);
          if (hold != nullptr) holds_.push_back(*hold);
        });
  }
  /// [kind] its ends; no more are found afterwards.
  std::vector<LaneEnds> take_ends() { return std::move(ends_); }
  /// [kind] its holds; no more are found afterwards.
  std::vector<TaskHold> take_holds() { return std::move(holds_); }

 private:
  EngineGraph& graph_;
  std::vector<LaneEnds> ends_;   ///< [kind]
  std::vector<TaskHold> holds_;  ///< [kind]
  HashIndex index_;
};

}  // namespace tawpipe::detail

#if TAWPIPE_BODIES
namespace tawpipe::inline v0::detail {

TAWPIPE_INLINE Timeline run_in_lane_order(const Schedule& schedule, const EngineGraph& graph, std::vector<std::int32_t> kinds,
                                          std::vector<LaneEnds> ends) {
  return EngineRun{graph, LaneOrder{schedule, graph, std::move(kinds), std::move(ends)}}.run();
}

}  // namespace tawpipe::detail
#endif
