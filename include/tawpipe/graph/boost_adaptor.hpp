// Digraph as a model of Boost.Graph's VertexListGraph and IncidenceGraph, without a copy.
// Not: algorithms (graph/algorithms.hpp); to use Boost.Graph on a schedule, start here.
#pragma once

#include <boost/graph/graph_traits.hpp>
#include <boost/graph/properties.hpp>
#include <boost/iterator/counting_iterator.hpp>
#include <boost/iterator/iterator_facade.hpp>
#include <boost/property_map/property_map.hpp>
#include <cstddef>
#include <utility>

#include "tawpipe/graph/digraph.hpp"

namespace tawpipe::inline v0 {

/// An edge of a Digraph for Boost.Graph.
struct DigraphEdge {
  std::size_t from = 0;
  std::size_t to = 0;
  bool operator==(const DigraphEdge&) const = default;
};

/// Walks the edges that leave one vertex.
class DigraphOutEdges : public boost::iterator_facade<DigraphOutEdges, DigraphEdge, boost::forward_traversal_tag, DigraphEdge> {
 public:
  DigraphOutEdges() = default;
  DigraphOutEdges(std::size_t from, const Digraph::Vertex* at) : from_{from}, at_{at} {}

 private:
  friend class boost::iterator_core_access;
  DigraphEdge dereference() const { return {from_, static_cast<std::size_t>(*at_)}; }
  bool equal(const DigraphOutEdges& other) const { return at_ == other.at_; }
  void increment() { ++at_; }

  std::size_t from_ = 0;
  const Digraph::Vertex* at_ = nullptr;
};

// Found by argument-dependent lookup.
inline std::pair<boost::counting_iterator<std::size_t>, boost::counting_iterator<std::size_t>> vertices(const Digraph& graph) {
  return {boost::counting_iterator<std::size_t>{0}, boost::counting_iterator<std::size_t>{graph.vertices()}};
}
inline std::size_t num_vertices(const Digraph& graph) { return graph.vertices(); }
inline std::pair<DigraphOutEdges, DigraphOutEdges> out_edges(std::size_t vertex, const Digraph& graph) {
  const auto row = graph.successors(vertex);
  return {DigraphOutEdges{vertex, row.data()}, DigraphOutEdges{vertex, row.data() + row.size()}};
}
inline std::size_t out_degree(std::size_t vertex, const Digraph& graph) { return graph.successors(vertex).size(); }
inline std::size_t source(const DigraphEdge& edge, const Digraph&) { return edge.from; }
inline std::size_t target(const DigraphEdge& edge, const Digraph&) { return edge.to; }
inline boost::identity_property_map get(boost::vertex_index_t, const Digraph&) { return {}; }

}  // namespace tawpipe

namespace boost {

template <>
struct graph_traits<tawpipe::Digraph> {
  struct traversal_category : vertex_list_graph_tag, incidence_graph_tag {};
  using vertex_descriptor = std::size_t;
  using edge_descriptor = tawpipe::DigraphEdge;
  using directed_category = directed_tag;
  using edge_parallel_category = allow_parallel_edge_tag;
  using vertex_iterator = counting_iterator<std::size_t>;
  using out_edge_iterator = tawpipe::DigraphOutEdges;
  using vertices_size_type = std::size_t;
  using edges_size_type = std::size_t;
  using degree_size_type = std::size_t;
  static vertex_descriptor null_vertex() { return static_cast<std::size_t>(-1); }
};

template <>
struct property_map<tawpipe::Digraph, vertex_index_t> {
  using type = identity_property_map;
  using const_type = identity_property_map;
};

}  // namespace boost
