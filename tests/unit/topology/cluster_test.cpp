// A Cluster's numbering, routes and checks, and the builder of regular ones.
// Not: how other descriptions become clusters.
#include "tawpipe/topology/cluster.hpp"

#include "tawpipe/topology/cluster_builder.hpp"
#include "unit/topology/samples.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using samples::contains;
using samples::error_of;

namespace {

ClusterBuilder two_by_two() {
  return ClusterBuilder{}
      .device({.name = "test", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .nodes(2)
      .devices_per_node(2)
      .intra_node({100_GBps, 3_us})
      .inter_node({1_GBps, 30_us});
}

NodeType one_device() {
  NodeType type;
  type.name = "one";
  type.devices.resize(1);
  type.paths.resize(1);
  return type;
}

}  // namespace

TEST_CASE("ranks and links are numbered node by node") {
  const Cluster cluster = two_by_two().build();
  CHECK(cluster.ranks() == 4);
  CHECK(cluster.nodes() == 2);
  CHECK(cluster.links() == 2 * 6);  // 2 ports and 1 adapter, out and in
  CHECK(cluster.node_of(Rank{1}) == NodeId{0});
  CHECK(cluster.node_of(Rank{2}) == NodeId{1});
  CHECK(cluster.local_index(Rank{3}) == 1);
  CHECK(cluster.first_rank(NodeId{1}) == Rank{2});
  CHECK(cluster.node_of(LinkId{5}) == NodeId{0});
  CHECK(cluster.node_of(LinkId{6}) == NodeId{1});
  CHECK(cluster.same_node(Rank{2}, Rank{3}));
  CHECK(cluster.groups_by_node().count() == 2);
}

TEST_CASE("a route crosses two ports inside a node and two adapters between nodes") {
  const Cluster cluster = two_by_two().build();
  const Route inside = cluster.route(Rank{0}, Rank{1});
  CHECK(inside.links == std::vector<LinkId>{LinkId{0}, LinkId{3}});
  CHECK(inside.latency == 3_us);
  const Route between = cluster.route(Rank{1}, Rank{2});
  CHECK(between.links == std::vector<LinkId>{LinkId{4}, LinkId{6 + 5}});
  CHECK(between.latency == 30_us);
  CHECK(cluster.route(Rank{1}, Rank{1}).links.empty());
}

TEST_CASE("equal clusters compare equal") {
  CHECK(two_by_two().build() == two_by_two().build());
  CHECK_FALSE(two_by_two().build() == two_by_two().inter_node({2_GBps, 30_us}).build());
  CHECK_FALSE(two_by_two().build() == two_by_two().nodes(3).build());
}

TEST_CASE("several adapters are shared by neighbours") {
  const Cluster cluster = two_by_two().devices_per_node(4).adapters_per_node(2).build();
  const auto adapter = [&](int rank) { return cluster.route(Rank{rank}, Rank{4}).links[0]; };
  CHECK(adapter(0) == adapter(1));
  CHECK(adapter(2) == adapter(3));
  CHECK(adapter(0) != adapter(2));
}

TEST_CASE("the builder names the part that is missing or impossible") {
  CHECK(contains(error_of([] { two_by_two().nodes(0).build(); }), "a cluster of 0 nodes is impossible"));
  CHECK(contains(error_of([] { two_by_two().devices_per_node(0).build(); }), "a node of 0 devices is impossible"));
  CHECK(contains(error_of([] { two_by_two().devices_per_node(5000).build(); }), "at most 2048 fit"));
  std::vector<std::int32_t> sizes;
  for (int size = 1; size <= 700; ++size) sizes.push_back(size);  // 700^3 / 3 = 114 million paths
  CHECK(contains(error_of([&] { two_by_two().devices_of_nodes(sizes).build(); }), "nodes of different sizes are too much"));
  CHECK(contains(error_of([] { two_by_two().intra_node({}).build(); }), "the intra-node bandwidth must be above zero"));
  CHECK(contains(error_of([] { two_by_two().inter_node({}).build(); }), "the inter-node bandwidth must be above zero"));
  CHECK(contains(error_of([] { two_by_two().inter_node({1_GBps, Duration{-1}}).build(); }), "must not be negative"));
  CHECK(contains(error_of([] { two_by_two().adapters_per_node(0).build(); }), "at least one adapter"));
}

TEST_CASE("a cluster refuses node types that contradict themselves") {
  CHECK(contains(error_of([] { Cluster("c", {one_device()}, {}); }), "at least one node with one device"));
  CHECK(contains(error_of([] { Cluster("c", {one_device()}, {0, 0}); }), "node type 'one' has no network adapter, so 2 of them"));
  CHECK(contains(error_of([] { Cluster("c", {one_device()}, {1}); }), "node 0 is of node type 1, but there are 1 types"));
  CHECK(contains(error_of([] { Cluster("c", {one_device()}, {-1}); }), "node 0 is of node type -1"));
  const auto broken = [](auto change) {
    NodeType type = one_device();
    type.links = {{LinkClass::pcie, LinkEnd::inside, 1_GBps, 1_us}};
    change(type);
    return error_of([&] { Cluster("c", {type}, {0}); });
  };
  CHECK(broken([](NodeType&) {}).empty());
  CHECK(contains(broken([](NodeType& type) { type.devices.clear(); }), "node type 'one' has no devices"));
  CHECK(contains(broken([](NodeType& type) { type.paths.clear(); }), "has 0 paths between devices; it needs 1"));
  CHECK(contains(broken([](NodeType& type) { type.paths[0] = {7}; }), "uses link 7, but there are 1 links"));
  CHECK(contains(broken([](NodeType& type) { type.to_network = {{0}}; }), "has 0 paths from the network; it needs 1"));
  CHECK(contains(broken([](NodeType& type) { type.links[0].bandwidth = BytesPerSecond{-1}; }), "no bandwidth above zero"));
  CHECK(contains(broken([](NodeType& type) { type.links[0].latency = Duration{-1}; }), "negative or above 1000 s"));
  const Fabric fabric{{{LinkClass::network, LinkEnd::fabric, 1_GBps, 1_us}}, {{0}, {0}}};
  CHECK(
      contains(error_of([&] { Cluster("c", {one_device()}, {0}, fabric); }), "the fabric has 2 paths between nodes; it needs 1"));
}

TEST_CASE("every kind of link and end has a name") {
  CHECK(name(LinkClass::nvlink) == "nvlink");
  CHECK(name(LinkClass::network) == "network");
  CHECK(name(LinkEnd::adapter_in) == "adapter_in");
  CHECK(name(LinkEnd::fabric) == "fabric");
}
