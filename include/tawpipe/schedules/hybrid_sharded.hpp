// Hybrid sharding: weights and gradients sharded inside each node and replicated over nodes; the
// optimizer likewise, or over all ranks.
// Not: weights sharded over all ranks (schedules/fully_sharded.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tawpipe/schedules/sharded.hpp"
#include "tawpipe/schedules/sharding_options.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

struct OnceOrEach {
  static constexpr std::array<std::string_view, 2> names{"once", "each"};
  static constexpr bool value(std::size_t i) { return i == 1; }
};

}  // namespace detail

struct HybridShardedOptions {
  bool reduce_each = false;
  int prefetch = 0;
  bool reshard = true;
  bool overlap = true;

  static std::vector<Field<HybridShardedOptions>> fields() {
    using Options = HybridShardedOptions;
    return {option_field<&Options::reduce_each, OptionNames<bool, detail::OnceOrEach>>(
                "reduce", "sum gradients over the nodes once an iteration, or for each microbatch"),
            detail::prefetch_field<&Options::prefetch>(), detail::reshard_field<&Options::reshard>(),
            detail::overlap_field<&Options::overlap>()};
  }
};

/// HSDP (MiCS with a node as partition group): all states sharded over a node's ranks, replicated
/// over the nodes. Units are gathered and gradients reduce-scattered inside the node; each rank's
/// slice is then all-reduced along its rail, one rank in each node, once an iteration (MiCS's
/// two-hop schedule) or in each round (PyTorch's, unless told otherwise). Model states 16 bytes *
/// parameters / the node's ranks.
///
/// A node sends 2W(D-1)/D of a layer of W bytes with D nodes, A times that with A rounds and
/// reduce_each. Nodes need not be equal: where their cuts differ, the pieces between all cuts are
/// all-reduced one by one.
/// @throws InputError  if an option is out of range.
/// Source: Zhang et al. 2022, MiCS, arXiv:2205.00119, section 3.4; Zhao et al. 2023,
/// arXiv:2304.11277, section 3.2.2.
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
                  .options = option_texts(options)});
}

struct HybridOptimizerOptions {
  int prefetch = 0;
  bool reshard = true;
  bool overlap = true;

  static std::vector<Field<HybridOptimizerOptions>> fields() {
    using Options = HybridOptimizerOptions;
    return {detail::prefetch_field<&Options::prefetch>(), detail::reshard_field<&Options::reshard>(),
            detail::overlap_field<&Options::overlap>()};
  }
};

/// Hybrid FSDP: weights and gradients as HSDP's, optimizer states sharded over all ranks. Once an
/// iteration the node's gradients are reduce-scattered along the rails, each rank updates its
/// shard, and new weights are all-gathered along the rails. Model states 4 bytes * parameters / the
/// node's ranks and 12 bytes * parameters / all ranks (in D unequal nodes: 12 bytes * parameters /
/// (D * the node's ranks)).
///
/// A node sends 2W(D-1)/D of a layer, as with HSDP's one all-reduce.
/// @throws InputError  if an option is out of range.
/// Source: Megatron-FSDP, outer_dp_sharding_strategy "optim" (docs.nvidia.com/megatron-core,
/// Megatron-FSDP).
inline Schedule hybrid_sharded_optimizer(const Workload& workload, const DeviceGroups& nodes,
                                         const HybridOptimizerOptions& options = {}) {
  return sharded(workload, nodes,
                 {.weights = Scope::node,
                  .gradients = Scope::node,
                  .optimizer = Scope::all,
                  .prefetch = options.prefetch,
                  .reshard = options.reshard,
                  .overlap = options.overlap,
                  .name = "hfsdp",
                  .options = option_texts(options)});
}

}  // namespace tawpipe::schedules
