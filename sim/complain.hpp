// The line with which the command ends after an error.
// Not: the end of a run of several processes that has begun (leave.hpp).
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

/// An error whose line has been printed.
class SaidError : public InputError {
 public:
  using InputError::InputError;
};

/// Prints `tawpipe: message` on one line. Of several processes that mpirun started only the first
/// prints; the others wait for a moment, since mpirun kills it as soon as one of them has ended.
inline void complain(const std::string& message) {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    const char* const rank = std::getenv(variable);
    if (rank == nullptr || std::string_view{rank} == "0") continue;
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    return;
  }
  std::fprintf(stderr, "tawpipe: %s\n", one_line(message).c_str());
}

}  // namespace tawpipe::sim
