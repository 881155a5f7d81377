// Tests of cost/collective_cost.hpp: edges, volumes and hops of each collective.
// Not: the time they take (roofline_test.cpp).
#include "tawpipe/cost/collective_cost.hpp"

#include <doctest/doctest.h>

#include <map>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/hand_built.hpp"

using doctest::Approx;
using tawpipe::Algorithm;
using tawpipe::collective_shape;
using tawpipe::CollectiveShape;
using tawpipe::Op;
using tawpipe::Rank;

namespace {

using Edges = std::vector<std::pair<Rank, Rank>>;

std::vector<Rank> first(int count) {
  std::vector<Rank> ranks;
  for (int r = 0; r < count; ++r) ranks.push_back(Rank{r});
  return ranks;
}

CollectiveShape ring(Op op, int members, int root = 0) {
  return collective_shape(op, Algorithm::ring, first(members), Rank{root}, support::cluster(members));
}

Edges edges(std::initializer_list<std::pair<int, int>> numbers) {
  Edges all;
  for (const auto& [from, to] : numbers) all.emplace_back(Rank{from}, Rank{to});
  return all;
}

}  // namespace

TEST_CASE("a gather or scatter sends (n-1)/n of the buffer over each edge of the ring, in n-1 hops") {
  for (const auto op : {Op::all_gather, Op::reduce_scatter}) {
    const CollectiveShape shape = ring(op, 4);
    CHECK(shape.edges == edges({{0, 1}, {1, 2}, {2, 3}, {3, 0}}));
    CHECK(shape.fraction == Approx(3.0 / 4));
    CHECK(shape.latency_steps == 3);
  }
}

TEST_CASE("an all-reduce is a scatter and a gather: 2(n-1)/n over each edge, in 2(n-1) hops") {
  const CollectiveShape shape = ring(Op::all_reduce, 5);
  CHECK(shape.edges.size() == 5);
  CHECK(shape.fraction == Approx(8.0 / 5));
  CHECK(shape.latency_steps == 8);
}

TEST_CASE("a broadcast is a chain from the root, a reduce one towards it, the whole buffer over each edge") {
  const CollectiveShape broadcast = ring(Op::broadcast, 4, 2);
  CHECK(broadcast.edges == edges({{2, 3}, {3, 0}, {0, 1}}));
  CHECK(broadcast.fraction == 1);
  CHECK(broadcast.latency_steps == 3);
  const CollectiveShape reduce = ring(Op::reduce, 4, 2);
  CHECK(reduce.edges == edges({{3, 2}, {0, 3}, {1, 0}}));
  CHECK(reduce.fraction == 1);
}

TEST_CASE("alone, a member sends nothing") {
  for (const auto op : {Op::broadcast, Op::reduce, Op::all_gather, Op::reduce_scatter, Op::all_reduce}) {
    const CollectiveShape shape = ring(op, 1);
    CHECK(shape.edges.empty());
    CHECK(shape.latency_steps == 0);
  }
  CHECK(ring(Op::all_reduce, 1).fraction == 0);
}

TEST_CASE("two members use both directions of one link") {
  CHECK(ring(Op::all_gather, 2).edges == edges({{0, 1}, {1, 0}}));
  CHECK(ring(Op::all_gather, 2).fraction == Approx(0.5));
}

TEST_CASE("only an all-reduce takes the tree: chains in the nodes, a binary tree between them, each edge both ways") {
  const auto cluster = support::cluster(9, 3);
  const CollectiveShape shape = collective_shape(Op::all_reduce, Algorithm::tree, first(9), Rank{0}, cluster);
  // chains 2 -> 1 -> 0, 5 -> 4 -> 3, 8 -> 7 -> 6; heads 3 and 6 below head 0
  std::map<std::pair<int, int>, int> found;
  for (const auto& [from, to] : shape.edges) ++found[{number(from), number(to)}];
  CHECK(found.size() == 2 * (6 + 2));
  for (const auto& [below, above] : {std::pair{1, 0}, {2, 1}, {4, 3}, {5, 4}, {7, 6}, {8, 7}, {3, 0}, {6, 0}}) {
    CHECK(found[{below, above}] == 1);
    CHECK(found[{above, below}] == 1);
  }
  CHECK(shape.fraction == 1);
  CHECK(shape.latency_steps == 2 * (2 + 1));  // up a chain of 2 and a tree of depth 1, and down again
  const CollectiveShape gather = collective_shape(Op::all_gather, Algorithm::tree, first(9), Rank{0}, cluster);
  CHECK(gather.edges.size() == 9);
}

TEST_CASE("the tree between n nodes has depth floor(log2 n)") {
  for (const auto& expected : {std::pair{1, 0}, {2, 1}, {3, 1}, {4, 2}, {7, 2}, {8, 3}}) {
    const int nodes = expected.first;
    CAPTURE(nodes);
    const auto shape = collective_shape(Op::all_reduce, Algorithm::tree, first(nodes), Rank{0}, support::cluster(nodes, nodes));
    CHECK(shape.latency_steps == 2 * expected.second);
    CHECK(shape.edges.size() == 2 * static_cast<std::size_t>(nodes - 1));
  }
}

TEST_CASE("a pass has one edge, an exchange one each way, and a collective its own") {
  const tawpipe::Cluster cluster = support::cluster(4);
  auto builder = support::two_lanes(4);
  const auto group = builder.group(first(4));
  const tawpipe::Schedule schedule = builder.build();
  tawpipe::Task task = support::pass(2, 0, tawpipe::Bytes{1});
  const auto shape = [&] { return communication_shape(schedule, task, Algorithm::ring, cluster); };
  CHECK(shape().edges == edges({{2, 0}}));
  task.op = Op::exchange;
  CHECK(shape().edges == edges({{2, 0}, {0, 2}}));
  CHECK(shape().fraction == 1);
  CHECK(shape().latency_steps == 1);
  task.op = Op::broadcast;
  task.group = group;
  CHECK(shape().edges == edges({{2, 3}, {3, 0}, {0, 1}}));
}

TEST_CASE("a host copy has one edge to or from the host's memory, and blocks one between each two members") {
  const tawpipe::Cluster cluster = support::cluster(3);
  auto builder = support::two_lanes(3);
  const auto group = builder.group(first(3));
  const tawpipe::Schedule schedule = builder.build();
  const auto shape = [&](Op op) {
    return communication_shape(schedule, {.op = op, .rank = Rank{1}, .group = group}, Algorithm::ring, cluster);
  };
  CHECK(shape(Op::copy_to_host).edges == Edges{{Rank{1}, tawpipe::host_memory}});
  CHECK(shape(Op::copy_from_host).edges == Edges{{tawpipe::host_memory, Rank{1}}});
  CHECK(shape(Op::all_to_all).edges == edges({{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}));
  CHECK(shape(Op::all_to_all).fraction == Approx(1.0 / 3));
  CHECK(shape(Op::forward).edges.empty());
}

TEST_CASE("the first byte waits the mean of the edges' latencies at each step") {
  // 1, 2 and 6 us: a mean of 3 us; an all-reduce of three ranks makes four steps
  const CollectiveShape shape = ring(Op::all_reduce, 3);
  CHECK(shape.latency(9e-6) == tawpipe::seconds(12e-6));
  CHECK(CollectiveShape{}.latency(0) == tawpipe::Duration{});
}
