// What the GPU tests check by, without doctest, which a machine with a GPU may not have.
// Not: tests.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "../../sim/leave.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/prepare.hpp"
#include "tawpipe/execute/cuda/session.hpp"

namespace gpu {

inline constexpr int skipped = 77;  ///< what ctest is told where there is no GPU

/// Counts what holds and prints what does not.
class Checks {
 public:
  void that(bool holds, const std::string& what, int line = __builtin_LINE()) {
    ++(holds ? held_ : failed_);
    if (!holds) std::printf("line %d: FAILED: %s\n", line, what.c_str());
    std::fflush(stdout);
  }
  /// Not more than all of the tolerance; false for NaN.
  void within(double share, const std::string& what, int line = __builtin_LINE()) {
    that(share <= 1, tawpipe::concat(what, ": ", share, " of the tolerance"), line);
  }
  /// The program's exit code.
  int finish() const {
    std::printf("%d held, %d failed\n", held_, failed_);
    return failed_ == 0 && held_ > 0 ? 0 : 1;
  }

 private:
  int held_ = 0;
  int failed_ = 0;
};

/// Runs `test(checks)` where there is a GPU. @return the program's exit code
template <class Test>
int run(Test&& test) {
  tawpipe::cuda::prepare_environment();
  try {
    tawpipe::cuda::visible_devices();
  } catch (const tawpipe::DeviceError& error) {
    std::printf("skipped: %s\n", error.what());
    return skipped;
  }
  Checks checks;
  try {
    test(checks);
  } catch (const tawpipe::DeviceError& error) {
    std::printf("FAILED: %s\n", error.what());
    std::fflush(stdout);
    tawpipe::sim::leave_within(5);  // a driver may wait for what was left on the device
    return 3;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
  return checks.finish();
}

}  // namespace gpu
