// A schedule lowered for one rank: the launches of each lane, its waits, and the signals to others.
// Not: a task's memory accesses (execute/dataflow.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// A task in a lane of one rank.
struct Launch {
  TaskId task = none<TaskId>;
  bool record = false;  ///< another lane of the rank waits for its end
  std::uint32_t waits_begin = 0;
  std::uint32_t waits_end = 0;
  std::uint32_t awaits_begin = 0;
  std::uint32_t awaits_end = 0;
  std::uint32_t notifies_begin = 0;
  std::uint32_t notifies_end = 0;
};

/// A wait that no message carries: for the end of a task in which no member of the waiting task
/// takes part.
struct Notice {
  TaskId task = none<TaskId>;  ///< awaited: the one that must end; given: the one that waits
  Rank rank = none<Rank>;      ///< the rank that signals, or is signalled
};

/// A wait between two tasks of one rank that shared memory requires, not the schedule.
struct ReuseWait {
  TaskId waiting = none<TaskId>;
  TaskId earlier = none<TaskId>;  ///< before `waiting` in the schedule's order
};

/// One rank's part of a schedule. All executors run it: lanes are in-order queues, and waits use
/// events.
class Program {
 public:
  int lanes() const { return static_cast<int>(launches_.size()); }
  std::span<const Launch> lane(int lane) const { return launches_[static_cast<std::size_t>(lane)]; }
  /// Tasks of the rank's other lanes that must end first; waits of earlier launches on the lane are
  /// not repeated.
  std::span<const TaskId> waits(const Launch& launch) const { return part(waits_, launch.waits_begin, launch.waits_end); }
  /// Signals from other ranks to wait for.
  std::span<const Notice> awaits(const Launch& launch) const { return part(awaits_, launch.awaits_begin, launch.awaits_end); }
  /// Signals to send to other ranks at the task's end.
  std::span<const Notice> notifies(const Launch& launch) const {
    return part(notifies_, launch.notifies_begin, launch.notifies_end);
  }
  /// Adds waits for other tasks of the rank. @pre each is in a lane of this program
  /// Complexity: O(launches + waits log waits).
  void add(std::vector<ReuseWait> more) {
    const auto by_waiting = [](const ReuseWait& a, const ReuseWait& b) { return a.waiting < b.waiting; };
    std::stable_sort(more.begin(), more.end(), by_waiting);
    std::vector<TaskId> awaited;
    for (const ReuseWait& wait : more) awaited.push_back(wait.earlier);
    std::sort(awaited.begin(), awaited.end());
    std::vector<TaskId> waits;
    for (auto& lane : launches_) {
      for (Launch& launch : lane) {
        const auto old = this->waits(launch);
        launch.waits_begin = static_cast<std::uint32_t>(waits.size());
        waits.insert(waits.end(), old.begin(), old.end());
        const auto found = std::equal_range(more.begin(), more.end(), ReuseWait{launch.task, {}}, by_waiting);
        for (auto wait = found.first; wait != found.second; ++wait) waits.push_back(wait->earlier);
        launch.waits_end = static_cast<std::uint32_t>(waits.size());
        launch.record = launch.record || std::binary_search(awaited.begin(), awaited.end(), launch.task);
      }
    }
    waits_ = std::move(waits);
  }

 private:
  friend class Lowering;
  template <class T>
  static std::span<const T> part(const std::vector<T>& all, std::uint32_t begin, std::uint32_t end) {
    return std::span<const T>{all}.subspan(begin, end - begin);
  }

  std::vector<std::vector<Launch>> launches_;  ///< [lane]
  std::vector<TaskId> waits_;
  std::vector<Notice> awaits_;
  std::vector<Notice> notifies_;
};

/// Lowers a schedule; common parts are computed once for all ranks.
class Lowering {
 public:
  explicit Lowering(const Schedule& schedule);

  /// Whether any rank waits for a task whose end no message tells it.
  bool has_notices() const { return !foreign_.empty(); }

  /// The program of one rank. Complexity: O(its tasks + dependencies + signals of all).
  Program lower(Rank rank) const;

