// A cluster with changed links: faster, slower, or of a given speed.
// Not: other paths between devices (topology/cluster_builder.hpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

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
  std::vector<std::int32_t> nodes;
  for (int node = 0; node < cluster.nodes(); ++node) nodes.push_back(cluster.kind_index(NodeId{node}));
  return Cluster{cluster.name(), std::move(kinds), std::move(nodes), std::move(fabric)};
}

}  // namespace tawpipe
