// Graph algorithms for schedules: an order in which to run them, or the shortest cycle that
// prevents one.
// Not: routes over a topology (topology/routing.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/graph/digraph.hpp"

namespace tawpipe::inline v0 {

/// The vertices in an order in which every edge points forward; among candidates always the
/// smallest. Shorter than the graph if it has a cycle: then vertices on or after a cycle are
/// missing.
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

/// The strong component of each vertex. Complexity: O(vertices + edges), without recursion: a chain
/// of tasks may be long.
/// Source: Tarjan 1972, Depth-first search and linear graph algorithms.
inline std::vector<std::int32_t> strong_components(const Digraph& graph) {
  struct Visit {
    std::size_t vertex;
    std::int32_t number;    ///< in the order in which vertices are first seen
    std::size_t edges = 0;  ///< followed so far
  };
  std::vector<std::int32_t> component(graph.vertices(), -1);
  std::vector<std::int32_t> lowest(graph.vertices(), -1);  // number of a vertex that can be reached; -1: not seen
  std::vector<std::size_t> open;                           // seen, and not yet in a component
  std::vector<Visit> path;
  std::int32_t seen = 0;
  std::int32_t components = 0;
  const auto enter = [&](std::size_t vertex) {
    lowest[vertex] = seen;
    open.push_back(vertex);
    path.push_back({vertex, seen++});
  };
  for (std::size_t start = 0; start < graph.vertices(); ++start) {
    if (lowest[start] < 0) enter(start);
    while (!path.empty()) {
      const std::size_t vertex = path.back().vertex;
      const auto successors = graph.successors(vertex);
      if (path.back().edges < successors.size()) {
        const auto next = static_cast<std::size_t>(successors[path.back().edges++]);
        if (lowest[next] < 0) {
          enter(next);
        } else if (component[next] < 0) {
          lowest[vertex] = std::min(lowest[vertex], lowest[next]);
        }
        continue;
      }
      if (lowest[vertex] == path.back().number) {
        const auto first = std::find(open.rbegin(), open.rend(), vertex).base() - 1;
        std::for_each(first, open.end(), [&](std::size_t member) { component[member] = components; });
        open.erase(first, open.end());
        ++components;
      }
      path.pop_back();
      if (!path.empty()) lowest[path.back().vertex] = std::min(lowest[path.back().vertex], lowest[vertex]);
    }
  }
  return component;
}

/// The vertices of a shortest cycle in the order of its edges; empty if there is none.
///
/// @param effort  edges to visit before the best cycle so far is accepted; some cycle is found
/// whatever the effort
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
