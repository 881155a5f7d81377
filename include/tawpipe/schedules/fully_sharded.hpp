// Fully sharded data parallelism: all model states sharded over all ranks (ZeRO-3, FSDP),
// optionally with a copy in each node (hpZ).
// Not: states sharded only inside nodes (schedules/hybrid_sharded.hpp).
#pragma once

#include <vector>

#include "tawpipe/schedules/sharded.hpp"
#include "tawpipe/schedules/sharding_options.hpp"

namespace tawpipe::inline v0::schedules {

struct FullyShardedOptions {
  bool two_level = false;
  int prefetch = 0;
  bool gather_first = false;
  bool reshard = true;
  bool overlap = true;
  bool by_unit = false;  ///< the states of each unit apart, as weights in host memory need; no option by name

  static std::vector<Field<FullyShardedOptions>> fields() {
    using Options = FullyShardedOptions;
    return {detail::collectives_field<&Options::two_level>(), detail::prefetch_field<&Options::prefetch>(),
            option_field<&Options::gather_first>(
                "gather-first", "on: one communicator, a backward's next gather before the scatter (BACKWARD_POST)"),
            detail::reshard_field<&Options::reshard>(), detail::overlap_field<&Options::overlap>()};
  }
};

/// FSDP (ZeRO-3): each unit (first edge, layer, last edge) is all-gathered before its forward and
/// again before its backward, its gradient reduce-scattered afterwards. Model states 16 bytes *
/// parameters / ranks a rank.
///
/// A node sends, of W bytes of a layer, with P ranks in D equal nodes and A rounds, 3AW(P-1)/P in
/// one ring and 3AW(D-1)/D on two levels; without resharding A gathers fewer.
/// @param nodes  for two-level collectives; they need not be equal
/// @throws InputError  if an option is out of range.
/// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054; Zhao et al. 2023, PyTorch FSDP,
/// arXiv:2304.11277.
inline Schedule fully_sharded(const Workload& workload, const DeviceGroups& nodes, const FullyShardedOptions& options = {}) {
  return sharded(workload, nodes,
                 {.two_level = options.two_level,
                  .prefetch = options.prefetch,
                  .gather_first = options.gather_first,
                  .reshard = options.reshard,
                  .overlap = options.overlap,
                  .by_unit = options.by_unit,
                  .name = "fsdp",
                  .options = option_texts(options)});
}

struct NodeCopyOptions {
  /// off: the forward's gathers and the gradients use one ring of all ranks
  bool two_level = true;
  int prefetch = 0;
  bool overlap = true;
  bool by_unit = false;  ///< as FullyShardedOptions::by_unit

  static std::vector<Field<NodeCopyOptions>> fields() {
    using Options = NodeCopyOptions;
    return {detail::collectives_field<&Options::two_level>(), detail::prefetch_field<&Options::prefetch>(),
            detail::overlap_field<&Options::overlap>()};
  }
};

/// ZeRO++ hpZ: as FSDP, but each rank keeps a slice of what a forward gathers, so that a node holds
/// a second copy of the weights, and backwards gather from that copy, inside the node. Model states
/// 16 bytes * parameters / ranks, and 2 bytes * parameters / the node's ranks for the copy (none if
/// there is one node).
///
/// A node sends 2AW(D-1)/D of a layer on two levels, 2AW(P-1)/P in one ring (as DeepSpeed does
/// without its other parts). Not here: quantized weights and gradients (qwZ, qgZ).
/// @throws InputError  if an option is out of range.
/// Source: Wang et al. 2023, ZeRO++, arXiv:2306.10209, section 3.2.
inline Schedule node_copy_sharded(const Workload& workload, const DeviceGroups& nodes, const NodeCopyOptions& options = {}) {
  return sharded(workload, nodes,
                 {.node_copy = true,
                  .two_level = options.two_level,
                  .prefetch = options.prefetch,
                  .overlap = options.overlap,
                  .by_unit = options.by_unit,
                  .name = "hpz",
                  .options = option_texts(options)});
}

}  // namespace tawpipe::schedules
