// Calls on many threads, whose results do not depend on the number of threads.
// Not: a pool; threads end with the call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tawpipe/core/stop.hpp"

namespace tawpipe::inline v0::answers {

/// Calls run(i) for each i below `count` on that many threads. The first failure, by index among
/// those started, is thrown when all have ended.
template <class Run>
void on_threads(std::size_t threads, std::size_t count, Run&& run) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t failed = count;
  const StopTold* const told = tawpipe::detail::stop_told;
  const auto work = [&] {
    const StopScope inherited{told};
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        run(i);
      } catch (...) {
        const std::lock_guard lock{mutex};
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    for (std::size_t i = 1; i < std::min(threads, count); ++i) pool.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

/// All cores.
inline std::size_t all_threads() { return std::max(1U, std::thread::hardware_concurrency()); }

}  // namespace tawpipe::answers
