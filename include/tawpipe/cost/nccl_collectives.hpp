// Collectives as NCCL's tuner would run them: the fastest of its algorithms and protocols for the
// group and the size, with as many channels as the nodes have adapters.
// Not: the figures that decide (cost/nccl_table.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/nccl_table.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// [channel][place] the members in each channel's ring order: as many channels as each node has
/// adapters, each leaving a node through a different adapter. One channel inside a node.
TAWPIPE_INLINE std::vector<std::vector<Rank>> channel_orders(std::span<const Rank> members, const Cluster& cluster);

/// Bytes a second of a single flow.
inline double alone_on(const std::vector<LinkLoad>& loads, const Cluster& cluster) {
  double rate = std::numeric_limits<double>::infinity();
  for (const LinkLoad& load : loads) rate = std::min(rate, cluster.link(load.link).bandwidth.value() / load.weight);
  return rate;
}

/// Compute capability of a device; 80 for an unknown name.
inline int compute_capability(const DeviceSpec& device) {
  const KnownDevice* const known = find_device(device.name);
  return known != nullptr ? known->sm : 80;
}

/// KnownDevice::sustained, sustained_narrow and attention; 1 for an unknown device.
inline std::array<double, 3> device_shares(const DeviceSpec& device) {
  const KnownDevice* const known = find_device(device.name);
  if (known == nullptr) return {1, 1, 1};
  return {known->sustained, known->sustained_narrow, known->attention};
}

}  // namespace detail

/// The input of NCCL's table for the ring over `members`, which are node by node. A hop's latency
/// beyond the one NCCL assumes for Simple (3.4 us by NVLink, 5.7 us by PCI Express, 14 us by the
/// network) is extra; a lower one is raised to NCCL's.
/// @pre at least two members
TAWPIPE_INLINE NcclRing nccl_ring(std::span<const Rank> members, const Cluster& cluster);

/// The algorithm and protocol that NCCL would choose, without knowledge of extra latencies.
inline NcclWay nccl_choice(Op op, NcclRing ring, double bytes) {
  ring.extra_inside = 0;
  ring.extra_network = 0;
  return nccl_fastest(op, ring, bytes);
}

/// A collective of `bytes` among `members`, which are node by node: the latency of NCCL's choice,
/// then one flow over the links of all its channels. By itself it reaches NCCL's bandwidth; a
/// protocol that sends flags with the data takes proportionally more of shared links. Complexity:
/// O(channels * members * links of a route).
TAWPIPE_INLINE Path nccl_path(Op op, std::span<const Rank> members, Rank root, double bytes, const Cluster& cluster);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <cstddef>
#include <utility>

#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/detail/merge_loads.hpp"
#include "tawpipe/cost/detail/mesh_loads.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The first member at each adapter, of the members in one node.
inline std::vector<std::size_t> first_at_each_adapter(std::span<const Rank> members, std::pair<std::size_t, std::size_t> node,
                                                      const Cluster& cluster) {
  std::vector<std::size_t> first;
  std::vector<std::int32_t> adapters;
  const NodeType& kind = cluster.kind_of(cluster.node_of(members[node.first]));
  for (std::size_t i = node.first; i < node.second; ++i) {
    const LinkPath& path = kind.to_network[static_cast<std::size_t>(cluster.local_index(members[i]))];
    const std::int32_t adapter = path.empty() ? -1 : path.back();
    if (std::find(adapters.begin(), adapters.end(), adapter) != adapters.end()) continue;
    adapters.push_back(adapter);
    first.push_back(i);
  }
  return first;
}

TAWPIPE_INLINE std::vector<std::vector<Rank>> channel_orders(std::span<const Rank> members, const Cluster& cluster) {
  const auto nodes = nodes_of_members(members, cluster);
  if (nodes.size() < 2) return {{members.begin(), members.end()}};
  std::vector<std::vector<std::size_t>> leaving;
  std::size_t channels = std::numeric_limits<std::size_t>::max();
  for (const auto& node : nodes) {
    leaving.push_back(first_at_each_adapter(members, node, cluster));
    channels = std::min(channels, leaving.back().size());
  }
  std::vector<std::vector<Rank>> orders(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const auto [begin, end] = nodes[n];
      const std::size_t size = end - begin;
      // From the one after the member that leaves the node, round to it.
      for (std::size_t i = 1; i <= size; ++i) orders[c].push_back(members[begin + (leaving[n][c] - begin + i) % size]);
    }
  }
  return orders;
}

