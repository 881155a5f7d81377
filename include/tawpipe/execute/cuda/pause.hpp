// How long to sleep between two looks at something that has no notification.
// Not: what is looked at.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace tawpipe::inline v0::cuda {

/// Sleeps a thousandth of the time waited so far, so that what ends is seen that little late, and
/// who waits for long takes no core; at least `shortest`, at most a millisecond.
inline void pause_after(std::chrono::steady_clock::duration waited, std::chrono::microseconds shortest) {
  using std::chrono::microseconds;
  std::this_thread::sleep_for(std::clamp(std::chrono::duration_cast<microseconds>(waited / 1000), shortest, microseconds{1000}));
}

}  // namespace tawpipe::cuda
