// A plan of sharded data parallelism: over which ranks each of the three model states is sharded,
// and when it is sent.
// Not: the named strategies (data_parallel.hpp, fully_sharded.hpp, hybrid_sharded.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::schedules {

/// Which ranks share one copy of a model state.
enum class Scope : std::uint8_t {
  replicated,  ///< each rank has its own
  node,        ///< the ranks of a node
  all,         ///< all ranks
};

/// Data parallelism by the scopes of weights, gradients and optimizer states (AMSP's view,
/// arXiv:2311.00257).
///
/// | weights, gradients, optimizer | name  |
/// |-------------------------------|-------|
/// | replicated, replicated, replicated | DDP |
/// | replicated, replicated, all   | ZeRO-1 |
/// | replicated, all, all          | ZeRO-2 |
/// | all, all, all                 | ZeRO-3, FSDP; with node_copy ZeRO++ hpZ |
/// | node, node, node              | HSDP, MiCS |
/// | node, node, all               | hybrid FSDP |
struct ShardingPlan {
  Scope weights = Scope::all;
  Scope gradients = Scope::all;
  Scope optimizer = Scope::all;
  /// weights over all ranks: each node keeps what a forward gathers, and backwards gather from that
  bool node_copy = false;
  /// gradients and optimizer in the node: sum over the nodes in each round, not once an iteration
  bool reduce_each = false;
  /// collectives over all ranks run between and inside nodes in turn; otherwise one ring
  bool two_level = false;
  /// units gathered ahead of the one computed; 0 gathers each when it is needed
  int prefetch = 0;
  /// a backward's next gather goes before the scatter of the last gradient, on one communicator
  bool gather_first = false;
  bool reshard = true;  ///< off: a unit gathered for the forward stays until its backward
  bool overlap = true;  ///< off: communication occupies the compute lane
  /// a buffer of states for each unit; otherwise, where weights are sharded over all ranks, one of all units
  bool by_unit = false;

  std::string name = "sharded";                                ///< name of the schedule
  std::vector<std::pair<std::string, std::string>> options{};  ///< recorded in the schedule

  /// @throws InputError  if a state is spread wider than the next (weights, gradients, optimizer),
  /// or an option is out of range.
  void check() const {
    if (prefetch < 0) throw InputError(concat(name, " needs prefetch=0 or more"));
    if (weights > gradients || gradients > optimizer) {
      throw InputError(concat(name, ": gradients are cut over at least as many ranks as weights, optimizer states as gradients"));
    }
    if (gather_first && (optimizer == Scope::replicated || prefetch > 0)) {
      throw InputError(concat(name, ": gather-first needs prefetch=0, and an optimizer that is cut over ranks"));
    }
    if (node_copy && weights != Scope::all) throw InputError(concat(name, ": a copy in the node needs weights cut over all"));
    if (reduce_each && (gradients != Scope::node || optimizer != Scope::node)) {
      throw InputError(concat(name, ": a sum in each round needs gradients and optimizer states cut in the node"));
    }
  }
};

}  // namespace tawpipe::schedules
