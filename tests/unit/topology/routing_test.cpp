// Routes against a brute-force oracle, and the errors of graphs that cannot be.
// Not: the importers that draw the graphs.
#include "tawpipe/topology/routing.hpp"

#include <limits>
#include <map>
#include <set>

#include "tawpipe/topology/devices.hpp"
#include "unit/topology/samples.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using samples::contains;
using samples::error_of;

namespace {

DeviceSpec gpu() { return device_named("L40S-48G"); }

/// Two devices on one switch.
NodeGraph pair() {
  NodeGraph graph;
  const int a = graph.add_device("GPU0", gpu());
  const int b = graph.add_device("GPU1", gpu());
  const int hub = graph.add_switch("hub");
  graph.connect(a, hub, LinkClass::pcie, {24_GBps, 3_us});
  graph.connect(b, hub, LinkClass::pcie, {12_GBps, 2_us});
  return graph;
}

/// The weight of the cheapest route between all vertices, by Floyd and Warshall: no route passes
/// through a device or adapter, so those are never the middle.
std::vector<std::vector<std::int64_t>> oracle(const NodeGraph& graph) {
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  const std::size_t n = graph.vertices.size();
  std::vector<std::vector<std::int64_t>> best(n, std::vector<std::int64_t>(n, far));
  for (std::size_t v = 0; v < n; ++v) best[v][v] = 0;
  for (const auto& edge : graph.edges) {
    const auto a = static_cast<std::size_t>(edge.a);
    const auto b = static_cast<std::size_t>(edge.b);
    best[a][b] = std::min(best[a][b], route_weight(edge.link.bandwidth, graph.vertices[b].kind));
    best[b][a] = std::min(best[b][a], route_weight(edge.link.bandwidth, graph.vertices[a].kind));
  }
  for (std::size_t middle = 0; middle < n; ++middle) {
    const auto kind = graph.vertices[middle].kind;
    if (kind == VertexKind::device || kind == VertexKind::adapter) continue;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) best[i][j] = std::min(best[i][j], best[i][middle] + best[middle][j]);
    }
  }
  return best;
}

/// A connected random node: a tree of switches and CPUs, devices and adapters hung on it, and some
/// links more.
NodeGraph random_node(std::mt19937& random) {
  const double speeds[] = {1e9, 12e9, 24e9, 48e9, 240e9};
  const auto speed = [&] { return BytesPerSecond{speeds[random() % 5]}; };
  NodeGraph graph;
  const int inner = 1 + static_cast<int>(random() % 5);
  for (int i = 0; i < inner; ++i) {
    const int vertex = random() % 3 == 0 ? graph.add_cpu(concat("cpu", i)) : graph.add_switch(concat("switch", i));
    if (i > 0) graph.connect(vertex, static_cast<int>(random() % static_cast<unsigned>(i)), LinkClass::pcie, {speed(), 1_us});
  }
  const int outer = 2 + static_cast<int>(random() % 6);
  for (int i = 0; i < outer; ++i) {
    const int vertex = i > 1 && random() % 3 == 0 ? graph.add_adapter(concat("nic", i), {speed(), 9_us})
                                                  : graph.add_device(concat("gpu", i), gpu());
    graph.connect(vertex, static_cast<int>(random() % static_cast<unsigned>(inner)), LinkClass::pcie, {speed(), 1_us});
  }
  for (auto extra = random() % 6; extra > 0; --extra) {
    const auto n = static_cast<unsigned>(graph.vertices.size());
    const int a = static_cast<int>(random() % n);
    const int b = static_cast<int>(random() % n);
    if (a != b) graph.connect(a, b, LinkClass::nvlink, {speed(), 1_us});
  }
  return graph;
}

/// Walks links 2e and 2e+1 of the graph's edges; checks that they join up; adds up the weight. Ends
/// where it arrives.
std::int64_t walk(const NodeGraph& graph, const LinkPath& path, int& at) {
  std::int64_t weight = 0;
  for (const auto link : path) {
    if (static_cast<std::size_t>(link) >= 2 * graph.edges.size()) continue;  // the adapter's own port
    const auto& edge = graph.edges[static_cast<std::size_t>(link / 2)];
    const int from = link % 2 == 0 ? edge.a : edge.b;
    CHECK(from == at);
    at = link % 2 == 0 ? edge.b : edge.a;
    weight += route_weight(edge.link.bandwidth, graph.vertices[static_cast<std::size_t>(at)].kind);
  }
  return weight;
}

}  // namespace

