// A cluster: nodes, their devices, and the links that a message from one device to another crosses.
// Not: its description (cluster_builder, routing, importers) nor the work on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device.hpp"
#include "tawpipe/topology/device_group.hpp"
#include "tawpipe/topology/link.hpp"

namespace tawpipe::inline v0 {

/// Stands for the memory of the other end's host, in place of a rank.
inline constexpr Rank host_memory = none<Rank>;

/// A path inside a node: indices into NodeType::links, in order.
using LinkPath = std::vector<std::int32_t>;

/// A kind of node: its devices, its links, and the paths between them. Nodes of one kind share one
/// NodeType.
struct NodeType {
  std::string name;
  std::vector<DeviceSpec> devices;
  std::vector<Link> links;
  std::vector<LinkPath> paths;  ///< [source * devices + destination]; empty on the diagonal
  /// [device] up to and including an adapter's sending direction
  std::vector<LinkPath> to_network;
  std::vector<LinkPath> from_network;  ///< [device] from an adapter's receiving direction on
  std::vector<LinkPath> to_host;       ///< [device] to the memory of the host; empty: unknown
  std::vector<LinkPath> from_host;     ///< [device] the way back
  Bytes host_memory{};                 ///< of the host, for all its devices; 0: unknown
  bool host_memory_assumed = false;    ///< no description says it: add_host_memory()

  bool operator==(const NodeType&) const = default;
};

/// The links that a message crosses, in order, and their total latency.
struct Route {
  std::vector<LinkId> links;
  Duration latency;
};

/// A network above the adapters that is not simply non-blocking: extra links between each ordered
/// pair of nodes.
struct Fabric {
  std::vector<Link> links;
  /// [source node * nodes + destination node] into `links`; empty: no links crossed
  std::vector<LinkPath> paths;

  bool operator==(const Fabric&) const = default;
};

namespace detail {

/// A bandwidth of zero would make a transfer endless, a latency beyond 1000 s would overflow a
/// route's sum.
inline void check_links(const std::vector<Link>& links, std::string_view owner) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (!(links[i].bandwidth.value() > 0) || links[i].bandwidth > BytesPerSecond::max()) {
      throw InputError(concat("link ", i, " of ", owner, " has no bandwidth above zero; give it one, such as 25GBps"));
    }
    if (links[i].latency < Duration{} || links[i].latency > Duration{1'000'000'000'000'000}) {
      throw InputError(
          concat("link ", i, " of ", owner, " has a latency that is negative or above 1000 s; give one such as 5us"));
    }
  }
}

/// `paths` must hold `expected` paths (`what`), with link indices below `links`.
inline void check_paths(const std::vector<LinkPath>& paths, std::size_t expected, std::size_t links, std::string_view what,
                        std::string_view owner) {
  if (paths.size() != expected) {
    throw InputError(concat(owner, " has ", paths.size(), " ", what, "; it needs ", expected));
  }
  for (const auto& path : paths) {
    for (const auto link : path) {
      if (link < 0 || static_cast<std::size_t>(link) >= links) {
        throw InputError(concat("one of the ", what, " of ", owner, " uses link ", link, ", but there are ", links, " links"));
      }
    }
  }
}

inline void check_node_type(const NodeType& type) {
  const std::string owner = concat("node type ", quote(type.name));
  const std::size_t devices = type.devices.size();
  if (devices == 0) throw InputError(concat(owner, " has no devices; give it at least one"));
  check_links(type.links, owner);
  check_paths(type.paths, devices * devices, type.links.size(), "paths between devices", owner);
  const std::size_t joined = type.to_network.empty() ? 0 : devices;
  check_paths(type.to_network, joined, type.links.size(), "paths to the network", owner);
  check_paths(type.from_network, joined, type.links.size(), "paths from the network", owner);
  const std::size_t hosted = type.to_host.empty() && type.from_host.empty() ? 0 : devices;
  check_paths(type.to_host, hosted, type.links.size(), "paths to the host", owner);
  check_paths(type.from_host, hosted, type.links.size(), "paths from the host", owner);
}

}  // namespace detail

