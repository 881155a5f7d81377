// Tests of graph/algorithms.hpp and its adaptor to Boost.Graph.
// Not: schedules as graphs (unit/analysis/).
#include "tawpipe/graph/algorithms.hpp"

#include <doctest/doctest.h>

#include <boost/concept/assert.hpp>
#include <boost/graph/graph_concepts.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/property_map/property_map.hpp>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tawpipe/graph/boost_adaptor.hpp"

using namespace tawpipe;

namespace {

using Edges = std::vector<std::pair<std::size_t, std::size_t>>;

Digraph graph(std::size_t vertices, const Edges& edges) {
  return Digraph{vertices, [&](auto&& visit) {
                   for (const auto& [from, to] : edges) visit(from, to);
                 }};
}
using Order = std::vector<Digraph::Vertex>;

BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<Digraph>));
BOOST_CONCEPT_ASSERT((boost::IncidenceGraphConcept<Digraph>));

}  // namespace

TEST_CASE("the topological order takes the smallest that is free") {
  CHECK(topological_order(graph(4, {{3, 0}, {0, 1}})) == Order{2, 3, 0, 1});
  CHECK(topological_order(graph(3, {})) == Order{0, 1, 2});
  CHECK(topological_order(Digraph{}).empty());
  CHECK(topological_order(graph(4, {{0, 1}, {1, 2}, {2, 1}, {2, 3}})) == Order{0});  // 3 is after the cycle
}

TEST_CASE("a shortest cycle is named in its order") {
  CHECK(shortest_cycle(graph(3, {{0, 1}, {1, 2}})).empty());
  CHECK(shortest_cycle(Digraph{}).empty());
  CHECK(shortest_cycle(graph(3, {{0, 1}, {1, 1}, {1, 0}})) == Order{1});
  CHECK(shortest_cycle(graph(6, {{0, 1}, {1, 2}, {2, 0}, {3, 4}, {4, 3}, {2, 3}, {5, 0}})) == Order{3, 4});
  CHECK(shortest_cycle(graph(5, {{0, 2}, {2, 4}, {4, 0}, {0, 1}, {1, 2}})) == Order{0, 2, 4});
  // With no effort allowed, the first cycle will do.
  CHECK(shortest_cycle(graph(5, {{0, 1}, {1, 2}, {2, 0}, {3, 4}, {4, 3}}), 0).size() == 3);
}

TEST_CASE("strong components part vertices that cannot reach each other") {
  const auto components = strong_components(graph(5, {{0, 1}, {1, 0}, {1, 2}, {2, 3}, {3, 2}}));
  CHECK(components[0] == components[1]);
  CHECK(components[2] == components[3]);
  CHECK(std::set<std::int32_t>(components.begin(), components.end()).size() == 3);
}

TEST_CASE("strong components are those of Boost.Graph, by the adaptor") {
  std::mt19937 random{6};
  for (std::size_t round = 0; round < 300; ++round) {
    const std::size_t vertices = 1 + round % 20;
    Edges edges;
    for (std::size_t e = random() % (2 * vertices); e > 0; --e) edges.emplace_back(random() % vertices, random() % vertices);
    const Digraph made = graph(vertices, edges);
    const auto found = strong_components(made);
    std::vector<std::int32_t> expected(vertices, 0);
    boost::strong_components(made, boost::make_iterator_property_map(expected.begin(), get(boost::vertex_index, made)));
    std::map<std::int32_t, std::int32_t> same;
    for (std::size_t v = 0; v < vertices; ++v) CHECK(same.try_emplace(found[v], expected[v]).first->second == expected[v]);
    CHECK(same.size() == std::set<std::int32_t>(expected.begin(), expected.end()).size());
  }
}

TEST_CASE("a chain of a million vertices is no deeper than its memory") {
  constexpr std::size_t vertices = 1'000'000;
  const Digraph ring{vertices, [](auto&& visit) {
                       for (std::size_t v = 0; v < vertices; ++v) visit(v, (v + 1) % vertices);
                     }};
  const auto components = strong_components(ring);
  CHECK(std::count(components.begin(), components.end(), 0) == vertices);
}

TEST_CASE("an order is short exactly where there is a cycle") {
  std::mt19937 random{5};
  for (int round = 0; round < 200; ++round) {
    Edges edges;
    for (int e = 0; e < 12; ++e) edges.emplace_back(random() % 9, random() % 9);
    const Digraph made = graph(9, edges);
    const auto cycle = shortest_cycle(made);
    CHECK((topological_order(made).size() < 9) == !cycle.empty());
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      const auto next = made.successors(static_cast<std::size_t>(cycle[i]));
      CHECK(std::find(next.begin(), next.end(), cycle[(i + 1) % cycle.size()]) != next.end());
    }
  }
}