TEST_CASE("a full-duplex link becomes two directed ones and latencies stand on both") {
  const NodeType node = make_node_type("pair", pair());
  REQUIRE(node.links.size() == 4);
  CHECK(node.paths[0 * 2 + 1] == LinkPath{0, 3});  // up edge 0 forwards, down edge 1 backwards
  CHECK(node.paths[1 * 2 + 0] == LinkPath{2, 1});
  CHECK(node.links[3].bandwidth == 12_GBps);
  const Cluster cluster{"pair", {node}, {0}};
  CHECK(cluster.route(Rank{0}, Rank{1}).latency == 5_us);  // 3 + 2
}

TEST_CASE("routes on random nodes are the cheapest, join up, and are the same both ways") {
  std::mt19937 random{2024};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const NodeGraph graph = random_node(random);
    const auto best = oracle(graph);
    std::vector<int> devices;
    std::vector<int> adapters;
    for (int v = 0; v < static_cast<int>(graph.vertices.size()); ++v) {
      const auto kind = graph.vertices[static_cast<std::size_t>(v)].kind;
      if (kind == VertexKind::device) devices.push_back(v);
      if (kind == VertexKind::adapter) adapters.push_back(v);
    }
    const NodeType node = make_node_type("random", graph);
    CHECK_NOTHROW(Cluster("random", {node}, {0}));
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (std::size_t j = 0; j < devices.size(); ++j) {
        int at = devices[i];
        const auto weight = walk(graph, node.paths[i * devices.size() + j], at);
        CHECK(at == devices[j]);
        // The way back is the same route, so it is cheapest too: a route's ends are devices, both
        // weigh one.
        CHECK(weight == best[static_cast<std::size_t>(devices[i])][static_cast<std::size_t>(devices[j])]);
      }
      if (adapters.empty()) continue;
      int at = devices[i];
      const auto out = walk(graph, node.to_network[i], at);
      auto nearest = std::numeric_limits<std::int64_t>::max();
      for (const int adapter : adapters) {
        nearest = std::min(nearest, best[static_cast<std::size_t>(devices[i])][static_cast<std::size_t>(adapter)]);
      }
      CHECK(out == nearest);
      CHECK(node.links[static_cast<std::size_t>(node.to_network[i].back())].end == LinkEnd::adapter_out);
      CHECK(node.links[static_cast<std::size_t>(node.from_network[i].front())].end == LinkEnd::adapter_in);
      walk(graph, node.from_network[i], at);
      CHECK(at == devices[i]);
    }
  }
}

TEST_CASE("NVLink is preferred to PCI Express, and no route passes through a third device") {
  NodeGraph graph = pair();
  const int third = graph.add_device("GPU2", gpu());
  graph.connect(third, 2, LinkClass::pcie, {24_GBps, 3_us});
  graph.connect(0, 1, LinkClass::nvlink, {100_GBps, 1_us});
  graph.connect(1, third, LinkClass::nvlink, {100_GBps, 1_us});
  const NodeType node = make_node_type("chain", graph);
  CHECK(node.paths[0 * 3 + 1].size() == 1);
  CHECK(node.links[static_cast<std::size_t>(node.paths[0 * 3 + 1][0])].kind == LinkClass::nvlink);
  // 0 to 2: two NVLinks by way of device 1 would be faster, but a device forwards nothing.
  CHECK(node.paths[0 * 3 + 2] == LinkPath{0, 5});
}