/// An immutable cluster. Ranks are numbered node by node, links node by node and then the fabric's.
class Cluster {
 public:
  /// @param kinds   the kinds of node that occur
  /// @param nodes   [node] index into `kinds`
  /// @throws InputError  if there is no device, an invalid path or speed, or one of several nodes
  /// has no adapter.
  Cluster(std::string name, std::vector<NodeType> kinds, std::vector<std::int32_t> nodes, Fabric fabric = {});

  const std::string& name() const { return name_; }
  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  int links() const { return first_fabric_link_ + static_cast<int>(fabric_.links.size()); }

  NodeId node_of(Rank rank) const { return node_of_[index(rank)]; }
  bool same_node(Rank a, Rank b) const { return node_of(a) == node_of(b); }
  Rank first_rank(NodeId node) const { return Rank{nodes_[index(node)].first_rank}; }
  int devices_in(NodeId node) const { return static_cast<int>(kind_of(node).devices.size()); }
  /// The rank's index within its node, 0 .. devices_in(node)-1.
  int local_index(Rank rank) const { return number(rank) - number(first_rank(node_of(rank))); }
  const DeviceSpec& device(Rank rank) const {
    return kind_of(node_of(rank)).devices[static_cast<std::size_t>(local_index(rank))];
  }
  /// The memory of a node's host; 0: unknown.
  Bytes memory_of_host(NodeId node) const { return kind_of(node).host_memory; }
  /// The kinds of node that occur, and which of them a node is.
  const std::vector<NodeType>& kinds() const { return kinds_; }
  int kind_index(NodeId node) const { return nodes_[index(node)].kind; }
  /// The links above the adapters; empty if the network is non-blocking.
  const Fabric& fabric() const { return fabric_; }
  const NodeType& kind_of(NodeId node) const { return kinds_[static_cast<std::size_t>(nodes_[index(node)].kind)]; }

  const Link& link(LinkId link) const {
    if (number(link) >= first_fabric_link_) return fabric_.links[index(link) - static_cast<std::size_t>(first_fabric_link_)];
    const NodeId node = node_of(link);
    return kind_of(node).links[index(link) - static_cast<std::size_t>(nodes_[index(node)].first_link)];
  }
  /// The node a link belongs to; none for the fabric's. Complexity: O(log nodes).
  NodeId node_of(LinkId link) const {
    if (number(link) >= first_fabric_link_) return none<NodeId>;
    const auto after = std::upper_bound(nodes_.begin(), nodes_.end(), number(link),
                                        [](std::int32_t value, const Node& node) { return value < node.first_link; });
    return id<NodeId>(after - nodes_.begin() - 1);
  }

  /// The links from `source` to `destination`: inside the node, or out of one adapter, through the
  /// fabric, into the other; where one of them is host_memory, the links between the other and its
  /// host.
  /// @throws InputError  if the cluster does not describe how that device reaches its host.
  /// Complexity: O(links on the path).
  Route route(Rank source, Rank destination) const;
  /// Of a route to another node the part in the rank's own.
  Route to_network(Rank source) const { return through(source, kind_of(node_of(source)).to_network); }
  /// Of a route from another node the part in the rank's own.
  Route from_network(Rank destination) const { return through(destination, kind_of(node_of(destination)).from_network); }

  /// One group of ranks for each node. Nodes need not be equal.
  DeviceGroups groups_by_node() const {
    std::vector<std::int32_t> sizes;
    for (int node = 0; node < nodes(); ++node) sizes.push_back(devices_in(NodeId{node}));
    return DeviceGroups{sizes};
  }

  bool operator==(const Cluster&) const = default;

 private:
  InputError unknown_host_link(const NodeType& type) const {
    return InputError(concat("how the devices of node type ", quote(type.name), " of cluster ", quote(name_),
                             " reach the memory of their host is not known; give \"host_link\" in the cluster's file, or let its"
                             " graph have a CPU"));
  }

  struct Node {
    std::int32_t kind;
    std::int32_t first_rank;
    std::int32_t first_link;

    bool operator==(const Node&) const = default;
  };

