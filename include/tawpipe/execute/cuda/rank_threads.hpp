// Ranks that are threads of one process: their exchange of messages, and the first failure, which
// ends all of them.
// Not: ranks that are processes (rendezvous.hpp, execute/watch.hpp); what a rank does
// (session.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/watch.hpp"

namespace tawpipe::inline v0::cuda {

/// One for all ranks of a process, created before them. Its functions may be called by any of its
/// threads.
///
/// A thread cannot die by itself, so no watch is needed: a failure in one is an exception, and the
/// others learn of it from `failed()`, which is checked in every wait for another rank.
class RankThreads {
 public:
  /// @param stuck  called by `run` if a rank has failed and some have not ended that many seconds
  /// later: they wait in a driver for an event that will not come, and no call ends a thread.
  /// Empty: `run` waits for them
  /// @throws InputError  unless there is at least one rank.
  explicit RankThreads(int ranks, FailureCallback stuck = {}, double seconds = 8)
      : stuck_{std::move(stuck)}, seconds_{seconds}, said_(static_cast<std::size_t>(std::max(ranks, 0))), errors_(said_.size()) {
    if (ranks < 1) throw InputError(concat(ranks, " threads cannot run a schedule; it has at least one rank"));
  }
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int ranks() const { return static_cast<int>(said_.size()); }
  /// Becomes true when a rank fails and stays so: the others should stop waiting and throw.
  const std::atomic<bool>& failed() const { return failed_; }

  /// Exchanges a text from each rank. Collective: blocks until the last rank has called it. @return
  /// [rank]
  /// @throws DeviceError  if another rank fails or ends instead.
  std::vector<std::string> exchange(int rank, std::string own) {
    std::unique_lock lock{mutex_};
    said_[static_cast<std::size_t>(rank)] = std::move(own);
    const std::size_t round = round_;
    if (++spoken_ == said_.size()) {
      heard_ = said_;
      spoken_ = 0;
      ++round_;
      changed_.notify_all();
      return heard_;
    }
    changed_.wait(lock, [&] { return round_ != round || failed_.load() || ended_ > 0; });
    if (round_ != round) return heard_;  // unchanged until this rank calls again, too
    throw DeviceError(failed_.load() ? "another rank of this process has failed" : "another rank of this process has ended");
  }

  /// Tells all ranks that one has failed. The first to call it is reported.
  void fail(int rank, const std::string& why) {
    const std::lock_guard lock{mutex_};
    if (first_ < 0) {
      why_ = one_line(why);
      first_ = rank;
    }
    failed_.store(true);
    changed_.notify_all();
  }

  /// Calls `work(rank)` in a thread for each rank and returns when all have ended. Once.
  /// @throws InputError, DeviceError  the first failure, naming its rank; unchanged if all ranks
  /// fail alike.
  template <class Work>
  void run(Work&& work) {
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks(); ++rank) {
        threads.emplace_back([&, rank] {
          try {
            work(rank);
          } catch (...) {
            std::exception_ptr& error = errors_[static_cast<std::size_t>(rank)];
            error = std::current_exception();
            fail(rank, words(error));
          }
          const std::lock_guard lock{mutex_};
          ++ended_;
          changed_.notify_all();
        });
      }
      await_end();
    }
    if (first_ < 0) return;
    const auto alike = [&](const std::exception_ptr& one) { return one && words(one) == why_; };
    const bool together = std::all_of(errors_.begin(), errors_.end(), alike);
    const std::string message = together ? why_ : first_failure();
    if (is_input(errors_[static_cast<std::size_t>(first_)])) throw InputError(message);
    throw DeviceError(message);
  }

 private:
  void await_end() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return ended_ == said_.size() || failed_.load(); });
    const auto limit = std::chrono::duration<double>{seconds_};
    if (changed_.wait_for(lock, limit, [&] { return ended_ == said_.size(); }) || !stuck_) return;
    const std::string why = first_failure();
    lock.unlock();
    stuck_(why);
  }
  std::string first_failure() const {
    const std::string name = concat("rank ", first_, " ");
    return why_.starts_with(name) ? why_ : concat(name, "failed: ", why_);
  }
  static std::string words(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      return one_line(known.what());  // as stored by fail()
    } catch (...) {
      return "an exception of an unknown type";
    }
  }

  static bool is_input(const std::exception_ptr& error) {
    if (!error) return false;
    try {
      std::rethrow_exception(error);
    } catch (const InputError&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  FailureCallback stuck_;
  double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> said_;   ///< [rank] in this round
  std::vector<std::string> heard_;  ///< [rank] in the last
  std::size_t spoken_ = 0;
  std::size_t round_ = 0;
  std::size_t ended_ = 0;  ///< number of ranks
  int first_ = -1;         ///< the rank that failed first; -1: none
  std::string why_;        ///< its failure
  std::atomic<bool> failed_{false};
  std::vector<std::exception_ptr> errors_;  ///< [rank]
};

}  // namespace tawpipe::cuda
