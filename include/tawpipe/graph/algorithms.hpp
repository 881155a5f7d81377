// What schedules ask of graphs: an order in which to run them, or the shortest cycle that forbids one.
// Not: routes over a topology (topology/routing.hpp).
#pragma once

#include <algorithm>
#include <boost/graph/strong_components.hpp>
#include <boost/property_map/property_map.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/graph/boost_adaptor.hpp"
#include "tawpipe/graph/digraph.hpp"

namespace tawpipe::inline v0 {

/// The vertices in an order in which every edge points forward; of those free to come next always the smallest.
/// Shorter than the graph if it has a cycle: then what lies on or behind one is missing.
/// Complexity: O(edges + vertices log vertices).
inline std::vector<Digraph::Vertex> topological_order(const Digraph& graph) {
  std::vector<std::uint32_t> before(graph.vertices(), 0);
  for (std::size_t v = 0; v < graph.vertices(); ++v) {
    for (const auto next : graph.successors(v)) ++before[static_cast<std::size_t>(next)];
  }
  const auto larger = [](Digraph::Vertex a, Digraph::Vertex b) { return a > b; };
  std::vector<Digraph::Vertex> free;
  std::vector<Digraph::Vertex> order;
  order.reserve(graph.vertices());
  for (std::size_t v = 0; v < graph.vertices(); ++v) {
    if (before[v] == 0) free.push_back(static_cast<Digraph::Vertex>(v));  // ascending, so already a heap
  }
  while (!free.empty()) {
    std::pop_heap(free.begin(), free.end(), larger);
    const auto vertex = free.back();
    free.pop_back();
    order.push_back(vertex);
    for (const auto next : graph.successors(static_cast<std::size_t>(vertex))) {
      if (--before[static_cast<std::size_t>(next)] != 0) continue;
      free.push_back(next);
      std::push_heap(free.begin(), free.end(), larger);
    }
  }
  return order;
}

/// The strong component of each vertex, by Boost.Graph. Complexity: O(vertices + edges).
inline std::vector<std::int32_t> strong_components(const Digraph& graph) {
  std::vector<std::int32_t> component(graph.vertices(), 0);
  if (component.empty()) return component;
  boost::strong_components(graph, boost::make_iterator_property_map(component.begin(), get(boost::vertex_index, graph)));
  return component;
}

/// The vertices of a shortest cycle in the order of its edges; empty if there is none.
///
/// @param effort  edges to look at before the best cycle found so far is good enough; any cycle is found whatever the effort
/// Complexity: O(vertices + edges + min(effort, vertices * edges of the components)).
inline std::vector<Digraph::Vertex> shortest_cycle(const Digraph& graph, std::size_t effort = 20'000'000) {
  const std::vector<std::int32_t> component = strong_components(graph);
  std::vector<Digraph::Vertex> from(graph.vertices(), -1);
  std::vector<Digraph::Vertex> stamp(graph.vertices(), -1);
  std::vector<Digraph::Vertex> queue;
  std::vector<Digraph::Vertex> best;
  std::size_t looked_at = 0;
  for (std::size_t start = 0; start < graph.vertices(); ++start) {
    if (!best.empty() && looked_at > effort) break;
    const auto root = static_cast<Digraph::Vertex>(start);
    queue.assign(1, root);
    stamp[start] = root;
    from[start] = -1;
    bool closed = false;
    for (std::size_t i = 0; i < queue.size() && !closed; ++i) {
      const auto at = static_cast<std::size_t>(queue[i]);
      for (const auto next : graph.successors(at)) {
        ++looked_at;
        const auto n = static_cast<std::size_t>(next);
        if (component[n] != component[start]) continue;
        if (next == root) {
          std::vector<Digraph::Vertex> cycle;
          for (auto v = queue[i]; v >= 0; v = from[static_cast<std::size_t>(v)]) cycle.push_back(v);
          std::reverse(cycle.begin(), cycle.end());
          if (best.empty() || cycle.size() < best.size()) best = cycle;
          closed = true;
          break;
        }
        if (stamp[n] == root) continue;
        stamp[n] = root;
        from[n] = queue[i];
        queue.push_back(next);
      }
    }
    if (best.size() == 1) break;
  }
  return best;
}

}  // namespace tawpipe
