// A network as a graph: nodes attached to switches, switches connected by links of limited speed.
// Not: the paths through it (make_fabric() in topology/routing.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace tawpipe::inline v0 {

/// Switches between nodes. Vertices 0 .. nodes-1 are the nodes, the switches follow. A node's
/// attachment has no cost of its own: the capacity of that cable is the node's adapter.
struct FabricGraph {
  struct Attachment {
    int node = 0;
    int at = 0;  ///< the switch's vertex
  };
  /// A full-duplex link between two switches.
  struct Edge {
    int a = 0;
    int b = 0;
    LinkSpec link = {};
  };

  int nodes = 0;
  std::vector<std::string> switches;
  std::vector<Attachment> attachments;
  std::vector<Edge> edges;

  explicit FabricGraph(int node_count = 0) : nodes{node_count} {}

  /// @return the switch's vertex.
  int add_switch(std::string name) {
    switches.push_back(std::move(name));
    return nodes + static_cast<int>(switches.size()) - 1;
  }
  void attach(int node, int at) { attachments.push_back({node, at}); }
  void connect(int a, int b, LinkSpec link) { edges.push_back({a, b, link}); }
};

/// The limit on nodes in a fabric: it keeps a path for each ordered pair.
inline constexpr int max_fabric_nodes = 2048;

namespace detail {

/// @throws InputError  if finding the paths from each of `sources` over all of `links` would take
/// more than a few seconds.
inline void check_routing_work(std::int64_t sources, std::int64_t links, std::string_view what) {
  constexpr std::int64_t most = std::int64_t{1} << 24;
  if (links <= most / std::max<std::int64_t>(sources, 1)) return;
  throw InputError(
      concat(what, " with ", sources, " ends and ", links, " links is too large; ends times links is at most ", most));
}

}  // namespace detail

namespace detail {

inline void check_fabric_graph(const FabricGraph& graph) {
  if (graph.nodes < 1 || graph.nodes > max_fabric_nodes) {
    throw InputError(concat("a fabric of ", graph.nodes, " nodes is impossible; it joins 1 to ", max_fabric_nodes));
  }
  constexpr std::size_t max_switches = 8192;
  if (graph.switches.size() > max_switches) {
    throw InputError(concat("a fabric of ", graph.switches.size(), " switches is too large; at most ", max_switches, " fit"));
  }
  const int end = graph.nodes + static_cast<int>(graph.switches.size());
  const auto is_switch = [&](int vertex) { return vertex >= graph.nodes && vertex < end; };
  for (const auto& edge : graph.edges) {
    if (is_switch(edge.a) && is_switch(edge.b)) continue;
    throw InputError(concat("a fabric link joins vertices ", edge.a, " and ", edge.b, "; both must be switches, ", graph.nodes,
                            " to ", end - 1));
  }
  for (const auto& attachment : graph.attachments) {
    if (attachment.node >= 0 && attachment.node < graph.nodes && is_switch(attachment.at)) continue;
    throw InputError(concat("node ", attachment.node, " is attached to vertex ", attachment.at, "; attach a node (0 to ",
                            graph.nodes - 1, ") to a switch (", graph.nodes, " to ", end - 1, ")"));
  }
}

}  // namespace detail

/// A leaf-spine network: each leaf switch serves `nodes_per_leaf` nodes and has one `uplink` to
/// each spine. Oversubscription is (nodes_per_leaf x adapters x their speed) / (spines x uplink
/// speed).
/// @throws InputError  if a count is below one or too large.
inline FabricGraph leaf_spine(int nodes, int nodes_per_leaf, int spines, LinkSpec uplink) {
  const int most = max_fabric_nodes;
  if (nodes < 1 || nodes_per_leaf < 1 || spines < 1 || nodes > most || spines > most) {
    throw InputError(concat("a leaf-spine network of ", nodes, " nodes, ", nodes_per_leaf, " a leaf and ", spines,
                            " spines is impossible; each must be at least 1, nodes and spines at most ", most));
  }
  const int leaves = (nodes - 1) / nodes_per_leaf + 1;
  detail::check_routing_work(nodes, std::int64_t{leaves} * spines, "a leaf-spine network");
  FabricGraph graph{nodes};
  for (int leaf = 0; leaf < leaves; ++leaf) graph.add_switch(concat("leaf", leaf));
  for (int node = 0; node < nodes; ++node) graph.attach(node, nodes + node / nodes_per_leaf);
  for (int spine = 0; spine < spines; ++spine) {
    const int vertex = graph.add_switch(concat("spine", spine));
    for (int leaf = 0; leaf < leaves; ++leaf) graph.connect(nodes + leaf, vertex, uplink);
  }
  return graph;
}

}  // namespace tawpipe
