// The flags of the commands that execute a schedule, as text.
// Not: what they stand for (execution.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run_identity.hpp"

namespace tawpipe::sim {

/// The flags that say how a schedule is executed.
struct ExecutionRequest {
  std::string backend = "host";        ///< or "mpi", "cuda"
  std::int64_t gpus = 0;               ///< of a process without a launcher (cuda); 0: as many as there are ranks
  std::int64_t task_seconds = 60;      ///< after which a task that does not end is given up (mpi, cuda)
  std::int64_t connect_seconds = 600;  ///< the same of communicators that connect (cuda), and of MPI's start
  std::int64_t max_ctas = 0;           ///< most GPU processors of a communication; 0: 8 of a message, 16 of a collective (cuda)
  std::int64_t loss_chunk = 0;         ///< entries of the vocabulary at a time; 0: all
  bool try_products = false;           ///< matrix products' algorithms are found by trial (cuda)
  bool graph = false;                  ///< every step but the first is one CUDA graph (cuda)
  std::string cluster;                 ///< ranks of each node; "": one rank, or with MPI what the launcher says
  std::string schedule = "tawpipe";
  std::vector<std::string> options;  ///< key=value
  std::string dtype = "f32";
  std::string recompute = "none";
  std::string offload = "off";
  std::string pace;            ///< a speed such as "5GFLOPS"; "": as fast as it goes
  bool gradient_norm = false;  ///< gradients are clipped
  std::int64_t chaos_microseconds = 0;
  std::uint64_t chaos_seed = 0;
  RunIdentity identity;  ///< what else all ranks must have alike
  std::string problem;   ///< why this rank cannot begin, found before it met the others; empty: it can
};

}  // namespace tawpipe::sim
