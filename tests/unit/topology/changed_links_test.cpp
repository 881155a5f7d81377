// Tests of topology/changed_links.hpp.
// Not: sweeps and sensitivities, which use it.
#include "tawpipe/topology/changed_links.hpp"

#include <doctest/doctest.h>

#include "tawpipe/core/units.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

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
