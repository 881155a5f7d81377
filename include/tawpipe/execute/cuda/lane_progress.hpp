// The current task of each lane of a rank while its device runs an iteration, and whether it takes
// too long.
// Not: the watch over other ranks, which is informed (execute/watch.hpp); the wait itself
// (nccl_executor.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/execute/watch.hpp"
#include "tawpipe/schedule/describe.hpp"

namespace tawpipe::inline v0::cuda {

/// A task of a lane as text, with a collective's communicator: its ranks are candidates for not
/// having arrived.
inline std::string describe_on_lane(const Schedule& schedule, int lane, TaskId task) {
  std::string text =
      concat(tawpipe::detail::describe(schedule, task), " on lane ", schedule.lanes()[static_cast<std::size_t>(lane)]);
  const Task& facts = schedule.task(task);
  if (!is_collective(facts.op)) return text;
  std::vector<std::string> members;
  for (const Rank rank : schedule.group(facts.group)) members.push_back(std::to_string(number(rank)));
  return concat(text, " (communicator of ranks ", join(members, ", "), ")");
}

/// A device gives no sign of a task that never ends: a kernel waits for a peer, and the stream
/// stalls. All that can be seen is which tasks' ends have been reached. A task counts as begun when
/// its lane has reached it and all its dependencies on this rank have ended; a task that waits for
/// another lane is not at fault. Nor, usually, is a communication, which stalls because a
/// computation of another rank does: without a watch, which knows all ranks, it may take half as
/// long again, so that the other is named.
class LaneProgress {
 public:
  /// @param watch  is told the lanes' current tasks; null: none
  LaneProgress(const Schedule& schedule, const Program& program, Rank rank, Watch* watch)
      : schedule_{schedule},
        program_{program},
        rank_{rank},
        watch_{watch},
        lanes_(static_cast<std::size_t>(program.lanes())),
        ended_(schedule.tasks().size(), 0) {}

  /// Marks the start or end of an iteration. @param limit  seconds that a task may take; 0: no
  /// limit
  void begin(double limit) {
    limit_ = limit;
    ended_.assign(ended_.size(), 0);
    for (std::size_t l = 0; l < lanes_.size(); ++l) leave(l, 0);
  }
  /// @param now  nanoseconds. @param ended  `bool ended(TaskId)`: whether the task's end has been
  /// reached
  /// @throws DeviceError  naming the task, rank, lane and communicator if the limit has passed.
  template <class Ended>
  void look(std::int64_t now, Ended&& ended) {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      const auto launches = program_.lane(static_cast<int>(l));
      while (lanes_[l].place < launches.size() && ended(launches[lanes_[l].place].task)) {
        ended_[index(launches[lanes_[l].place].task)] = 1;
        leave(l, lanes_[l].place + 1);
      }
    }
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      const auto launches = program_.lane(static_cast<int>(l));
      if (lanes_[l].place == launches.size() || !begun(launches[lanes_[l].place])) continue;
      const TaskId task = launches[lanes_[l].place].task;
      if (lanes_[l].since < 0) {
        lanes_[l].since = now;
        if (watch_ != nullptr) watch_->begin(static_cast<int>(l), number(task));
      }
      const std::int64_t tenths = (now - lanes_[l].since) / 100'000'000;
      const double limit = watch_ == nullptr && !is_work(schedule_.task(task).op) ? 1.5 * limit_ : limit_;
      if (limit_ <= 0 || static_cast<double>(now - lanes_[l].since) <= limit * 1e9) continue;
      throw DeviceError(concat("rank ", number(rank_), " has stalled: ", describe_on_lane(schedule_, static_cast<int>(l), task),
                               " for ", tenths / 10, ".", tenths % 10, " s"));
    }
  }

 private:
  struct Lane {
    std::size_t place = 0;    ///< index of the first launch that has not ended
    std::int64_t since = -1;  ///< when it was first seen as begun; -1: not yet
  };

  void leave(std::size_t lane, std::size_t next) {
    if (watch_ != nullptr && lanes_[lane].since >= 0) watch_->end(static_cast<int>(lane));
    lanes_[lane] = {next, -1};
  }
  bool begun(const Launch& launch) const {
    for (const TaskId earlier : program_.waits(launch)) {
      if (ended_[index(earlier)] == 0) return false;
    }
    return true;
  }

  const Schedule& schedule_;
  const Program& program_;
  Rank rank_;
  double limit_ = 0;
  Watch* watch_;
  std::vector<Lane> lanes_;
  std::vector<char> ended_;  ///< [task] of this rank
};

}  // namespace tawpipe::cuda