 private:
  struct Foreign {
    TaskId waiting;
    TaskId waited_for;
    Rank told;
    Rank teller;
  };

  /// Whether a rank takes part in both tasks, so that the order of its own lanes and events is
  /// enough.
  bool meet(TaskId a, TaskId b) const {
    bool found = false;
    for_each_end(schedule_, a,
                 [&](Rank one, int) { for_each_end(schedule_, b, [&](Rank other, int) { found |= one == other; }); });
    return found;
  }

  void add_notices(Rank rank, TaskId task, Program& program) const;

  const Schedule& schedule_;
  std::vector<Foreign> foreign_;  ///< sorted by the waiting task
  std::vector<Foreign> by_end_;   ///< sorted by the task waited for
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE Program Lowering::lower(Rank rank) const {
  Program program;
  const auto lanes = schedule_.lanes().size();
  program.launches_.resize(lanes);
  std::vector<std::int32_t> place(schedule_.tasks().size(), -1);  // index in its lane on this rank
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const auto tasks = schedule_.program(rank, static_cast<int>(lane));
    for (std::size_t i = 0; i < tasks.size(); ++i) place[index(tasks[i])] = static_cast<std::int32_t>(i);
  }
  std::vector<char> recorded(schedule_.tasks().size(), 0);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    std::vector<std::int32_t> seen(lanes, -1);  // the last index of each lane that has been waited for
    for (const TaskId task : schedule_.program(rank, static_cast<int>(lane))) {
      Launch launch{.task = task};
      launch.waits_begin = static_cast<std::uint32_t>(program.waits_.size());
      for (const TaskId earlier : schedule_.dependencies(task)) {
        const std::int32_t at = place[index(earlier)];
        const auto from = static_cast<std::size_t>(at < 0 ? 0 : schedule_.lane_on(earlier, rank));
        if (at < 0 || from == lane || seen[from] >= at) continue;
        seen[from] = at;
        program.waits_.push_back(earlier);
        recorded[index(earlier)] = 1;
      }
      launch.waits_end = static_cast<std::uint32_t>(program.waits_.size());
      launch.awaits_begin = static_cast<std::uint32_t>(program.awaits_.size());
      launch.notifies_begin = static_cast<std::uint32_t>(program.notifies_.size());
      add_notices(rank, task, program);
      launch.awaits_end = static_cast<std::uint32_t>(program.awaits_.size());
      launch.notifies_end = static_cast<std::uint32_t>(program.notifies_.size());
      program.launches_[lane].push_back(launch);
    }
  }
  for (auto& lane : program.launches_) {
    for (Launch& launch : lane) launch.record = recorded[index(launch.task)] != 0;
  }
  return program;
}

TAWPIPE_INLINE Lowering::Lowering(const Schedule& schedule) : schedule_{schedule} {
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) {
      if (meet(id<TaskId>(t), earlier)) continue;
      foreign_.push_back({id<TaskId>(t), earlier, schedule.task(id<TaskId>(t)).rank, schedule.task(earlier).rank});
    }
  }
  by_end_ = foreign_;
  std::stable_sort(by_end_.begin(), by_end_.end(),
                   [](const Foreign& a, const Foreign& b) { return a.waited_for < b.waited_for; });
}

TAWPIPE_INLINE void Lowering::add_notices(Rank rank, TaskId task, Program& program) const {
  const auto first = [](const Foreign& foreign, TaskId t) { return foreign.waiting < t; };
  for (auto at = std::lower_bound(foreign_.begin(), foreign_.end(), task, first); at != foreign_.end(); ++at) {
    if (at->waiting != task) break;
    if (at->told == rank) program.awaits_.push_back({at->waited_for, at->teller});
  }
  const auto ended = [](const Foreign& foreign, TaskId t) { return foreign.waited_for < t; };
  for (auto at = std::lower_bound(by_end_.begin(), by_end_.end(), task, ended); at != by_end_.end(); ++at) {
    if (at->waited_for != task) break;
    if (at->teller == rank) program.notifies_.push_back({at->waiting, at->told});
  }
}

}  // namespace tawpipe
#endif
