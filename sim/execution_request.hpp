// The flags of the commands that execute a schedule, as text.
// Not: their meaning (execution.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mesh_request.hpp"
#include "run_identity.hpp"

namespace tawpipe::sim {

/// The flags for executing a schedule, and the mesh around it.
struct ExecutionRequest : MeshRequest {
  std::string backend = "host";      ///< or "mpi", "cuda"
  std::int64_t gpus = 0;             ///< for a process without a launcher (cuda); 0: as many as ranks
  std::int64_t task_seconds = 60;    ///< limit for a task (mpi, cuda)
  std::int64_t connect_seconds = 0;  ///< the same for communicators that connect (cuda), and of MPI's start; 0: the default
  std::int64_t max_ctas = 0;         ///< maximum of SMs for a communication; 0: 8 for a message, 16 for a collective (cuda)
  bool zero_cta = false;             ///< all-gathers go through windows, where NCCL can move them without SMs (cuda)
  std::int64_t loss_chunk = 0;       ///< entries of the vocabulary at a time; 0: all
  bool try_products = false;         ///< matrix products' algorithms are found by trial (cuda)
  bool graph = false;                ///< every step but the first is one CUDA graph (cuda)
  std::string inter_node;            ///< of each adapter, in place of the cluster's; "": as it is
  std::string cluster;               ///< ranks of each node; "": one rank, or with MPI from the launcher
  std::string schedule = "tawpipe";
  std::vector<std::string> options;  ///< key=value
  std::string dtype = "f32";
  std::string recompute = "none";
  std::string offload = "off";
  std::string pace;            ///< a speed such as "5GFLOPS"; "": as fast as possible
  bool gradient_norm = false;  ///< gradients are clipped
  std::int64_t chaos_microseconds = 0;
  std::uint64_t chaos_seed = 0;
  RunIdentity identity;  ///< further values that must be equal on all ranks
  std::string problem;   ///< why this rank cannot start, known before the ranks meet; empty: it can

  /// A launcher starts all processes of MPI at once, or not at all; communicators are also compiled for
  /// and tuned while they connect.
  double connect_limit() const {
    return connect_seconds > 0 ? static_cast<double>(connect_seconds) : backend == "mpi" ? 120 : 600;
  }
};

}  // namespace tawpipe::sim
