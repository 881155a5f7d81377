// Routes through irregular nodes and irregular networks, by Boost.Graph's Dijkstra.
// Not: regular clusters (topology/cluster_builder.hpp), nor the use of routes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/detail/shortest_paths.hpp"
#include "tawpipe/topology/fabric_graph.hpp"
#include "tawpipe/topology/node_graph.hpp"

namespace tawpipe::inline v0 {

/// The weight of one link in a route, an integer so that equal routes are exactly equal: the
/// picoseconds that one gigabyte takes (at most 1e14), one for the hop, and 1000 where it enters a
/// CPU, so that of two routes of similar speed the one that stays below the host bridge wins.
inline std::int64_t route_weight(BytesPerSecond bandwidth, VertexKind entered) {
  const double picoseconds = std::min(1e21 / bandwidth.value(), 1e14);
  return static_cast<std::int64_t>(picoseconds) + (entered == VertexKind::cpu ? 1000 : 1);
}

namespace detail {

inline constexpr std::size_t max_vertices = 16384;  // with 1e14 a link, a route stays below 2^63

inline void check_spec(const LinkSpec& link, std::string_view what) {
  if (!(link.bandwidth.value() > 0)) {
    throw InputError(concat("the bandwidth of ", what, " must be above zero, such as 25GBps"));
  }
  if (link.latency < Duration{}) throw InputError(concat("the latency of ", what, " must not be negative, such as 5us"));
}

inline void check_graph(const std::string& node, const NodeGraph& graph) {
  if (graph.vertices.size() > max_vertices) {
    throw InputError(concat("node ", quote(node), " has ", graph.vertices.size(), " vertices; at most ", max_vertices, " fit"));
  }
  int devices = 0;
  for (const auto& vertex : graph.vertices) {
    devices += vertex.kind == VertexKind::device ? 1 : 0;
    if (vertex.kind == VertexKind::adapter) check_spec(vertex.network, concat("adapter ", quote(vertex.name)));
  }
  if (devices == 0) throw InputError(concat("node ", quote(node), " has no device; give it at least one"));
  if (devices > max_devices_per_node) {
    throw InputError(concat("node ", quote(node), " has ", devices, " devices; at most ", max_devices_per_node, " fit in one"));
  }
  const int vertices = static_cast<int>(graph.vertices.size());
  for (const auto& edge : graph.edges) {
    if (std::min(edge.a, edge.b) < 0 || std::max(edge.a, edge.b) >= vertices) {
      throw InputError(concat("a link of node ", quote(node), " joins vertices ", edge.a, " and ", edge.b, ", but there are ",
                              vertices, " vertices"));
    }
    check_spec(edge.link, concat("the link between ", quote(graph.vertices[static_cast<std::size_t>(edge.a)].name), " and ",
                                 quote(graph.vertices[static_cast<std::size_t>(edge.b)].name)));
  }
}

/// Edge e becomes arcs (and links) 2e, from a to b, and 2e+1 back.
inline std::vector<Arc> arcs_of(const NodeGraph& graph) {
  std::vector<Arc> arcs;
  for (const auto& edge : graph.edges) {
    const auto into = [&](int vertex) {
      return route_weight(edge.link.bandwidth, graph.vertices[static_cast<std::size_t>(vertex)].kind);
    };
    arcs.push_back({edge.a, edge.b, into(edge.b)});
    arcs.push_back({edge.b, edge.a, into(edge.a)});
  }
  return arcs;
}

/// The arcs from the tree's source to `vertex`, in order.
inline LinkPath path_to(int vertex, const PathTree& tree, const std::vector<Arc>& arcs) {
  LinkPath path;
  for (int arc = tree.last_arc[static_cast<std::size_t>(vertex)]; arc >= 0;) {
    path.push_back(arc);
    arc = tree.last_arc[static_cast<std::size_t>(arcs[static_cast<std::size_t>(arc)].from)];
  }
  std::reverse(path.begin(), path.end());
  return path;
}

/// The same path in the reverse direction.
inline LinkPath reversed(LinkPath path) {
  std::reverse(path.begin(), path.end());
  for (auto& arc : path) arc ^= 1;
  return path;
}

/// [device] the adapter each device uses: the nearest. Those with the fewest equally near adapters
/// choose first, and each takes the one with the fewest devices so far, then the first. @param near
/// [device] indices of its nearest adapters.
inline std::vector<int> spread_over_adapters(const std::vector<std::vector<int>>& near, std::size_t adapters) {
  std::vector<std::size_t> order(near.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return near[a].size() < near[b].size(); });
  std::vector<int> load(adapters, 0);
  std::vector<int> chosen(near.size(), 0);
  for (const auto device : order) {
    chosen[device] = *std::min_element(near[device].begin(), near[device].end(), [&](int a, int b) {
      return load[static_cast<std::size_t>(a)] < load[static_cast<std::size_t>(b)];
    });
    ++load[static_cast<std::size_t>(chosen[device])];
  }
  return chosen;
}

}  // namespace detail

