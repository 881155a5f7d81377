// Watches over all ranks of a run, separately from their data: when one dies, is silent, fails or
// stalls, all are told which rank and in which task. It does not print, handle signals or end
// processes: the program's callback decides what to do.
// Not: their connections (execute/mpi/session.hpp, execute/cuda/rendezvous.hpp); recovery: a run
// restarts from its checkpoint.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/detail/clock.hpp"
#include "tawpipe/execute/detail/socket.hpp"
#include "tawpipe/execute/iteration.hpp"

namespace tawpipe::inline v0 {

/// The time limits of the watch, and its callback.
struct WatchOptions {
  bool on = true;
  double silence_seconds = 5;  ///< a rank not heard of for this long has failed
  /// a task that runs, or waits for its other ends, for this long has stalled
  double task_seconds = 60;
  /// Called if another rank has failed, or if this one has and has not closed its watch 5 s later.
  /// Empty: executors throw where they can.
  FailureCallback failed{};
};

/// A connection to another rank.
struct WatchPeer {
  int rank = 0;
  detail::Connection connection;
};

/// One on each rank, with a thread each. Rank 0 has a TCP connection to every other rank. The
/// operating system closes a dead rank's, which is noticed at once; a rank that is stopped or whose
/// host is gone is noticed by its silence. Either way WatchOptions::failed is called in all
/// remaining processes, whatever their other threads wait for. Until it is closed the watch then
/// keeps reading its connections: closing one with unread data would discard what was just sent.
class Watch {
 public:
  /// @param peers  on rank 0: a connection to every other rank; on another: one to rank 0. Not used
  /// if the watch is off.
  Watch(int rank, std::vector<WatchPeer> peers, const WatchOptions& options) : options_{options}, rank_{rank} {
    connecting(0);
    if (!options_.on) return;
    for (WatchPeer& peer : peers) peers_.push_back(Peer{peer.rank, std::move(peer.connection), now(), {}, false});
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw DeviceError("no pipe can be made for the watch over ranks");
    wake_read_ = detail::Descriptor{ends[0]};
    wake_write_ = detail::Descriptor{ends[1]};
    sigset_t all;  // signals go to the program's own threads
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread{[this] { run(); }};
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { close(); }

  /// The current task of a lane. @param task  any number; `describe` gives its text
  void begin(int lane, std::int32_t task) {
    Activity& activity = activities_[static_cast<std::size_t>(lane)];
    activity.since.store(now(), std::memory_order_relaxed);
    activity.task.store(task, std::memory_order_release);
  }
  void end(int lane) { activities_[static_cast<std::size_t>(lane)].task.store(nothing, std::memory_order_release); }

  /// Names of tasks, `describe(lane, task)`, and which of them compute, `computes(task)`; called by
  /// the watch's thread. Empty: by number, and those of lane 0. @param place  text after the number of
  /// a rank: its place among the others
  void describe_by(std::function<std::string(int, std::int32_t)> describe, std::function<bool(std::int32_t)> computes,
                   std::function<std::string(int)> place = {}) {
    const std::lock_guard lock{mutex_};
    describe_ = std::move(describe);
    computes_ = std::move(computes);
    place_ = std::move(place);
  }

  /// Tasks begun from here on may wait at least this many seconds for ranks that connect; 0: none
  /// do.
  void connecting(double seconds) {
    task_limit_.store(static_cast<std::int64_t>(std::max(seconds, options_.task_seconds) * 1e9));
  }

  /// A failure here may be the consequence of another rank's end: gives the watch time to learn of
  /// that first.
  void await_news() const {
    if (thread_.joinable()) std::this_thread::sleep_for(std::chrono::seconds{2});
  }

  /// Tells all ranks that this one has failed, so that they end; this process itself must end
  /// within seconds.
  void fail(const std::string& why) {
    if (!thread_.joinable()) return;
    std::unique_lock lock{mutex_};
    if (failing_.load()) return;
    if (failure_.empty()) failure_ = concat(named(rank_), " failed: ", one_line(why));
    wake();
    announced_condition_.wait_for(lock, std::chrono::seconds{2}, [&] { return announced_; });
  }
  bool failed() const { return failing_.load(); }
  /// Whether waits for other ranks must throw: the run has failed, and no callback ends the
  /// program.
  bool must_throw() const { return failed() && !options_.failed; }
  /// The reason for the failure, once the run has failed.
  std::string why() {
    const std::lock_guard lock{mutex_};
    return why_;
  }

  /// Ends the watch normally: all ranks must have called it (a barrier), or have failed.
  void close() {
    if (!thread_.joinable()) return;
    closing_.store(true);
    wake();
    thread_.join();
  }

 private:
  static std::int64_t now() { return detail::now(); }
  static constexpr std::int32_t nothing = -1;
  static constexpr std::int64_t second = 1'000'000'000;
  enum Kind : std::uint32_t { heartbeat = 1, stalled, failure, goodbye };

  struct Activity {
    std::atomic<std::int32_t> task{nothing};
    std::atomic<std::int64_t> since{0};
  };
  struct Entry {  // part of a heartbeat
    std::int32_t lane;
    std::int32_t task;
    std::int64_t nanoseconds;  // duration so far
  };
  struct Peer {
    int rank = 0;
    detail::Connection connection;
    std::int64_t heard = 0;
    std::vector<Entry> entries;
    bool left = false;  // ended normally
  };

  void wake() const {
    const char byte = 0;
    const auto written = ::write(wake_write_.get(), &byte, 1);
    static_cast<void>(written);
  }

  // ---- the watch's own thread ----
  void run() {
    std::int64_t beat = 0;
    std::int64_t last = now();
    std::vector<pollfd> fds;
    while (!closing_.load()) {
      fds.assign(1, {wake_read_.get(), POLLIN, 0});
      for (const Peer& peer : peers_) {
        if (peer.connection.open()) fds.push_back({peer.connection.fd(), POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), 100);
      drain(fds[0]);
      const std::int64_t time = now();
      if (time - last > second) {  // this process itself was stopped: the others may have been, too
        paused_ = time - last;
        for (Peer& peer : peers_) peer.heard = time;
      }
      last = time;
      for (Peer& peer : peers_) listen(peer);
      if (own_failure() || failing_.load()) continue;
      if (time - beat >= second / 10) {
        beat = time;
        const std::string mine = own_activity();
        for (Peer& peer : peers_) peer.connection.send(heartbeat, mine);
        look_for_stalls(time);
      }
      for (const Peer& peer : peers_) {
        if (!failing_.load() && !peer.left && static_cast<double>(time - peer.heard) > options_.silence_seconds * 1e9) {
          stop(concat(name_of(peer.rank), " has been silent for ", (time - peer.heard) / second, " s; ", last_words(peer)), -1);
        }
      }
    }
    for (Peer& peer : peers_) peer.connection.send(goodbye, {});
  }

  static void drain(const pollfd& pipe) {
    char bytes[64];
    while ((pipe.revents & POLLIN) != 0 && ::read(pipe.fd, bytes, sizeof bytes) == sizeof bytes) {
    }
  }

  void listen(Peer& peer) {
    if (!peer.connection.open()) return;
    const bool alive = peer.connection.receive();
    detail::Frame frame;
    while (peer.connection.next(frame)) {
      peer.heard = now();
      if (frame.kind == heartbeat) {
        peer.entries.resize(frame.text.size() / sizeof(Entry));
        std::memcpy(peer.entries.data(), frame.text.data(), peer.entries.size() * sizeof(Entry));
      } else if (frame.kind == goodbye) {
        peer.left = true;
      } else if (frame.kind == failure) {
        stop(frame.text, peer.rank);
      } else if (frame.kind == stalled) {
        stop(frame.text + longest_computation(frame.text), -1);
      }
    }
    if (alive) return;
    peer.connection.close();
    if (!peer.left && !failing_.load()) {
      const bool own_fault = static_cast<double>(paused_) > options_.silence_seconds * 1e9;  // the others have given up on it
      stop(own_fault ? concat("it has been stopped for ", paused_ / second, " s, and the others have left")
                     : concat(name_of(peer.rank), " died; ", last_words(peer)),
           -1);
    }
    peer.left = true;
  }

  /// Whether this rank itself has failed: then the others have been told, and the program gets time
  /// to end.
  bool own_failure() {
    std::unique_lock lock{mutex_};
    if (failure_.empty() || told_) return false;
    if (!failing_.load()) {
      failing_.store(true);
      failed_at_ = now();
      why_ = failure_;
      for (Peer& peer : peers_) peer.connection.send(failure, failure_);
    }
    // Rank 0 stays until the others have gone: its end would be reported as a failure.
    const bool gone = std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.connection.open(); });
    announced_ = announced_ || rank_ != 0 || gone || now() - failed_at_ > second / 2;
    if (announced_) announced_condition_.notify_all();
    const bool late = now() - failed_at_ > 5 * second;
    const std::string why = failure_;
    lock.unlock();
    if (late) tell(why);
    return true;
  }

