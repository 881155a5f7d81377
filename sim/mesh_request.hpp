// The mesh around a schedule that is executed and what its ranks share, as flags and resolved.
// Not: a job that is predicted (search/job_fields.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/state_sharding.hpp"

namespace tawpipe::sim {

/// The flags as given.
struct MeshRequest {
  Mesh mesh;
  int expert_parallel = 1;      ///< devices among which a layer's experts are divided
  std::string layout = "tcsd";  ///< the order of its axes
  std::string sequence_parallel = "on";
  std::string context_exchange = "all-gather";  ///< or all-to-all+ring[:INNER] and others
  std::string shard_states = "optimizer";
  std::string reshard = "auto";
  std::string overlap_gradients = "off";
  std::string overlap_gathers = "off";
  std::int64_t bucket = automatic_bucket;  ///< parameters
};

/// What they say. Members are as in Composition.
struct MeshChoice {
  Mesh mesh;  ///< without the schedule's own ranks (Mesh::over)
  bool sequence_parallel = true;
  StateSharding sharding = StateSharding::optimizer;
  Reshard reshard = Reshard::automatic;
  bool overlap_gradients = false;
  bool overlap_gathers = false;
  std::int64_t bucket = automatic_bucket;
};

/// @throws InputError  naming the flag that is not understood.
MeshChoice resolve_mesh(const MeshRequest& request);

/// @throws InputError  if model states are to be shared out over devices of which none hold the same.
void refuse_idle_sharding(StateSharding sharding, const Mesh& mesh);

}  // namespace tawpipe::sim
