// Hybrid sharding: weights and gradients cut inside each node and replicated over the nodes; the optimizer there, or over all.
// Not: weights cut over all ranks (schedule/schedules/fully_sharded.hpp).
#pragma once

#include "tawpipe/schedule/schedules/sharded.hpp"

namespace tawpipe::inline v0::schedules {

struct HybridShardedOptions {
  bool reduce_each = false;  ///< HSDP: sum gradients over the nodes in each round instead of once an iteration
  int prefetch = 0;          ///< units gathered ahead of the one computed; 0 gathers each when it is needed
  bool reshard = true;       ///< off: a unit gathered for the forward stays until its backward
  bool overlap = true;       ///< off: communication takes the compute lane's time
};

/// HSDP (MiCS with a node as partition group): all states cut over a node's ranks, replicated over the nodes. Units are
/// gathered and gradients reduce-scattered inside the node; each rank's slice is then all-reduced along its rail, one rank a
/// node, once an iteration (MiCS's two-hop schedule) or in each round (PyTorch's, unless told otherwise).
/// Model states 16 bytes * parameters / the node's ranks.
///
/// A node sends 2W(D-1)/D of a layer of W bytes with D nodes, A times that with A rounds and reduce_each.
/// Nodes need not be equal: where cuts differ, the pieces between all nodes' cuts are all-reduced one by one.
/// @throws InputError  if an option is out of range.
/// Source: Zhang et al. 2022, MiCS, arXiv:2205.00119, section 3.4; Zhao et al. 2023, arXiv:2304.11277, section 3.2.2.
inline Schedule hybrid_sharded(const Workload& workload, const DeviceGroups& nodes, const HybridShardedOptions& options = {}) {
  return sharded(workload, nodes,
                 {.weights = Scope::node,
                  .gradients = Scope::node,
                  .optimizer = Scope::node,
                  .reduce_each = options.reduce_each,
                  .prefetch = options.prefetch,
                  .reshard = options.reshard,
                  .overlap = options.overlap,
                  .name = "hsdp",
                  .options = {{"reduce", options.reduce_each ? "each" : "once"},
                              {"prefetch", std::to_string(options.prefetch)},
                              {"reshard", detail::on_off(options.reshard)},
                              {"overlap", detail::on_off(options.overlap)}}});
}

/// Hybrid FSDP: weights and gradients as HSDP's, optimizer states cut over all ranks. Once an iteration the node's gradients
/// are reduce-scattered along the rails, each rank updates its shard, and new weights are all-gathered along the rails.
/// Model states 4 bytes * parameters / the node's ranks and 12 bytes * parameters / all ranks (in D unequal nodes: 12 bytes *
/// parameters / (D * the node's ranks)).
///
/// A node sends 2W(D-1)/D of a layer, as HSDP's one all-reduce.
/// @param options  reduce_each must be off
/// @throws InputError  if an option is out of range.
/// Source: Megatron-FSDP, outer_dp_sharding_strategy "optim" (docs.nvidia.com/megatron-core, Megatron-FSDP).
inline Schedule hybrid_sharded_optimizer(const Workload& workload, const DeviceGroups& nodes,
                                         const HybridShardedOptions& options = {}) {
  return sharded(workload, nodes,
                 {.weights = Scope::node,
                  .gradients = Scope::node,
                  .optimizer = Scope::all,
                  .reduce_each = options.reduce_each,
                  .prefetch = options.prefetch,
                  .reshard = options.reshard,
                  .overlap = options.overlap,
                  .name = "hfsdp",
                  .options = {{"prefetch", std::to_string(options.prefetch)},
                              {"reshard", detail::on_off(options.reshard)},
                              {"overlap", detail::on_off(options.overlap)}}});
}

}  // namespace tawpipe::schedules
