// The input and result of an iteration, for every executor.
// Not: its execution (execute/executor.hpp names the executors).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// The program's reaction to a failed run: called with the reason, in one line, at most once,
/// possibly by a thread of the library. It returns soon and throws nothing. The program should then
/// end: its other threads may wait forever, in MPI, in NCCL, in a driver.
using FailureCallback = std::function<void(const std::string& why)>;

/// The input of an iteration in addition to its schedule.
struct Iteration {
  std::int64_t step = 1;  ///< of the optimizer, from 1; also names the data
  double learning_rate = 0;
  double gradient_clip = 0;  ///< largest norm of the whole gradient; 0: any
  /// Asked once by each process at the iteration's end: why the run should stop here, any number
  /// above 0, or 0 for no reason. All ranks are given the largest (IterationResult::stop), so a
  /// rank that was told to stop takes the others with it, after the same step. Empty: no reason.
  std::function<int()> stop{};
};

/// The result of an iteration.
struct IterationResult {
  std::vector<double> losses;   ///< [microbatch] before the update
  Timeline timeline;            ///< measured, from the iteration's start
  std::vector<SentBytes> sent;  ///< [rank]
  double gradient_norm = 0;     ///< before clipping; 0 if no clipping was requested
  /// the largest that Iteration::stop gave on any rank, the same on all
  int stop = 0;

  /// Mean over the microbatches.
  double loss() const {
    double sum = 0;
    for (const double one : losses) sum += one;
    return losses.empty() ? 0 : sum / static_cast<double>(losses.size());
  }
};

/// The message of an exception.
inline std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

/// Called with each gradient that an update uses, before clipping: the mean over the iteration's
/// microbatches.
template <class T>
using GradientObserver = std::function<void(ParameterRange, std::span<const T>)>;

}  // namespace tawpipe
