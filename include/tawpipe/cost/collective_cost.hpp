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
  ring,  ///< a ring of the members in order; for broadcast and reduce the chain that starts or ends at the root
  tree,  ///< all-reduce only: chains inside the nodes, a binary tree between them, up and then down
  nvls,  ///< all-reduce only, in NCCL's table: NVSwitches sum, a tree between nodes; loads links as a ring
};

/// A collective, or another communication, as edges that are all busy at once.
struct CollectiveShape {
  std::vector<std::pair<Rank, Rank>> edges;  ///< sender, receiver (or host_memory); an edge listed twice carries twice
  std::vector<double> shares;                ///< [edge] of `fraction`; empty: 1 each
  double fraction = 1;                       ///< of the whole buffer, over each edge
  double latency_steps = 1;                  ///< sequential hops of a chunk's first byte, in edges

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

/// The number of passes round the ring: a sum is first scattered, then gathered.
constexpr int ring_passes(Op op) { return traits(op).pattern == Pattern::ring_sum ? 2 : 1; }
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

}  // namespace detail

namespace detail {

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
inline CollectiveShape collective_shape(Op op, Algorithm algorithm, std::span<const Rank> members, Rank root,
                                        const Cluster& cluster) {
  if (detail::has_tree(op) && algorithm == Algorithm::tree) return detail::tree_shape(members, cluster);
  if (is_all_pairs(op)) return detail::pairs_shape(members, {});
  CollectiveShape shape;
  const auto n = members.size();
  const bool rooted = is_rooted(op);
  const bool inwards = traits(op).pattern == Pattern::chain_to_root;
  const std::vector<Rank> ring = detail::ring_from(members, rooted ? root : members[0]);
  for (std::size_t i = 0; i + 1 < n; ++i) {
    shape.edges.emplace_back(inwards ? ring[i + 1] : ring[i], inwards ? ring[i] : ring[i + 1]);
  }
  if (!rooted && n > 1) shape.edges.emplace_back(ring[n - 1], ring[0]);
  const double passes = detail::ring_passes(op);
  const auto hops = static_cast<double>(n - 1);
  shape.fraction = rooted ? 1.0 : passes * hops / static_cast<double>(n);
  shape.latency_steps = passes * hops;
  return shape;
}

/// The edges of any communication: one for a pass or host copy, one each way for an exchange,
/// weighted by the sizes of its pairs for an all_to_all, and as above for other collectives.
inline CollectiveShape communication_shape(const Schedule& schedule, const Task& task, Algorithm all_reduce,
                                           const Cluster& cluster) {
  if (is_all_pairs(task.op) && task.split != none<SplitId>) {
    return detail::pairs_shape(schedule.group(task.group), schedule.pair_sizes(task.split));
  }
  if (is_collective(task.op)) {
    return collective_shape(task.op, all_reduce, schedule.group(task.group), task.rank, cluster);
  }
  CollectiveShape shape;
  const Pattern pattern = traits(task.op).pattern;
  if (pattern != Pattern::from_host) shape.edges.emplace_back(task.rank, is_host_copy(task.op) ? host_memory : task.peer);
  if (pattern == Pattern::from_host) shape.edges.emplace_back(host_memory, task.rank);
  if (pattern == Pattern::both_ways) shape.edges.emplace_back(task.peer, task.rank);
  return shape;
}

}  // namespace tawpipe
