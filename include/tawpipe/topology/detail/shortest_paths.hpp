// Cheapest paths from one vertex by Boost.Graph's Dijkstra, with vertices that no path may pass
// through.
// Not: public; topology/routing.hpp turns its results into links.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/property_map/property_map.hpp>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace tawpipe::inline v0::detail {

/// A directed, weighted connection; its id is its index in the list.
struct Arc {
  int from = 0;
  int to = 0;
  std::int64_t weight = 0;
};

/// The result for one source. A vertex that cannot be reached has distance `unreachable`.
struct PathTree {
  static constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> distance;  ///< [vertex]
  /// [vertex] the arc that enters it; -1 at the source and where unreachable
  std::vector<int> last_arc;
};

class ShortestPaths {
  struct ArcProperty {
    std::int64_t weight;
    int id;
  };
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, ArcProperty>;
  using Edge = boost::graph_traits<Graph>::edge_descriptor;

  /// Keeps the arcs that leave the source or a passable vertex.
  struct MayLeave {
    const std::vector<char>* passable = nullptr;
    std::size_t source = 0;
    bool operator()(const Edge& edge) const { return edge.m_source == source || (*passable)[edge.m_source] != 0; }
  };

  struct RememberArc : boost::default_dijkstra_visitor {
    explicit RememberArc(std::vector<int>& arcs) : last_arc{&arcs} {}
    template <class View>
    void edge_relaxed(const Edge& edge, const View& view) {
      (*last_arc)[target(edge, view)] = view[edge].id;
    }
    std::vector<int>* last_arc;
  };

 public:
  /// @param passable  [vertex] whether a path may pass through it; it may start and end anywhere.
  ShortestPaths(const std::vector<Arc>& arcs, std::vector<char> passable)
      : graph_(passable.size()), passable_{std::move(passable)} {
    int id = 0;
    for (const auto& arc : arcs) {
      add_edge(static_cast<std::size_t>(arc.from), static_cast<std::size_t>(arc.to), ArcProperty{arc.weight, id++}, graph_);
    }
  }

  /// Deterministic: ties between equal paths are broken by the order of the arcs. Complexity:
  /// O((vertices + arcs) log vertices).
  PathTree from(int source) const {
    PathTree tree;
    tree.distance.assign(passable_.size(), PathTree::unreachable);
    tree.last_arc.assign(passable_.size(), -1);
    const auto start = static_cast<std::size_t>(source);
    const boost::filtered_graph<Graph, MayLeave> view{graph_, MayLeave{&passable_, start}};
    // The map is not a raw pointer: where reverse_graph.hpp (strong components) is included first,
    // Boost 1.74 finds no get() for one.
    const auto distance = boost::make_iterator_property_map(tree.distance.begin(), get(boost::vertex_index, graph_));
    boost::dijkstra_shortest_paths(view, start,
                                   boost::weight_map(get(&ArcProperty::weight, graph_))
                                       .distance_map(distance)
                                       .distance_inf(PathTree::unreachable)
                                       .visitor(RememberArc{tree.last_arc}));
    return tree;
  }

 private:
  Graph graph_;
  std::vector<char> passable_;
};

}  // namespace tawpipe::detail
