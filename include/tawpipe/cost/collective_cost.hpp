// Communications as NCCL runs them: the edges between ranks that they use, how much of the buffer
// each edge carries, and the number of latency steps.
// Not: the links under those edges (topology/cluster.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// The algorithm of a collective.
enum class Algorithm : std::uint8_t {
  /// a ring of the members in order; for broadcast and reduce the chain that starts or ends at the
  /// root
  ring,
  tree,  ///< all-reduce only: chains inside the nodes, a binary tree between them, up and then down
  /// all-reduce only, in NCCL's table: NVSwitches sum, a tree between nodes; loads links as a ring
  nvls,
};

/// A collective, or another communication, as edges that are all busy at once.
struct CollectiveShape {
  /// sender, receiver (or host_memory); an edge listed twice carries twice
  std::vector<std::pair<Rank, Rank>> edges;
  std::vector<double> shares = {};  ///< [edge] of `fraction`; empty: 1 each
  double fraction = 1;              ///< of the whole buffer, over each edge
  double latency_steps = 1;         ///< sequential hops of a chunk's first byte, in edges

  double share(std::size_t edge) const { return shares.empty() ? 1 : shares[edge]; }
  /// The time of those hops if the edges take `of_edges` seconds together: each takes the mean.
  Duration latency(double of_edges) const {
    return edges.empty() ? Duration{} : seconds(of_edges / static_cast<double>(edges.size()) * latency_steps);
  }
};

namespace detail {

/// The members in ring order from `root` on.
inline std::vector<Rank> ring_from(std::span<const Rank> members, Rank root) {
  std::size_t start = 0;
  while (start + 1 < members.size() && members[start] != root) ++start;
  std::vector<Rank> ring;
  for (std::size_t i = 0; i < members.size(); ++i) ring.push_back(members[(start + i) % members.size()]);
  return ring;
}

/// The number of passes round the ring or along the chain: a sum is first scattered, then gathered.
constexpr int ring_passes(Op op) {
  switch (traits(op).pattern) {
    case Pattern::ring_sum:
      return 2;
    case Pattern::chain_from_root:
    case Pattern::chain_to_root:
    case Pattern::ring_gather:
    case Pattern::ring_scatter:
      return 1;
    case Pattern::none:
    case Pattern::one_way:
    case Pattern::both_ways:
    case Pattern::all_pairs:
    case Pattern::to_host:
    case Pattern::from_host:
      break;
  }
  return 0;
}
/// Whether there is a tree algorithm.
constexpr bool has_tree(Op op) { return traits(op).pattern == Pattern::ring_sum; }

inline CollectiveShape tree_shape(std::span<const Rank> members, const Cluster& cluster) {
  CollectiveShape shape;
  std::vector<Rank> heads;
  int longest_chain = 0;
  int chain = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == 0 || !cluster.same_node(members[i - 1], members[i])) {
      heads.push_back(members[i]);
      chain = 0;
    } else {
      shape.edges.emplace_back(members[i], members[i - 1]);
      shape.edges.emplace_back(members[i - 1], members[i]);
      longest_chain = std::max(longest_chain, ++chain);
    }
  }
  int depth = 0;
  for (std::size_t i = 1; i < heads.size(); ++i) {
    shape.edges.emplace_back(heads[i], heads[(i - 1) / 2]);
    shape.edges.emplace_back(heads[(i - 1) / 2], heads[i]);
    if ((i & (i + 1)) == 0) ++depth;
  }
  shape.latency_steps = 2.0 * (longest_chain + depth);
  return shape;
}

/// A chain of the members in order that starts or, inwards, ends at the root.
inline CollectiveShape chain_shape(std::span<const Rank> members, Rank root, bool inwards) {
  CollectiveShape shape;
  const std::vector<Rank> chain = ring_from(members, root);
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    shape.edges.emplace_back(inwards ? chain[i + 1] : chain[i], inwards ? chain[i] : chain[i + 1]);
  }
  shape.latency_steps = static_cast<double>(shape.edges.size());
  return shape;
}

