// The lanes of an iteration that can proceed, for the threads that run them.
// Not: the tasks (execute/host/executor.hpp) nor the waits of a lane (execute/program.hpp).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "tawpipe/core/ids.hpp"

namespace tawpipe::inline v0::host {

/// A lane that must wait is parked, and given to any thread once the task that it waits for has
/// ended. So a few threads run many lanes, and one with work never gives up its core: a yielding
/// wait costs a time slice for each try if other programs want the core. Thread-safe except
/// reset(); memory written by a task is visible to those that waited for it.
class LaneQueue {
 public:
  explicit LaneQueue(std::size_t tasks) : ended_(tasks), arrived_(tasks), first_waiting_(tasks) {}

  /// Before an iteration: lanes 0 .. lanes - 1 can proceed, no task has ended.
  void reset(int lanes) {
    ended_.assign(ended_.size(), 0);
    arrived_.assign(arrived_.size(), 0);
    first_waiting_.assign(first_waiting_.size(), -1);
    next_waiting_.assign(static_cast<std::size_t>(lanes), -1);
    ready_.clear();
    for (int lane = 0; lane < lanes; ++lane) ready_.push_back(lane);
    unfinished_ = lanes;
    running_ = idle_ = 0;
    stopped_ = stuck_ = false;
  }

  /// A lane that can proceed; waits for one. -1: none will, since all have finished, they wait for
  /// each other, or stop() was called.
  int take() {
    std::unique_lock lock{mutex_};
    ++idle_;
    changed_.wait(lock, [&] { return !ready_.empty() || over(); });
    --idle_;
    if (over()) return -1;
    ++running_;
    const int lane = ready_.front();
    ready_.pop_front();
    return lane;
  }
  /// Whether the task has ended. If not, the lane is parked until it has; false also after stop().
  /// @pre the lane was taken
  bool has_ended(TaskId task, int lane) {
    const std::lock_guard lock{mutex_};
    if (stopped_) return false;
    if (ended_[index(task)] != 0) return true;
    put_aside(task, lane);
    return false;
  }
  /// Whether the lane is the last of the task's `ends` to arrive. If not, it is parked until the
  /// task has ended.
  bool arrives_last(TaskId task, std::size_t ends, int lane) {
    if (ends == 1) return true;
    const std::lock_guard lock{mutex_};
    if (++arrived_[index(task)] == ends) return true;
    put_aside(task, lane);
    return false;
  }
  void end(TaskId task) {
    const std::lock_guard lock{mutex_};
    ended_[index(task)] = 1;
    for (int lane = first_waiting_[index(task)]; lane >= 0; lane = next_waiting_[static_cast<std::size_t>(lane)]) {
      ready_.push_back(lane);
      if (idle_ > 0) changed_.notify_one();
    }
  }
  /// The lane that a thread took has finished.
  void leave() {
    const std::lock_guard lock{mutex_};
    --running_;
    --unfinished_;
    if (over()) changed_.notify_all();
  }
  /// No lane proceeds any more.
  void stop() {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    changed_.notify_all();
  }
  /// Whether the iteration ended because every remaining lane waited for another.
  bool stuck() const { return stuck_; }

 private:
  bool over() {
    stuck_ = stuck_ || (!stopped_ && unfinished_ > 0 && running_ == 0 && ready_.empty());
    return stopped_ || stuck_ || unfinished_ == 0;
  }
  void put_aside(TaskId task, int lane) {
    next_waiting_[static_cast<std::size_t>(lane)] = first_waiting_[index(task)];
    first_waiting_[index(task)] = lane;
    --running_;
    if (over()) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> ended_;             ///< [task]
  std::vector<std::uint32_t> arrived_;  ///< [task] ends that have arrived
  std::vector<int> first_waiting_;      ///< [task] the last lane parked for it; -1: none
  std::vector<int> next_waiting_;       ///< [lane] the previous lane parked for the same task
  std::deque<int> ready_;
  int unfinished_ = 0;  ///< lanes
  int running_ = 0;     ///< lanes that were taken
  int idle_ = 0;        ///< threads that wait
  bool stopped_ = false;
  bool stuck_ = false;
};

}  // namespace tawpipe::host