TEST_CASE("of equally fast ways, the one below the host bridge wins") {
  NodeGraph graph;
  const int a = graph.add_device("GPU0", gpu());
  const int b = graph.add_device("GPU1", gpu());
  const int cpu = graph.add_cpu("CPU0");
  const int hub = graph.add_switch("hub");
  for (const int device : {a, b}) graph.connect(device, cpu, LinkClass::pcie, {24_GBps, 1_us});
  for (const int device : {a, b}) graph.connect(device, hub, LinkClass::pcie, {24_GBps, 1_us});
  CHECK(make_node_type("both", graph).paths[1] == LinkPath{4, 7});  // edges 2 and 3 are the switch's
}

TEST_CASE("devices spread evenly over equally near adapters") {
  NodeGraph graph;
  const int hub = graph.add_switch("hub");
  for (int i = 0; i < 6; ++i) {
    graph.connect(graph.add_device(concat("GPU", i), gpu()), hub, LinkClass::pcie, {24_GBps, 1_us});
  }
  for (int i = 0; i < 3; ++i) {
    graph.connect(graph.add_adapter(concat("NIC", i), {10_GBps, 1_us}), hub, LinkClass::pcie, {24_GBps, 1_us});
  }
  const NodeType node = make_node_type("even", graph);
  std::map<std::int32_t, int> uses;
  for (const auto& path : node.to_network) ++uses[path.back()];
  CHECK(uses.size() == 3);
  for (const auto& [link, count] : uses) CHECK(count == 2);
}

TEST_CASE("a device with one near adapter does not push another from it: those with fewer choices choose first") {
  // Device 0 is near adapters 0 and 1, device 1 near adapter 0 only: 0 -> 1, 1 -> 0.
  CHECK(detail::spread_over_adapters({{0, 1}, {0}}, 2) == std::vector<int>{1, 0});
}

TEST_CASE("an adapter's port comes after the way to it, and its latency counts once") {
  NodeGraph graph = pair();
  const int nic = graph.add_adapter("NIC", {5_GBps, 8_us});
  graph.connect(nic, 2, LinkClass::pcie, {24_GBps, 1_us});
  const Cluster cluster{"two", {make_node_type("node", graph)}, {0, 0}};
  const Route route = cluster.route(Rank{0}, Rank{2});
  REQUIRE(route.links.size() == 6);  // GPU0-hub, hub-NIC, out; in, NIC-hub, hub-GPU0
  CHECK(route.latency == 3_us + 1_us + 8_us + 1_us + 3_us);
  CHECK(cluster.link(route.links[2]).end == LinkEnd::adapter_out);
  CHECK(cluster.link(route.links[3]).end == LinkEnd::adapter_in);
}

TEST_CASE("a graph that cannot be routed names what is wrong") {
  NodeGraph lonely = pair();
  lonely.add_device("GPU7", gpu());
  CHECK(
      contains(error_of([&] { make_node_type("n", lonely); }), "device 'GPU7' of node 'n' cannot be reached from device 'GPU0'"));

  NodeGraph no_way = pair();
  no_way.add_adapter("NIC", {1_GBps, 1_us});
  CHECK(contains(error_of([&] { make_node_type("n", no_way); }), "device 'GPU0' of node 'n' reaches no network adapter"));

  NodeGraph slow = pair();
  slow.edges[1].link.bandwidth = BytesPerSecond{0};
  CHECK(contains(error_of([&] { make_node_type("n", slow); }),
                 "the bandwidth of the link between 'GPU1' and 'hub' must be above zero"));

  NodeGraph dangling = pair();
  dangling.connect(0, 9, LinkClass::pcie, {1_GBps, 1_us});
  CHECK(contains(error_of([&] { make_node_type("n", dangling); }), "joins vertices 0 and 9, but there are 3 vertices"));

  NodeGraph negative = pair();
  negative.edges[0].link.latency = Duration{-1};
  CHECK(contains(error_of([&] { make_node_type("n", negative); }), "must not be negative"));

  NodeGraph unspecified = pair();
  unspecified.add_adapter("NIC", {});
  CHECK(contains(error_of([&] { make_node_type("n", unspecified); }), "the bandwidth of adapter 'NIC' must be above zero"));

  CHECK(contains(error_of([] { make_node_type("n", NodeGraph{}); }), "node 'n' has no device"));
}