/// The node that `graph` describes: every full-duplex link becomes two directed ones, and every
/// pair of devices gets its cheapest route (see route_weight), the same both ways, never through
/// another device. Each device leaves the node by its nearest adapter; devices spread evenly over
/// equally near ones. It reaches the memory of its host by its nearest CPU, if every device reaches
/// one, and the last link, that memory. Link 2e is edge e from a to b, 2e+1 the reverse; the adapters' own links follow, out and
/// in, with the latency on the outgoing one.
///
/// @throws InputError  naming the device that cannot be reached, or the link or adapter without a
/// speed.
/// Complexity: O(devices (vertices + edges) log vertices).
/// @see NodeGraph for an example.
inline NodeType make_node_type(std::string name, const NodeGraph& graph) {
  detail::check_graph(name, graph);
  const auto graph_devices = std::count_if(graph.vertices.begin(), graph.vertices.end(),
                                           [](const auto& vertex) { return vertex.kind == VertexKind::device; });
  detail::check_routing_work(graph_devices, static_cast<std::int64_t>(graph.edges.size()), "a node");
  NodeType type;
  std::vector<int> devices;
  std::vector<int> adapters;
  std::vector<char> passable;
  for (int v = 0; v < static_cast<int>(graph.vertices.size()); ++v) {
    const auto& vertex = graph.vertices[static_cast<std::size_t>(v)];
    if (vertex.kind == VertexKind::device) devices.push_back(v);
    if (vertex.kind == VertexKind::device) type.devices.push_back(vertex.device);
    if (vertex.kind == VertexKind::adapter) adapters.push_back(v);
    passable.push_back(vertex.kind == VertexKind::switch_ || vertex.kind == VertexKind::cpu ? 1 : 0);
  }
  for (const auto& edge : graph.edges) {
    const Link link{edge.kind, LinkEnd::inside, edge.link.bandwidth, edge.link.latency};
    type.links.insert(type.links.end(), 2, link);
  }
  const auto first_adapter_link = static_cast<std::int32_t>(type.links.size());
  for (const int adapter : adapters) {
    const LinkSpec& port = graph.vertices[static_cast<std::size_t>(adapter)].network;
    type.links.push_back({LinkClass::network, LinkEnd::adapter_out, port.bandwidth, port.latency});
    type.links.push_back({LinkClass::network, LinkEnd::adapter_in, port.bandwidth, Duration{}});
  }

  const auto arcs = detail::arcs_of(graph);
  const detail::ShortestPaths search{arcs, std::move(passable)};
  const std::size_t count = devices.size();
  type.paths.resize(count * count);
  std::vector<int> cpus;
  for (int v = 0; v < static_cast<int>(graph.vertices.size()); ++v) {
    if (graph.vertices[static_cast<std::size_t>(v)].kind == VertexKind::cpu) cpus.push_back(v);
  }
  std::vector<std::vector<int>> near(count);
  std::vector<std::vector<LinkPath>> near_paths(count);
  const auto label = [&](std::size_t device) { return quote(graph.vertices[static_cast<std::size_t>(devices[device])].name); };
  for (std::size_t i = 0; i < count; ++i) {
    const auto tree = search.from(devices[i]);
    for (std::size_t j = i + 1; j < count; ++j) {
      auto path = detail::path_to(devices[j], tree, arcs);
      if (path.empty()) {
        throw InputError(concat("device ", label(j), " of node ", quote(name), " cannot be reached from device ", label(i),
                                "; join them by a link, a switch or a CPU"));
      }
      type.paths[j * count + i] = detail::reversed(path);
      type.paths[i * count + j] = std::move(path);
    }
    const auto farther = [&](int a, int b) {
      return tree.distance[static_cast<std::size_t>(a)] < tree.distance[static_cast<std::size_t>(b)];
    };
    const auto cpu = std::min_element(cpus.begin(), cpus.end(), farther);
    if (cpu != cpus.end() && tree.distance[static_cast<std::size_t>(*cpu)] != detail::PathTree::unreachable) {
      type.to_host.push_back(detail::path_to(*cpu, tree, arcs));
      type.from_host.push_back(detail::reversed(type.to_host.back()));
    }
    std::int64_t nearest_distance = detail::PathTree::unreachable;
    for (const int adapter : adapters) {
      nearest_distance = std::min(nearest_distance, tree.distance[static_cast<std::size_t>(adapter)]);
    }
    if (!adapters.empty() && nearest_distance == detail::PathTree::unreachable) {
      throw InputError(concat("device ", label(i), " of node ", quote(name),
                              " reaches no network adapter; join it to one by a link, a switch or a CPU"));
    }
    for (std::size_t a = 0; a < adapters.size(); ++a) {
      if (tree.distance[static_cast<std::size_t>(adapters[a])] != nearest_distance) continue;
      near[i].push_back(static_cast<int>(a));
      near_paths[i].push_back(detail::path_to(adapters[a], tree, arcs));
    }
  }
  if (!adapters.empty()) {
    const auto chosen = detail::spread_over_adapters(near, adapters.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = std::find(near[i].begin(), near[i].end(), chosen[i]) - near[i].begin();
      LinkPath out = near_paths[i][static_cast<std::size_t>(place)];
      LinkPath in = detail::reversed(out);
      out.push_back(first_adapter_link + 2 * chosen[i]);
      in.insert(in.begin(), first_adapter_link + 2 * chosen[i] + 1);
      type.to_network.push_back(std::move(out));
      type.from_network.push_back(std::move(in));
    }
  }
  if (type.to_host.size() < count) type.to_host.clear();  // some device reaches no CPU
  if (type.from_host.size() < count) type.from_host.clear();
  add_host_memory(type, graph.host_memory);
  type.name = std::move(name);
  return type;
}