  Route through(Rank rank, const std::vector<LinkPath>& paths) const {
    Route route;
    add(route, paths[static_cast<std::size_t>(local_index(rank))], node_of(rank));
    return route;
  }
  void add(Route& route, const LinkPath& path, NodeId node) const {
    for (const auto link : path) {
      route.links.push_back(LinkId{nodes_[index(node)].first_link + link});
      route.latency += kind_of(node).links[static_cast<std::size_t>(link)].latency;
    }
  }

  std::string name_;
  std::vector<NodeType> kinds_;
  std::vector<Node> nodes_;
  std::vector<NodeId> node_of_;
  Fabric fabric_;
  std::int32_t first_fabric_link_ = 0;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Cluster::Cluster(std::string name, std::vector<NodeType> kinds, std::vector<std::int32_t> nodes, Fabric fabric)
    : name_{std::move(name)}, kinds_{std::move(kinds)}, fabric_{std::move(fabric)} {
  for (const auto& type : kinds_) detail::check_node_type(type);
  detail::check_links(fabric_.links, "the fabric");
  if (!fabric_.paths.empty()) {
    detail::check_paths(fabric_.paths, nodes.size() * nodes.size(), fabric_.links.size(), "paths between nodes", "the fabric");
  }
  constexpr std::int64_t most = 2'000'000'000;  // ids are 32-bit
  std::int32_t first_rank = 0;
  std::int32_t first_link = 0;
  for (const std::int32_t kind : nodes) {
    if (kind < 0 || static_cast<std::size_t>(kind) >= kinds_.size()) {
      throw InputError(concat("node ", nodes_.size(), " is of node type ", kind, ", but there are ", kinds_.size(), " types"));
    }
    const NodeType& type = kinds_[static_cast<std::size_t>(kind)];
    if (nodes.size() > 1 && type.to_network.empty()) {
      throw InputError(concat("node type ", quote(type.name), " has no network adapter, so ", nodes.size(),
                              " of them cannot be joined; give it an adapter"));
    }
    nodes_.push_back({kind, first_rank, first_link});
    node_of_.insert(node_of_.end(), type.devices.size(), id<NodeId>(nodes_.size() - 1));
    if (first_link + static_cast<std::int64_t>(type.links.size() + fabric_.links.size()) > most ||
        first_rank + static_cast<std::int64_t>(type.devices.size()) > most) {
      throw InputError("a cluster of more than 2000000000 devices or links is too large; describe a part of it");
    }
    first_rank += static_cast<std::int32_t>(type.devices.size());
    first_link += static_cast<std::int32_t>(type.links.size());
  }
  if (node_of_.empty()) throw InputError("a cluster needs at least one node with one device");
  first_fabric_link_ = first_link;
}

TAWPIPE_INLINE Route Cluster::route(Rank source, Rank destination) const {
  Route route;
  if (source == destination) return route;
  if (source == host_memory || destination == host_memory) {
    const Rank device = source == host_memory ? destination : source;
    const NodeType& type = kind_of(node_of(device));
    const std::vector<LinkPath>& paths = source == host_memory ? type.from_host : type.to_host;
    if (paths.empty()) throw unknown_host_link(type);
    add(route, paths[static_cast<std::size_t>(local_index(device))], node_of(device));
    return route;
  }
  const NodeId from = node_of(source);
  const NodeId to = node_of(destination);
  const auto source_index = static_cast<std::size_t>(local_index(source));
  const auto destination_index = static_cast<std::size_t>(local_index(destination));
  if (from == to) {
    add(route, kind_of(from).paths[source_index * kind_of(from).devices.size() + destination_index], from);
    return route;
  }
  add(route, kind_of(from).to_network[source_index], from);
  if (!fabric_.paths.empty()) {
    for (const auto link : fabric_.paths[index(from) * nodes_.size() + index(to)]) {
      route.links.push_back(LinkId{first_fabric_link_ + link});
      route.latency += fabric_.links[static_cast<std::size_t>(link)].latency;
    }
  }
  add(route, kind_of(to).from_network[destination_index], to);
  return route;
}

}  // namespace tawpipe
#endif
