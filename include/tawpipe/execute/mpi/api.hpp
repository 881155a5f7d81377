// The interface to MPI: its C functions, with failures as exceptions.
// Not: what is sent (execute/mpi/transfer.hpp).
#pragma once

// Open MPI and MPICH would include C++ classes that the MPI standard removed.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <thread>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/detail/clock.hpp"

namespace tawpipe::inline v0::mpi {

/// @param call  the function's name. @throws DeviceError  with MPI's message, unless `status` is
/// success.
inline void check(int status, std::string_view call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw DeviceError(concat(call, " failed: ", one_line(std::string(text.data(), static_cast<std::size_t>(length)))));
}

/// Waiting between two polls of MPI without progress: first yield, then sleep, longer and longer.
/// With more ranks than cores a rank that only polls takes time from those that compute.
class Backoff {
 public:
  /// @param longest  of one sleep
  explicit Backoff(std::chrono::microseconds longest = std::chrono::microseconds{100}) : longest_{longest} {}

  void idle() {
    if (++looks_ <= 8) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    if (sleep_ < longest_) sleep_ *= 2;
  }
  void reset() {
    looks_ = 0;
    sleep_ = shortest;
  }

 private:
  static constexpr std::chrono::microseconds shortest{10};
  std::chrono::microseconds longest_;
  std::chrono::microseconds sleep_ = shortest;
  int looks_ = 0;
};

/// Waits for a request without occupying a core.
inline void wait(MPI_Request& request) {
  Backoff backoff;
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    backoff.idle();
  }
}

/// Waits for all ranks without occupying a core.
inline void barrier(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  wait(request);
}

using tawpipe::detail::now;

}  // namespace tawpipe::mpi