inline std::vector<LinkLoad> loads_of(const std::vector<std::pair<Rank, Rank>>& edges, double weight, const Cluster& cluster) {
  std::vector<LinkLoad> loads;
  for (const auto& [from, to] : edges) {
    for (const LinkId link : cluster.route(from, to).links) loads.push_back({link, weight});
  }
  return loads;
}

/// The loads of all channels' shapes together.
inline std::vector<LinkLoad> channel_loads(Op op, Algorithm algorithm, const std::vector<std::vector<Rank>>& orders, Rank root,
                                           const Cluster& cluster) {
  std::vector<LinkLoad> loads;
  for (const auto& order : orders) {
    const CollectiveShape shape = collective_shape(op, algorithm, order, root, cluster);
    const auto part = loads_of(shape.edges, 1.0 / static_cast<double>(orders.size()), cluster);
    loads.insert(loads.end(), part.begin(), part.end());
  }
  merge_loads(loads);
  spread_over_meshes(loads, orders.front(), cluster);
  return loads;
}

}  // namespace detail

TAWPIPE_INLINE NcclRing nccl_ring(std::span<const Rank> members, const Cluster& cluster) {
  const auto orders = detail::channel_orders(members, cluster);
  const auto nodes = detail::nodes_of_members(members, cluster);
  NcclRing ring{.ranks = static_cast<int>(members.size()), .nodes = static_cast<int>(nodes.size())};
  ring.bus_bandwidth =
      detail::alone_on(detail::channel_loads(Op::all_gather, Algorithm::ring, orders, members[0], cluster), cluster);
  ring.sm = detail::compute_capability(cluster.device(members[0]));
  ring.max_low_latency = max_ll(ring.sm, ring.nodes);
  const KnownDevice* const known = find_device(cluster.device(members[0]).name);
  ring.rccl = known != nullptr && known->peers == Peers::xgmi;
  ring.same_channels = orders.size() == 1;
  ring.nvlink = ring.ranks > ring.nodes;  // with one rank a node LL128 may be unavailable
  struct Hops {
    double latency = 0;
    int count = 0;
    double mean() const { return count > 0 ? latency / count : 0; }
  } inside, between;
  double slowest = std::numeric_limits<double>::infinity();  // of the links inside
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Rank next = members[(i + 1) % members.size()];
    const Route route = cluster.route(members[i], next);
    Hops& hops = cluster.same_node(members[i], next) ? inside : between;
    hops.latency += to_seconds(route.latency);
    ++hops.count;
    if (!cluster.same_node(members[i], next)) continue;
    for (const LinkId link : route.links) {
      ring.nvlink = ring.nvlink && joins_devices(cluster.link(link).kind);
      slowest = std::min(slowest, cluster.link(link).bandwidth.value());
    }
  }
  std::size_t fewest = members.size();
  for (const auto& [begin, end] : nodes) fewest = std::min(fewest, end - begin);
  constexpr std::size_t max_heads = 32;  // NCCL_MAX_NVLS_ARITY
  if (ring.nvlink && fewest > 2) {
    ring.heads = static_cast<int>(std::min(ring.nodes == 1 ? max_heads : orders.size(), std::min(fewest, max_heads)));
    ring.nvlink_bandwidth = slowest;
  }
  ring.extra_inside = std::max(0.0, inside.mean() - to_seconds(ring.nvlink ? nccl_latency::nvlink : nccl_latency::pcie));
  ring.extra_network = std::max(0.0, between.mean() - to_seconds(nccl_latency::network));
  return ring;
}

TAWPIPE_INLINE Path nccl_path(Op op, std::span<const Rank> members, Rank root, double bytes, const Cluster& cluster) {
  Path path;
  if (members.size() < 2) return path;
  const NcclRing ring = nccl_ring(members, cluster);
  const NcclWay way = nccl_choice(op, ring, bytes);
  const NcclCost cost = nccl_cost(op, way, ring);
  const auto orders = detail::channel_orders(members, cluster);
  path.latency = seconds(cost.latency_s);
  path.loads = detail::channel_loads(op, way.algorithm, orders, root, cluster);
  path.fraction = collective_shape(op, way.algorithm, members, root, cluster).fraction;
  const double more = detail::alone_on(path.loads, cluster) / (path.fraction * cost.bytes_per_second);
  for (LinkLoad& load : path.loads) load.weight *= more;
  return path;
}

}  // namespace tawpipe
#endif
