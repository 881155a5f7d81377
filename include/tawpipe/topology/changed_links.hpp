// A cluster with changed links or devices: faster, slower, or of a given speed; or with fewer or more nodes.
// Not: other paths between devices (topology/cluster_builder.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// `cluster` with different kinds of node, of the same numbers of devices, and a different fabric.
inline Cluster with_kinds(const Cluster& cluster, std::vector<NodeType> kinds, Fabric fabric) {
  std::vector<std::int32_t> nodes;
  for (int node = 0; node < cluster.nodes(); ++node) nodes.push_back(cluster.kind_index(NodeId{node}));
  return Cluster{cluster.name(), std::move(kinds), std::move(nodes), std::move(fabric)};
}

}  // namespace detail

/// `cluster` with `change(link)` applied to each of its links; same devices and paths.
/// @param change  called with a Link&, once for each link of each kind of node and of the fabric
/// @throws InputError  if a link loses its bandwidth.
template <class Change>
Cluster with_changed_links(const Cluster& cluster, Change&& change) {
  std::vector<NodeType> kinds = cluster.kinds();
  for (NodeType& kind : kinds) {
    for (Link& link : kind.links) change(link);
  }
  Fabric fabric = cluster.fabric();
  for (Link& link : fabric.links) change(link);
  return detail::with_kinds(cluster, std::move(kinds), std::move(fabric));
}

/// The first `count` nodes of `cluster`, with the fabric between them. @pre 0 < count <= nodes()
inline Cluster first_nodes(const Cluster& cluster, int count) {
  std::vector<std::int32_t> nodes;
  for (int node = 0; node < count; ++node) nodes.push_back(cluster.kind_index(NodeId{node}));
  Fabric fabric = cluster.fabric();
  const std::vector<LinkPath> paths = std::move(fabric.paths);
  fabric.paths.clear();
  for (int from = 0; !paths.empty() && from < count; ++from) {
    const auto begin = paths.begin() + std::ptrdiff_t{from} * cluster.nodes();
    fabric.paths.insert(fabric.paths.end(), begin, begin + count);
  }
  return Cluster{cluster.name(), cluster.kinds(), std::move(nodes), std::move(fabric)};
}

/// `cluster` with so many nodes: its first ones, or all of them again and again.
/// @throws InputError  for more nodes than are joined: without adapters, or by links of their own above these
inline Cluster with_node_count(const Cluster& cluster, int count) {
  if (count <= cluster.nodes()) return first_nodes(cluster, count);
  if (!cluster.fabric().paths.empty())
    throw InputError(concat("cluster ", quote(cluster.name()), " has links between its ", cluster.nodes(),
                            " nodes; how more of them are joined is not known"));
  std::vector<std::int32_t> nodes;
  for (int node = 0; node < count; ++node) nodes.push_back(cluster.kind_index(NodeId{node % cluster.nodes()}));
  return Cluster{cluster.name(), cluster.kinds(), std::move(nodes)};
}

/// Whether devices of a node have links of their own (NVLink, XGMI), so that PCI Express carries only
/// what leaves a node.
inline bool pcie_leaves_nodes(const Cluster& cluster) {
  for (const NodeType& kind : cluster.kinds()) {
    for (const Link& link : kind.links) {
      if (joins_devices(link.kind)) return true;
    }
  }
  return false;
}

/// `cluster` with `times` the bandwidth between nodes, or inside them.
inline Cluster with_faster_links(const Cluster& cluster, bool between_nodes, double times) {
  const bool slots = pcie_leaves_nodes(cluster);
  return with_changed_links(cluster, [&](Link& link) {
    const bool leaves = link.kind == LinkClass::network || (slots && !joins_devices(link.kind));
    if (link.end != LinkEnd::host && leaves == between_nodes) link.bandwidth = BytesPerSecond{link.bandwidth.value() * times};
  });
}

/// `cluster` with adapters, and what is above them, of that bandwidth in each direction. Where PCI Express carries only what
/// leaves a node, its slots grow with faster adapters. Refused where there is no network.
inline Cluster with_adapter_speed(const Cluster& cluster, BytesPerSecond speed) {
  double more = 0;  // than the slots of adapters are made for
  const Cluster changed = with_changed_links(cluster, [&](Link& link) {
    if (link.kind != LinkClass::network || link.end == LinkEnd::host) return;
    more = std::max({more, 1.0, speed / link.bandwidth});
    link.bandwidth = speed;
  });
  if (more == 0) throw InputError(concat("cluster ", quote(cluster.name()), " has no adapters whose speed could change"));
  if (more == 1 || !pcie_leaves_nodes(changed)) return changed;
  return with_changed_links(changed, [&](Link& link) {
    if (link.kind == LinkClass::pcie && link.end != LinkEnd::host) link.bandwidth = BytesPerSecond{link.bandwidth.value() * more};
  });
}

/// `cluster` with `change(device)` applied to each of its devices; same links and paths.
/// @param change  called with a DeviceSpec&, once for each device of each kind of node
template <class Change>
Cluster with_changed_devices(const Cluster& cluster, Change&& change) {
  std::vector<NodeType> kinds = cluster.kinds();
  for (NodeType& kind : kinds) {
    for (DeviceSpec& device : kind.devices) change(device);
  }
  return detail::with_kinds(cluster, std::move(kinds), cluster.fabric());
}

}  // namespace tawpipe
