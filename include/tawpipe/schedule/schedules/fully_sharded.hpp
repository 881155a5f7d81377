// Fully sharded data parallelism: all model states cut over all ranks (ZeRO-3, FSDP), also with a copy in each node (hpZ).
// Not: states cut inside the nodes alone (schedule/schedules/hybrid_sharded.hpp).
#pragma once

#include "tawpipe/schedule/schedules/sharded.hpp"

namespace tawpipe::inline v0::schedules {

struct FullyShardedOptions {
  bool two_level = false;     ///< collectives between nodes first, each piece once, then inside the nodes; otherwise one ring
  int prefetch = 0;           ///< units gathered ahead of the one computed; 0 gathers each when it is needed
  bool gather_first = false;  ///< a backward's next gather before the scatter of the last gradient, on one communicator
  bool reshard = true;        ///< off: a unit gathered for the forward stays until its backward
  bool overlap = true;        ///< off: communication takes the compute lane's time
};

/// FSDP (ZeRO-3): each unit (embedding, layer, head) is all-gathered before its forward and again before its backward, its
/// gradient reduce-scattered after. Model states 16 bytes * parameters / ranks a rank.
///
/// A node sends, of W bytes of a layer, with P ranks in D equal nodes and A rounds, 3AW(P-1)/P in one ring and 3AW(D-1)/D on
/// two levels; A fewer gathers without resharding.
/// @param nodes  for two-level collectives; they need not be equal
/// @throws InputError  if an option is out of range.
/// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054; Zhao et al. 2023, PyTorch FSDP, arXiv:2304.11277.
inline Schedule fully_sharded(const Workload& workload, const DeviceGroups& nodes, const FullyShardedOptions& options = {}) {
  return sharded(workload, nodes,
                 {.two_level = options.two_level,
                  .prefetch = options.prefetch,
                  .gather_first = options.gather_first,
                  .reshard = options.reshard,
                  .overlap = options.overlap,
                  .name = "fsdp",
                  .options = {{"collectives", options.two_level ? "two-level" : "flat"},
                              {"prefetch", std::to_string(options.prefetch)},
                              {"gather-first", detail::on_off(options.gather_first)},
                              {"reshard", detail::on_off(options.reshard)},
                              {"overlap", detail::on_off(options.overlap)}}});
}

struct NodeCopyOptions {
  bool two_level = true;  ///< off: the forward's gathers and the gradients go round one ring of all ranks
  int prefetch = 0;       ///< units gathered ahead of the one computed
  bool overlap = true;    ///< off: communication takes the compute lane's time
};

/// ZeRO++ hpZ: as FSDP, but each rank keeps, of what a forward gathers, its slice of a second copy of the weights in its node,
/// and backwards gather from that copy: inside the node. Model states 16 bytes * parameters / ranks, and 2 bytes * parameters
/// / the node's ranks for the copy (none where there is one node).
///
/// A node sends 2AW(D-1)/D of a layer on two levels, 2AW(P-1)/P in one ring (as DeepSpeed does without its other parts).
/// Not here: quantized weights and gradients (qwZ, qgZ).
/// @throws InputError  if an option is out of range.
/// Source: Wang et al. 2023, ZeRO++, arXiv:2306.10209, section 3.2.
inline Schedule node_copy_sharded(const Workload& workload, const DeviceGroups& nodes, const NodeCopyOptions& options = {}) {
  return sharded(workload, nodes,
                 {.node_copy = true,
                  .two_level = options.two_level,
                  .prefetch = options.prefetch,
                  .overlap = options.overlap,
                  .name = "hpz",
                  .options = {{"collectives", options.two_level ? "two-level" : "flat"},
                              {"prefetch", std::to_string(options.prefetch)},
                              {"overlap", detail::on_off(options.overlap)}}});
}

}  // namespace tawpipe::schedules