  void look_for_stalls(std::int64_t time) {
    for (std::size_t lane = 0; lane < activities_.size(); ++lane) {
      const std::int32_t task = activities_[lane].task.load(std::memory_order_acquire);
      const std::int64_t went_on = time - activities_[lane].since.load(std::memory_order_relaxed);
      if (task == nothing || went_on <= task_limit_.load()) continue;
      const std::string why = concat(name_of(rank_), " has stalled: ", words({static_cast<std::int32_t>(lane), task, went_on}));
      if (rank_ == 0) return stop(why + longest_computation(why), -1);
      if (!reported_) peers_.front().connection.send(stalled, why);  // rank 0 knows the others' tasks, and tells all
      if (reported_ && time - failed_at_ > 2 * second) stop(why, -1);
      if (!reported_) failed_at_ = time;
      reported_ = true;
      return;
    }
  }

  std::string own_activity() {
    std::string text;
    for (std::size_t lane = 0; lane < activities_.size(); ++lane) {
      const std::int32_t task = activities_[lane].task.load(std::memory_order_acquire);
      if (task == nothing) continue;
      const Entry entry{static_cast<std::int32_t>(lane), task, now() - activities_[lane].since.load(std::memory_order_relaxed)};
      text.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    }
    return text;
  }

  /// A rank with its place. @pre the mutex is held
  std::string named(int rank) const { return concat("rank ", rank, place_ ? place_(rank) : std::string{}); }
  std::string name_of(int rank) {
    const std::lock_guard lock{mutex_};
    return named(rank);
  }
  std::string task_of(const Entry& entry) {
    const std::lock_guard lock{mutex_};
    return describe_ ? describe_(entry.lane, entry.task) : concat("task ", entry.task, " on lane ", entry.lane);
  }
  std::string words(const Entry& entry) {
    const std::int64_t tenths = entry.nanoseconds / (second / 10);
    return concat(task_of(entry), " for ", tenths / 10, ".", tenths % 10, " s");
  }
  bool computes(const Entry& entry) {
    const std::lock_guard lock{mutex_};
    return computes_ ? computes_(entry.task) : entry.lane == 0;
  }
  std::string last_words(const Peer& peer) {
    std::vector<std::string> all;
    for (const Entry& entry : peer.entries) all.push_back(words(entry));
    return all.empty() ? "it was last heard of between iterations" : concat("last heard of in ", join(all, "; "));
  }
  /// On rank 0: the rank that has computed for longest, which may be what a reported wait is for;
  /// "" if that computation is itself reported.
  std::string longest_computation(std::string_view reported) {
    int who = rank_;
    Entry longest{0, nothing, 0};
    const auto consider = [&](int rank, const Entry& entry) {
      if (computes(entry) && entry.nanoseconds > longest.nanoseconds) {
        longest = entry;
        who = rank;
      }
    };
    const std::int32_t own = activities_[0].task.load(std::memory_order_acquire);
    if (own != nothing) consider(rank_, {0, own, now() - activities_[0].since.load(std::memory_order_relaxed)});
    for (const Peer& peer : peers_) {
      for (const Entry& entry : peer.entries) consider(peer.rank, entry);
    }
    if (longest.task == nothing || reported.find(task_of(longest)) != std::string_view::npos) return {};
    return concat("; at work for longest is ", name_of(who), ": ", words(longest));
  }

