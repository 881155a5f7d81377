// A thread that monitors an iteration in progress, since the issuing thread may be blocked in a
// launch.
// Not: what is monitored (lane_progress.hpp); the watch over other ranks (execute/watch.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "tawpipe/execute/watch.hpp"

namespace tawpipe::inline v0::cuda {

/// Calls a function repeatedly while an iteration is in progress. Created, controlled and destroyed
/// by one thread.
class Observer {
 public:
  /// @param look    called by the observer's thread; an exception from it ends the monitoring
  /// @param failed  called with the reason by that thread; may be empty
  Observer(std::function<void()> look, FailureCallback failed) : look_{std::move(look)}, failed_{std::move(failed)} {}
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  ~Observer() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin() {
    {
      const std::lock_guard lock{mutex_};
      on_ = true;
    }
    if (!thread_.joinable()) thread_ = std::thread{[this] { run(); }};
    changed_.notify_all();
  }
  /// After its return `look` is no longer called.
  void end() {
    const std::lock_guard lock{mutex_};
    on_ = false;
  }
  /// @throws what `look` has thrown.
  void check() const {
    if (!threw_.load()) return;
    const std::lock_guard lock{mutex_};
    std::rethrow_exception(error_);
  }

 private:
  void run() {
    std::unique_lock lock{mutex_};
    while (!closing_) {
      changed_.wait(lock, [&] { return closing_ || on_; });
      if (closing_) return;
      try {
        look_();
      } catch (const std::exception& error) {
        error_ = std::current_exception();
        threw_.store(true);
        const std::string why = error.what();
        lock.unlock();
        if (failed_) failed_(why);
        return;
      }
      changed_.wait_for(lock, std::chrono::milliseconds{20}, [&] { return closing_; });
    }
  }

  std::function<void()> look_;
  FailureCallback failed_;
  mutable std::mutex mutex_;  ///< held during `look`
  std::condition_variable changed_;
  bool on_ = false;
  bool closing_ = false;
  std::atomic<bool> threw_{false};
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace tawpipe::cuda
