// The lanes of one rank during an iteration: its communications, driven by one thread while another
// computes.
// Not: computation (execute/mpi/executor.hpp) nor the messages of one communication
// (execute/mpi/transfer.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/execute/mpi/session.hpp"
#include "tawpipe/execute/mpi/transfer.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::mpi {

/// When this rank began and ended its part of each task, by this host's clock.
struct RankTimes {
  std::vector<std::int64_t> start;  ///< [task] nanoseconds; 0: not this rank's
  std::vector<std::int64_t> end;    ///< [task]
};

/// Every lane is an in-order queue. Lane 0 belongs to the computing thread, which passes its
/// communications on and waits; all other lanes belong to the communicating thread, the only one to
/// call MPI. They share a mutex and two conditions; these also publish the memory written by tasks.
template <class T>
class Lanes {
 public:
  /// @param exchange  this rank's memory in a collective of a body
  Lanes(const ExecutedSchedule& executed, const Dataflow& flow, const Program& program, host::RankState<T>& state,
        Session& session, std::int64_t chunk, std::function<ExchangeArgs(const BodyTask&)> exchange)
      : schedule_{executed.schedule()},
        program_{program},
        session_{session},
        ended_(schedule_.tasks().size()),
        arrived_(schedule_.tasks().size()) {
    const Schedule& schedule = schedule_;
    const typename Transfer<T>::Setting setting{session.messages(), &state, std::move(exchange)};
    for (int lane = 0; lane < program.lanes(); ++lane) {
      lanes_.push_back({program.lane(lane), 0, false, Transfer<T>{setting}});
      for (const Launch& launch : program.lane(lane)) {
        if (lane > 0 && is_compute(schedule.task(launch.task).op)) {
          throw ScheduleError(concat(tawpipe::detail::describe(schedule, launch.task), " is on lane ",
                                     schedule.lanes()[static_cast<std::size_t>(lane)], "; only lane 0 computes"));
        }
        expects_notices_ = expects_notices_ || !program.awaits(launch).empty();
        if (is_compute(schedule.task(launch.task).op)) continue;
        plans_.try_emplace(launch.task, plan_of(executed, launch.task, flow.transfer(launch.task), state.rank(), chunk));
      }
    }
    if (expects_notices_) post_notice();
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes() {
    if (notice_request_ == MPI_REQUEST_NULL || session_.watch().failed()) return;
    MPI_Cancel(&notice_request_);
    MPI_Wait(&notice_request_, MPI_STATUS_IGNORE);
  }

  /// To be called before both threads start.
  void reset() {
    for (auto& flag : ended_) flag.store(false, std::memory_order_relaxed);
    for (auto& flag : arrived_) flag.store(false, std::memory_order_relaxed);
    for (Lane& lane : lanes_) {
      lane.next = 0;
      lane.active = false;
    }
    computed_ = 0;
    handed_over_ = 0;
    stopped_.store(false);
    sent_ = {};
    times.start.assign(ended_.size(), 0);
    times.end.assign(ended_.size(), 0);
  }

  // ---- for the computing thread ----

  /// Waits for the dependencies of `launch` on lane 0. @return false if the iteration is stopped
  bool await_ready(const Launch& launch) {
    std::unique_lock lock{mutex_};
    for_compute_.wait(lock, [&] { return stopped_.load() || ready(launch); });
    return !stopped_.load();
  }
  void begin_compute(const Launch& launch) {
    session_.watch().begin(0, number(launch.task));
    times.start[index(launch.task)] = now();
  }
  void end_compute(const Launch& launch) {
    times.end[index(launch.task)] = now();
    session_.watch().end(0);
    {
      const std::lock_guard lock{mutex_};
      ended_[index(launch.task)].store(true, std::memory_order_release);
      ++computed_;
    }
    for_communication_.notify_one();
  }
  /// Has the other thread execute launch number `place` of lane 0, a communication. @return false
  /// if the iteration is stopped
  bool communicate(std::size_t place) {
    const Launch& launch = lanes_[0].launches[place];
    std::unique_lock lock{mutex_};
    handed_over_ = place + 1;
    for_communication_.notify_one();
    for_compute_.wait(lock, [&] { return stopped_.load() || ended(launch.task); });
    if (stopped_.load()) return false;
    ++computed_;
    return true;
  }
  /// Ends the iteration early: both threads return.
  void stop() {
    {
      const std::lock_guard lock{mutex_};
      stopped_.store(true);
    }
    for_compute_.notify_all();
    for_communication_.notify_all();
  }

  // ---- for the communicating thread ----

  /// Runs until every lane has finished.
  void drive() {
    Backoff backoff;
    while (!stopped_.load()) {
      if (session_.watch().must_throw()) throw DeviceError(session_.watch().why());
      bool moved = false;
      bool active = !outgoing_.empty();
      for (std::size_t l = 0; l < lanes_.size(); ++l) {
        moved |= advance(l);
        active |= lanes_[l].active;
      }
      moved |= take_notices();
      moved |= end_outgoing();
      if (moved) {
        backoff.reset();
      } else if (std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.next == lane.launches.size(); }) &&
                 outgoing_.empty()) {
        return;
      } else if (active || expects_notices_) {
        backoff.idle();
      } else {
        // Nothing of this rank is in progress: only a computation's end can start more. MPI is
        // still polled now and then, since buffered data may still have to be sent.
        std::unique_lock lock{mutex_};
        for_communication_.wait_for(lock, std::chrono::milliseconds{1}, [&] { return stopped_.load() || can_launch(); });
        lock.unlock();
        look_after_mpi();
      }
    }
  }

  /// Bytes this rank has sent since `reset`.
  const SentBytes& sent() const { return sent_; }

  RankTimes times;

 private:
  struct Lane {
    std::span<const Launch> launches;
    std::size_t next = 0;
    bool active = false;  ///< launches[next] is in progress
    Transfer<T> transfer;
  };
  struct Outgoing {
    std::int32_t task;
    MPI_Request request;
  };

  static TransferPlan plan_of(const ExecutedSchedule& executed, TaskId id, const TransferFlow& flow, Rank rank,
                              std::int64_t chunk) {
    const Schedule& schedule = executed.schedule();
    const std::span<const BodyTask> members = executed.members(id);
    if (members.empty()) return transfer_plan(schedule, id, flow, rank, chunk);
    const auto group = schedule.group(schedule.task(id).group);
    const auto member = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
    return body_transfer_plan(schedule, id, flow, rank, chunk, members[member], member);
  }

  bool ended(TaskId task) const { return ended_[index(task)].load(std::memory_order_acquire); }
  bool ready(const Launch& launch) const {
    const auto waits = program_.waits(launch);
    const auto awaits = program_.awaits(launch);
    return std::all_of(waits.begin(), waits.end(), [&](TaskId task) { return ended(task); }) &&
           std::all_of(awaits.begin(), awaits.end(),
                       [&](const Notice& notice) { return arrived_[index(notice.task)].load(std::memory_order_acquire); });
  }
  /// Whether a waiting lane may proceed. The mutex is held.
  bool can_launch() const {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      const Lane& lane = lanes_[l];
      if (lane.active || lane.next == lane.launches.size()) continue;
      if (l == 0 ? lane.next < std::max(computed_, handed_over_) : ready(lane.launches[lane.next])) return true;
    }
    return false;
  }

  bool advance(std::size_t l) {
    Lane& lane = lanes_[l];
    if (lane.active) {
      const bool moved = lane.transfer.advance();
      if (lane.transfer.done()) finish(l);
      return moved;
    }
    if (lane.next == lane.launches.size()) return false;
    const Launch& launch = lane.launches[lane.next];
    if (l == 0) {
      std::size_t computed = 0;
      std::size_t handed_over = 0;
      {
        const std::lock_guard lock{mutex_};
        computed = computed_;
        handed_over = handed_over_;
      }
      if (lane.next < computed) {  // a computation that is over
        give_notices(launch);
        ++lane.next;
        return true;
      }
      if (lane.next >= handed_over) return false;
    } else if (!ready(launch)) {
      return false;
    }
    session_.watch().begin(static_cast<int>(l), number(launch.task));
    times.start[index(launch.task)] = now();
    lane.transfer.begin(plans_.at(launch.task));
    lane.active = true;
    if (lane.transfer.done()) finish(l);  // a group of one
    return true;
  }

  void finish(std::size_t l) {
    Lane& lane = lanes_[l];
    const Launch& launch = lane.launches[lane.next];
    const auto payload = static_cast<std::size_t>(sent_payload(schedule_.task(launch.task), Rank{session_.rank()}));
    sent_.by_payload[payload] += lane.transfer.finish();
    times.end[index(launch.task)] = now();
    session_.watch().end(static_cast<int>(l));
    give_notices(launch);
    lane.active = false;
    ++lane.next;
    if (l == 0 || launch.record) {
      {
        const std::lock_guard lock{mutex_};
        ended_[index(launch.task)].store(true, std::memory_order_release);
      }
      for_compute_.notify_one();
    }
  }

  // A task's end is signalled to a rank once, however many of its tasks wait for it.
  void give_notices(const Launch& launch) {
    const auto notices = program_.notifies(launch);
    for (std::size_t i = 0; i < notices.size(); ++i) {
      const auto same = [&](const Notice& other) { return other.rank == notices[i].rank; };
      if (std::any_of(notices.begin(), notices.begin() + static_cast<std::ptrdiff_t>(i), same)) continue;
      Outgoing& out = outgoing_.emplace_back(Outgoing{number(launch.task), MPI_REQUEST_NULL});
      check(MPI_Isend(&out.task, 1, MPI_INT32_T, number(notices[i].rank), 0, session_.notices(), &out.request), "MPI_Isend");
    }
  }
  bool end_outgoing() {
    bool moved = false;
    while (!outgoing_.empty()) {
      int sent = 0;
      check(MPI_Test(&outgoing_.front().request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (sent == 0) break;
      outgoing_.pop_front();
      moved = true;
    }
    return moved;
  }
  void post_notice() {
    check(MPI_Irecv(&notice_, 1, MPI_INT32_T, MPI_ANY_SOURCE, 0, session_.notices(), &notice_request_), "MPI_Irecv");
  }
  bool take_notices() {
    bool moved = false;
    while (expects_notices_) {
      int came = 0;
      check(MPI_Test(&notice_request_, &came, MPI_STATUS_IGNORE), "MPI_Test");
      if (came == 0) break;
      {
        const std::lock_guard lock{mutex_};
        arrived_[static_cast<std::size_t>(notice_)].store(true, std::memory_order_release);
      }
      for_compute_.notify_one();
      post_notice();
      moved = true;
    }
    return moved;
  }
  void look_after_mpi() const {
    int flag = 0;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, session_.messages(), &flag, MPI_STATUS_IGNORE), "MPI_Iprobe");
  }

  const Schedule& schedule_;
  const Program& program_;
  std::map<TaskId, TransferPlan> plans_;  ///< for the communications in which the rank takes part
  Session& session_;
  std::vector<Lane> lanes_;
  /// [task] of this rank; set for those that another lane waits for
  std::vector<std::atomic<bool>> ended_;
  std::vector<std::atomic<bool>> arrived_;  ///< [task] of another rank: its signal has arrived
  SentBytes sent_;
  std::deque<Outgoing> outgoing_;
  bool expects_notices_ = false;
  std::int32_t notice_ = 0;
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  std::mutex mutex_;
  std::condition_variable for_compute_;
  std::condition_variable for_communication_;
  std::size_t computed_ = 0;     ///< launches of lane 0 that are over
  std::size_t handed_over_ = 0;  ///< launches of lane 0 up to the next communication
  std::atomic<bool> stopped_{false};
};

}  // namespace tawpipe::mpi
