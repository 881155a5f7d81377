// This host's clock, for measurements and time limits of executors.
// Not: clocks of several hosts (execute/mpi/clock.hpp).
#pragma once

#include <chrono>
#include <cstdint>

namespace tawpipe::inline v0::detail {

/// Nanoseconds of this host's clock, which all its processes share.
inline std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tawpipe::detail
