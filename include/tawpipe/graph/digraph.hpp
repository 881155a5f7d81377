// A directed graph as an immutable value: compressed sparse rows of successors.
// Not: what its vertices are (tasks, ranks), nor algorithms on it (graph/algorithms.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tawpipe::inline v0 {

/// Vertices 0 .. vertices()-1 and their successors. Parallel edges and loops are allowed.
class Digraph {
 public:
  using Vertex = std::int32_t;

  Digraph() = default;
  /// Counts, then fills: `for_each_edge(visit)` must call `visit(from, to)` for the same edges in
  /// each call.
  template <class ForEachEdge>
  Digraph(std::size_t vertices, ForEachEdge&& for_each_edge) : begin_(vertices + 1, 0) {
    for_each_edge([&](std::size_t from, std::size_t) { ++begin_[from + 1]; });
    for (std::size_t v = 0; v < vertices; ++v) begin_[v + 1] += begin_[v];
    to_.resize(begin_[vertices]);
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    for_each_edge([&](std::size_t from, std::size_t to) { to_[next[from]++] = static_cast<Vertex>(to); });
  }

  std::size_t vertices() const { return begin_.empty() ? 0 : begin_.size() - 1; }
  std::size_t edges() const { return to_.size(); }
  std::span<const Vertex> successors(std::size_t vertex) const {
    return std::span<const Vertex>{to_}.subspan(begin_[vertex], begin_[vertex + 1] - begin_[vertex]);
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<Vertex> to_;
};

}  // namespace tawpipe
