// Bytes sent, worked out by hand. Without a model each payload counts 1 MB.
#include "tawpipe/analysis/traffic.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"

using namespace tawpipe;

namespace {

constexpr std::int64_t megabyte = 1'000'000;

}  // namespace

TEST_CASE("one activation there and one gradient back cross between the nodes, once each") {
  const test::TwoRanks two;
  const Traffic found = traffic(two.schedule, two.cluster);
  CHECK(found.inter_node_bytes == 2 * megabyte);
  CHECK(found.intra_node_bytes == 0);
  CHECK(found.node_egress_bytes == std::vector<std::int64_t>{megabyte, megabyte});
  CHECK(found.node_ingress_bytes == std::vector<std::int64_t>{megabyte, megabyte});
  CHECK(found.max_node_egress_bytes() == megabyte);
  CHECK(found.payload_bytes[static_cast<std::size_t>(Payload::activations)][1] == megabyte);
  CHECK(found.payload_bytes[static_cast<std::size_t>(Payload::activation_gradients)][1] == megabyte);
  // Each message crosses two adapters' links: out of one, into the other.
  CHECK(found.link_bytes[static_cast<std::size_t>(LinkClass::network)] == 4 * megabyte);
}

TEST_CASE("an exchange brings activations one way and gradients the other") {
  const test::TwoRanks two;
  const auto bytes = [&](bool overlap, Payload payload) {
    const Schedule schedule = schedules::one_f_one_b(Workload::abstract(2, 4), 2, {.overlap = overlap});
    return traffic(schedule, two.cluster).payload_bytes[static_cast<std::size_t>(payload)][1];
  };
  for (const bool overlap : {false, true}) {  // without, sends and receives go together
    CHECK(bytes(overlap, Payload::activations) == 4 * megabyte);
    CHECK(bytes(overlap, Payload::activation_gradients) == 4 * megabyte);
  }
}

TEST_CASE("a ring collective sends its part over each edge") {
  const Cluster cluster = ClusterBuilder{}
                              .device({.name = "d"})
                              .nodes(2)
                              .devices_per_node(2)
                              .intra_node({.bandwidth = BytesPerSecond{1e9}, .latency = Duration{}})
                              .inter_node({.bandwidth = BytesPerSecond{1e9}, .latency = Duration{}})
                              .build();
  const Schedule schedule = schedules::fully_sharded(Workload::abstract(4, 4), cluster.groups_by_node());
  const Traffic found = traffic(schedule, cluster);
  // 4 units, gathered twice and scattered once, 3/4 of 1 MB over each of the ring's 4 edges, 2 of
  // which cross.
  CHECK(found.inter_node_bytes == 4 * 3 * 2 * megabyte * 3 / 4);
  CHECK(found.intra_node_bytes == found.inter_node_bytes);
  CHECK(found.max_node_egress_bytes() == found.inter_node_bytes / 2);
  std::int64_t sent = 0;
  for (const auto bytes : found.rank_sent_bytes) sent += bytes;
  CHECK(sent == found.inter_node_bytes + found.intra_node_bytes);
}
