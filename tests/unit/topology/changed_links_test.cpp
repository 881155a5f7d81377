// Tests of topology/changed_links.hpp.
// Not: sweeps and sensitivities, which use it.
#include "tawpipe/topology/changed_links.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/cluster_file.hpp"

TEST_CASE("the links that are asked for change, and nothing else") {
  using namespace tawpipe;
  const Cluster cluster = ClusterBuilder{}
                              .name("two")
                              .device({.name = "d", .memory = Bytes{1}, .peak = FlopsPerSecond{1}})
                              .nodes(2)
                              .devices_per_node(2)
                              .intra_node({BytesPerSecond{100e9}, Duration{1000}})
                              .inter_node({BytesPerSecond{1e9}, Duration{2000}})
                              .build();
  const Cluster changed = with_changed_links(cluster, [](Link& link) {
    if (link.kind == LinkClass::network) link.bandwidth = BytesPerSecond{2e9};
  });
  CHECK(changed.name() == "two");
  CHECK(changed.ranks() == 4);
  for (int l = 0; l < cluster.links(); ++l) {
    const Link& before = cluster.link(LinkId{l});
    const Link& after = changed.link(LinkId{l});
    CHECK(after.bandwidth.value() == (before.kind == LinkClass::network ? 2e9 : before.bandwidth.value()));
    CHECK(after.latency == before.latency);
  }
  CHECK(with_changed_links(cluster, [](Link&) {}) == cluster);
  CHECK(with_changed_devices(cluster, [](DeviceSpec&) {}) == cluster);
  const Cluster larger = with_changed_devices(cluster, [](DeviceSpec& device) { device.memory = Bytes{2}; });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(larger.device(Rank{rank}).memory == Bytes{2});
    CHECK(larger.device(Rank{rank}).peak == cluster.device(Rank{rank}).peak);
  }
  for (int l = 0; l < cluster.links(); ++l) CHECK(larger.link(LinkId{l}) == cluster.link(LinkId{l}));
  CHECK_THROWS_AS(with_changed_links(cluster, [](Link& link) { link.bandwidth = BytesPerSecond{}; }), InputError);
}

TEST_CASE("between nodes is PCI Express too, where devices of a node have NVLink") {
  using namespace tawpipe;
  for (const char* name : {"dgx-h100*2", "l40s-pcie*2"}) {
    CAPTURE(name);
    const Cluster cluster = resolve_cluster(name);
    CHECK(pcie_leaves_nodes(cluster) == (cluster.name() == "dgx-h100*2"));
    const Cluster between = with_faster_links(cluster, true, 2);
    const Cluster inside = with_faster_links(cluster, false, 2);
    for (int l = 0; l < cluster.links(); ++l) {
      const Link& before = cluster.link(LinkId{l});
      const double all = between.link(LinkId{l}).bandwidth.value() * inside.link(LinkId{l}).bandwidth.value();
      CHECK(all == doctest::Approx(before.bandwidth.value() * before.bandwidth.value() * (before.end == LinkEnd::host ? 1 : 2)));
      if (before.end == LinkEnd::host || before.kind == LinkClass::network || before.kind == LinkClass::nvlink) continue;
      CHECK((between.link(LinkId{l}).bandwidth.value() > before.bandwidth.value()) == pcie_leaves_nodes(cluster));
    }
  }
}

TEST_CASE("the first nodes are those of the same cluster with fewer") {
  using namespace tawpipe;
  const Cluster four = resolve_cluster("dgx-h100*4");
  const Cluster three = first_nodes(four, 3);
  CHECK(three == Cluster{four.name(), four.kinds(), {0, 0, 0}});
  CHECK(first_nodes(four, 4) == four);
  // Nodes of two kinds under a fabric with a link of its own for each ordered pair.
  std::vector<NodeType> kinds = resolve_cluster("2x1").kinds();
  kinds.push_back(kinds.front());
  kinds.back().name = "other";
  Fabric fabric;
  for (int i = 0; i < 9; ++i) {
    fabric.links.push_back({LinkClass::network, LinkEnd::fabric, BytesPerSecond{1e9 + i}, Duration{}});
    fabric.paths.push_back(i % 4 == 0 ? LinkPath{} : LinkPath{i});
  }
  const Cluster whole{"fabric", kinds, {0, 1, 0}, fabric};
  const Cluster less = first_nodes(whole, 2);
  CHECK(less.nodes() == 2);
  CHECK(less.kind_of(NodeId{1}).name == "other");
  const auto speeds = [](const Cluster& cluster, int from, int to) {
    std::vector<double> all;
    for (const LinkId link : cluster.route(Rank{from}, Rank{to}).links) all.push_back(cluster.link(link).bandwidth.value());
    return all;
  };
  for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 0}}) CHECK(speeds(less, from, to) == speeds(whole, from, to));
}

TEST_CASE("adapters of another speed: slots grow with faster ones, and where there are none it is refused") {
  using namespace tawpipe;
  const auto between = [](const Cluster& cluster) {
    double least = 1e30;
    for (const LinkId link : cluster.route(Rank{0}, Rank{8}).links) least = std::min(least, cluster.link(link).bandwidth.value());
    return least;
  };
  const Cluster cluster = resolve_cluster("dgx-h100*2");  // adapters of 50 GB/s in slots of 48
  CHECK(between(with_adapter_speed(cluster, BytesPerSecond{12.5e9})) == doctest::Approx(12.5e9));
  CHECK(between(with_adapter_speed(cluster, BytesPerSecond{100e9})) == doctest::Approx(96e9));
  const Cluster alone =
      ClusterBuilder{}.device({.name = "d", .memory = Bytes{1}, .peak = FlopsPerSecond{1}}).devices_per_node(1).build();
  CHECK_THROWS_AS(with_adapter_speed(alone, BytesPerSecond{1e9}), InputError);
}