/// The fabric that `graph` describes: for each ordered pair of nodes a cheapest path over the
/// switches' links. Of equally cheap next hops, the one numbered destination modulo their count is
/// taken (d-mod-k routing), so that the spines of a leaf-spine network share the destinations
/// evenly. Link 2e is edge e from a to b, 2e+1 the reverse.
///
/// @throws InputError  naming the node that cannot be reached, or the link without a speed.
/// Complexity: O(nodes (vertices + edges) log vertices + nodes^2 hops).
/// Source: Zahavi 2012, "Fat-tree routing and node ordering providing contention free traffic for
/// MPI global collectives" (d-mod-k).
inline Fabric make_fabric(const FabricGraph& graph) {
  const int vertices = graph.nodes + static_cast<int>(graph.switches.size());
  const auto label = [&](int vertex) {
    return vertex < graph.nodes ? concat("node ", vertex)
                                : concat("switch ", quote(graph.switches[static_cast<std::size_t>(vertex - graph.nodes)]));
  };
  detail::check_fabric_graph(graph);
  detail::check_routing_work(graph.nodes, static_cast<std::int64_t>(graph.edges.size()), "a fabric");
  Fabric fabric;
  std::vector<detail::Arc> arcs;
  for (const auto& edge : graph.edges) {
    detail::check_spec(edge.link, concat("the link between ", label(edge.a), " and ", label(edge.b)));
    const auto weight = route_weight(edge.link.bandwidth, VertexKind::switch_);
    arcs.push_back({edge.a, edge.b, weight});
    arcs.push_back({edge.b, edge.a, weight});
    const Link link{LinkClass::network, LinkEnd::fabric, edge.link.bandwidth, edge.link.latency};
    fabric.links.insert(fabric.links.end(), 2, link);
  }
  const std::size_t real_arcs = arcs.size();
  for (const auto& attachment : graph.attachments) {
    arcs.push_back({attachment.node, attachment.at, 1});
    arcs.push_back({attachment.at, attachment.node, 1});
  }
  std::vector<std::vector<int>> leaving(static_cast<std::size_t>(vertices));
  for (std::size_t a = 0; a < arcs.size(); ++a) leaving[static_cast<std::size_t>(arcs[a].from)].push_back(static_cast<int>(a));
  std::vector<char> passable(static_cast<std::size_t>(vertices), 1);
  std::fill_n(passable.begin(), graph.nodes, char{0});

  const detail::ShortestPaths search{arcs, passable};
  const auto nodes = static_cast<std::size_t>(graph.nodes);
  fabric.paths.resize(nodes * nodes);
  for (int destination = 0; destination < graph.nodes; ++destination) {
    const auto left = search.from(destination).distance;                // links are the same both ways
    std::vector<int> next_arc(static_cast<std::size_t>(vertices), -1);  // [vertex] towards the destination, filled on first use
    for (int source = 0; source < graph.nodes; ++source) {
      if (source == destination) continue;
      if (left[static_cast<std::size_t>(source)] == detail::PathTree::unreachable) {
        throw InputError(
            concat("node ", destination, " cannot be reached from node ", source, "; attach both to switches that are joined"));
      }
      auto& path = fabric.paths[static_cast<std::size_t>(source) * nodes + static_cast<std::size_t>(destination)];
      for (int at = source; at != destination;) {
        int& arc = next_arc[static_cast<std::size_t>(at)];
        std::vector<int> next;
        for (std::size_t i = 0; arc < 0 && i < leaving[static_cast<std::size_t>(at)].size(); ++i) {
          const int leaves = leaving[static_cast<std::size_t>(at)][i];
          const auto& step = arcs[static_cast<std::size_t>(leaves)];
          const bool allowed = step.to == destination || passable[static_cast<std::size_t>(step.to)] != 0;
          if (allowed && left[static_cast<std::size_t>(step.to)] + step.weight == left[static_cast<std::size_t>(at)]) {
            next.push_back(leaves);
          }
        }
        if (arc < 0) arc = next[static_cast<std::size_t>(destination) % next.size()];
        if (static_cast<std::size_t>(arc) < real_arcs) path.push_back(arc);
        at = arcs[static_cast<std::size_t>(arc)].to;
      }
    }
  }
  return fabric;
}

}  // namespace tawpipe
