// Data parallelism with whole weights on every rank: DDP, and ZeRO's first two stages.
// Not: sharded weights (schedules/fully_sharded.hpp, hybrid_sharded.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedules/detail/paired_layers.hpp"
#include "tawpipe/schedules/sharded.hpp"
#include "tawpipe/schedules/sharding_options.hpp"

namespace tawpipe::inline v0::schedules {

struct DataParallelOptions {
  bool two_level = false;
  bool overlap = true;
  /// on one rank: each layer's forward is one block with a layer's backward of the microbatch before
  /// (detail::paired_layers); only ddp has it
  bool pairs = false;

  static std::vector<Field<DataParallelOptions>> fields() {
    using Options = DataParallelOptions;
    return {detail::collectives_field<&Options::two_level>(), detail::overlap_field<&Options::overlap>()};
  }
};

namespace detail {

inline Schedule replicated_weights(const Workload& workload, const DeviceGroups& nodes, const DataParallelOptions& options,
                                   std::string name, Scope gradients, Scope optimizer) {
  return sharded(workload, nodes,
                 {.weights = Scope::replicated,
                  .gradients = gradients,
                  .optimizer = optimizer,
                  .two_level = options.two_level,
                  .overlap = options.overlap,
                  .name = std::move(name),
                  .options = option_texts(options)});
}

}  // namespace detail

/// DDP: everything replicated. Gradients accumulate on each rank and are all-reduced once an
/// iteration, in one bucket for each unit (first edge, layer, last edge), overlapping the last
/// microbatch's backward. Model states 16 bytes * parameters a rank.
///
/// A node sends, of W bytes of a layer, with P ranks in D equal nodes, 2W(P-1)/P in one ring and
/// 2W(D-1)/D on two levels (reduce-scatter in the node, all-reduce between nodes, all-gather in the
/// node).
/// Source: Li et al. 2020, PyTorch Distributed, arXiv:2006.15704.
/// @throws InputError  if microbatches are to run in pairs on more than one rank
inline Schedule data_parallel(const Workload& workload, const DeviceGroups& nodes, const DataParallelOptions& options = {}) {
  if (options.pairs) {
    if (nodes.ranks() > 1)
      throw InputError("ddp runs microbatches in pairs on one rank, which a mesh replicates (--layout mesh)");
    return detail::paired_layers("ddp", workload, option_texts(options));
  }
  return detail::replicated_weights(workload, nodes, options, "ddp", Scope::replicated, Scope::replicated);
}

/// ZeRO-1: as DDP, but optimizer states are sharded over all ranks. Gradients are reduce-scattered
/// once an iteration, each rank updates its shard, and new weights are all-gathered. Model states
/// 4 + 12 / ranks bytes * parameters a rank.
///
/// A node sends 2W(P-1)/P of a layer in one ring, 2W(D-1)/D on two levels: as DDP.
/// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5.1.
inline Schedule zero1(const Workload& workload, const DeviceGroups& nodes, const DataParallelOptions& options = {}) {
  return detail::replicated_weights(workload, nodes, options, "zero1", Scope::replicated, Scope::all);
}

/// ZeRO-2: gradients are sharded over all ranks, too, so each microbatch's are reduce-scattered.
/// Model states 2 + 14 / ranks bytes
/// * parameters a rank, plus the whole gradients of two units in transit.
///
/// A node sends, in A rounds, (A+1)W(P-1)/P of a layer in one ring, (A+1)W(D-1)/D on two levels.
/// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5.2; in each accumulation step:
/// DeepSpeed, runtime/engine.py, allreduce_gradients.
inline Schedule zero2(const Workload& workload, const DeviceGroups& nodes, const DataParallelOptions& options = {}) {
  return detail::replicated_weights(workload, nodes, options, "zero2", Scope::all, Scope::all);
}

}  // namespace tawpipe::schedules