/// A ring of the members in order, with as many passes of each part round it.
inline CollectiveShape ring_shape(std::span<const Rank> members, int passes) {
  CollectiveShape shape;
  const std::size_t n = members.size();
  for (std::size_t i = 0; i < n && n > 1; ++i) shape.edges.emplace_back(members[i], members[(i + 1) % n]);
  shape.latency_steps = passes * static_cast<double>(n - 1);
  shape.fraction = shape.latency_steps / static_cast<double>(n);
  return shape;
}

/// Each pair's own edge, all busy at once. @param sizes  [from * members + to] in any unit; empty:
/// all equal
inline CollectiveShape pairs_shape(std::span<const Rank> members, std::span<const Bytes> sizes) {
  CollectiveShape shape;
  const std::size_t n = members.size();
  std::int64_t most = 0;  // of one member, including its own block
  for (std::size_t from = 0; from * n < sizes.size(); ++from) {
    std::int64_t sum = 0;
    for (const Bytes size : sizes.subspan(from * n, n)) sum += size.value();
    most = std::max(most, sum);
  }
  for (std::size_t pair = 0; pair < n * n; ++pair) {
    if (pair / n == pair % n || (!sizes.empty() && sizes[pair] == Bytes{})) continue;
    shape.edges.emplace_back(members[pair / n], members[pair % n]);
    if (!sizes.empty()) shape.shares.push_back(static_cast<double>(sizes[pair].value()) / static_cast<double>(most));
  }
  shape.fraction = sizes.empty() ? 1.0 / static_cast<double>(n) : 1.0;
  return shape;
}

}  // namespace detail

/// The edges of a collective among `members`, which are in ring order (node by node).
///
/// Per edge, for a whole buffer of B bytes among n members: all_gather and reduce_scatter B(n-1)/n
/// over each of n edges; all_reduce 2B(n-1)/n; broadcast and reduce B over each of n-1 edges;
/// all_to_all B/n over each of n(n-1).
/// Source: NCCL 2.28 graph/tuning.cc (steps per collective); Thakur et al. 2005 for the ring
/// volumes.
/// @pre op is a collective
inline CollectiveShape collective_shape(Op op, Algorithm algorithm, std::span<const Rank> members, Rank root,
                                        const Cluster& cluster) {
  switch (traits(op).pattern) {
    case Pattern::chain_from_root:
      return detail::chain_shape(members, root, false);
    case Pattern::chain_to_root:
      return detail::chain_shape(members, root, true);
    case Pattern::ring_gather:
    case Pattern::ring_scatter:
      return detail::ring_shape(members, detail::ring_passes(op));
    case Pattern::ring_sum:
      if (algorithm == Algorithm::tree) return detail::tree_shape(members, cluster);
      return detail::ring_shape(members, detail::ring_passes(op));
    case Pattern::all_pairs:
      return detail::pairs_shape(members, {});
    case Pattern::none:
    case Pattern::one_way:
    case Pattern::both_ways:
    case Pattern::to_host:
    case Pattern::from_host:
      break;
  }
  return {};
}

/// The edges of any communication: one for a pass or host copy, one each way for an exchange,
/// weighted by the sizes of its pairs for an all_to_all, and as above for other collectives.
inline CollectiveShape communication_shape(const Schedule& schedule, const Task& task, Algorithm all_reduce,
                                           const Cluster& cluster) {
  switch (traits(task.op).pattern) {
    case Pattern::one_way:
      return {.edges = {{task.rank, task.peer}}};
    case Pattern::both_ways:
      return {.edges = {{task.rank, task.peer}, {task.peer, task.rank}}};
    case Pattern::to_host:
      return {.edges = {{task.rank, host_memory}}};
    case Pattern::from_host:
      return {.edges = {{host_memory, task.rank}}};
    case Pattern::all_pairs:
      if (task.split != none<SplitId>) {
        return detail::pairs_shape(schedule.group(task.group), schedule.pair_sizes(task.split));
      }
      [[fallthrough]];
    case Pattern::chain_from_root:
    case Pattern::chain_to_root:
    case Pattern::ring_gather:
    case Pattern::ring_scatter:
    case Pattern::ring_sum:
      return collective_shape(task.op, all_reduce, schedule.group(task.group), task.rank, cluster);
    case Pattern::none:
      break;
  }
  return {};
}

}  // namespace tawpipe