TEST_CASE("a leaf-spine fabric spreads its destinations over the spines") {
  // 8 nodes, 4 a leaf, 2 spines: a leaf has 2 uplinks; destinations 4..7 take spines 0, 1, 0, 1.
  const Fabric fabric = make_fabric(leaf_spine(8, 4, 2, {10_GBps, 1_us}));
  CHECK(fabric.links.size() == 2 * 2 * 2);  // 2 leaves x 2 spines, both directions
  std::map<std::int32_t, int> uses;
  for (int to = 4; to < 8; ++to) {
    const auto& path = fabric.paths[static_cast<std::size_t>(to)];  // from node 0
    REQUIRE(path.size() == 2);
    ++uses[path[0]];
  }
  CHECK(uses.size() == 2);
  for (const auto& [link, count] : uses) CHECK(count == 2);
  // Within a leaf nothing above the adapters is crossed.
  CHECK(fabric.paths[0 * 8 + 3].empty());
}

TEST_CASE("a fabric's links lie between the adapters of a route") {
  NodeGraph graph = pair();
  graph.connect(graph.add_adapter("NIC", {5_GBps, 8_us}), 2, LinkClass::pcie, {24_GBps, 0_us});
  const Cluster cluster{
      "fabric", {make_node_type("node", graph)}, {0, 0, 0, 0}, make_fabric(leaf_spine(4, 2, 1, {3_GBps, 1_us}))};
  const Route same_leaf = cluster.route(Rank{0}, Rank{2});
  const Route across = cluster.route(Rank{0}, Rank{4});
  CHECK(across.links.size() == same_leaf.links.size() + 2);
  CHECK(across.latency - same_leaf.latency == 2_us);
  CHECK(cluster.link(across.links[3]).end == LinkEnd::fabric);
  CHECK(cluster.node_of(across.links[3]) == none<NodeId>);
}

TEST_CASE("an irregular fabric takes its fastest way") {
  FabricGraph graph{2};
  const int a = graph.add_switch("a");
  const int b = graph.add_switch("b");
  const int c = graph.add_switch("c");
  graph.attach(0, a);
  graph.attach(1, b);
  graph.connect(a, b, {1_GBps, 1_us});   // direct: one gigabyte takes 1 s
  graph.connect(a, c, {10_GBps, 1_us});  // by way of c: 2 x 0.1 s
  graph.connect(c, b, {10_GBps, 1_us});
  const Fabric fabric = make_fabric(graph);
  CHECK(fabric.paths[0 * 2 + 1] == LinkPath{2, 4});
  CHECK(fabric.paths[1 * 2 + 0] == LinkPath{5, 3});
}

TEST_CASE("a fabric that joins not all nodes names one") {
  FabricGraph graph{3};
  const int a = graph.add_switch("a");
  graph.attach(0, a);
  graph.attach(1, a);
  CHECK(contains(error_of([&] { make_fabric(graph); }), "node 0 cannot be reached from node 2"));
  graph.attach(2, 0);
  CHECK(contains(error_of([&] { make_fabric(graph); }),
                 "node 2 is attached to vertex 0; attach a node (0 to 2) to a switch (3 to 3)"));
  FabricGraph wrong{1};
  wrong.add_switch("a");
  wrong.connect(0, 1, {1_GBps, 1_us});
  CHECK(contains(error_of([&] { make_fabric(wrong); }), "both must be switches"));
  CHECK(contains(error_of([] { leaf_spine(4, 0, 1, {1_GBps, 1_us}); }), "each must be at least 1"));
  CHECK(contains(error_of([] { make_fabric(FabricGraph{3000}); }), "it joins 1 to 2048"));
  FabricGraph slow = leaf_spine(2, 1, 1, {BytesPerSecond{0}, 1_us});
  CHECK(contains(error_of([&] { make_fabric(slow); }), "the link between switch 'leaf0' and switch 'spine0' must be above zero"));
}

TEST_CASE("speeds from absurdly slow to absurdly fast keep their order") {
  CHECK(route_weight(BytesPerSecond{1e-300}, VertexKind::device) > route_weight(BytesPerSecond{1e9}, VertexKind::device));
  CHECK(route_weight(BytesPerSecond{1e300}, VertexKind::device) == 1);
}