  /// Tells the others and this program. Does nothing if this rank itself has failed.
  /// @param told_by  a rank that already knows; -1: none
  void stop(const std::string& why, int told_by) {
    {
      const std::lock_guard lock{mutex_};
      if (failing_.exchange(true)) return;
      why_ = why;
      announced_ = true;  // nothing of this rank is to be reported any more
    }
    announced_condition_.notify_all();
    if (rank_ == 0) {
      for (Peer& peer : peers_) {
        if (peer.rank != told_by) peer.connection.send(failure, why);
      }
    }
    tell(why);
  }

  void tell(const std::string& why) {
    told_ = true;
    if (options_.failed) options_.failed(concat("rank ", rank_, " stops: ", one_line(why)));
  }

  WatchOptions options_;
  int rank_ = 0;
  std::vector<Peer> peers_;                 ///< on rank 0: all others; on another: rank 0
  std::array<Activity, 256> activities_{};  ///< [lane]
  detail::Descriptor wake_read_;
  detail::Descriptor wake_write_;
  std::mutex mutex_;
  std::function<std::string(int, std::int32_t)> describe_;
  std::function<std::string(int)> place_;
  std::function<bool(std::int32_t)> computes_;
  std::string failure_;  ///< of this rank itself
  std::string why_;      ///< why the run has failed
  bool told_ = false;    ///< whether the program was told
  bool announced_ = false;
  std::condition_variable announced_condition_;
  std::int64_t failed_at_ = 0;
  std::int64_t paused_ = 0;  ///< how long this process was last suspended
  std::atomic<std::int64_t> task_limit_{0};
  bool reported_ = false;  ///< whether a stalled task of this rank was reported
  std::atomic<bool> failing_{false};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace tawpipe
