// Tests of topology/host_memory.hpp: capacity and bandwidth of a node's host, given, known or usual.
// Not: what fits there (unit/analysis/host_memory_test.cpp).
#include "tawpipe/topology/host_memory.hpp"

#include <set>
#include <string>

#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "unit/topology/samples.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using samples::contains;
using samples::error_of;

namespace {

/// The link of the memory of a device's host: the last before it, and the first after.
LinkId memory_link(const Cluster& cluster, Rank rank) {
  const LinkId link = cluster.route(rank, host_memory).links.back();
  CHECK(cluster.route(host_memory, rank).links.front() == link);
  CHECK(cluster.link(link).kind == LinkClass::memory);
  CHECK(cluster.link(link).end == LinkEnd::host);
  return link;
}

const std::string regular = R"({"device": "A100-80G", "nodes": 2, "devices_per_node": 2,
  "intra_node": {"bandwidth": "200GBps"}, "inter_node": {"bandwidth": "10GBps"}, "host_link": {"bandwidth": "24GBps"})";

}  // namespace

TEST_CASE("a usual host has twice its devices' memory, and the bandwidth of two sockets of its generation") {
  for (const auto& [device, capacity, bandwidth] : {std::tuple{"A100-40G", 1_GiB * 1024, 327_GBps},
                                                    {"A100-80G", 1_GiB * 2048, 327_GBps},
                                                    {"H100-80G", 1_GiB * 2048, 491_GBps},
                                                    {"B200-180G", 1_GiB * 4096, 573_GBps},
                                                    {"V100-32G", 1_GiB * 512, 204_GBps}}) {
    CAPTURE(device);
    const Cluster cluster = cluster_from_dimensions("2x8", device);
    CHECK(cluster.memory_of_host(NodeId{1}) == capacity);
    CHECK(cluster.kinds()[0].host_memory_assumed);
    CHECK(cluster.link(memory_link(cluster, Rank{0})).bandwidth == bandwidth);
  }
}

TEST_CASE("modules with a CPU of their own bring its memory: a rack has that of all") {
  for (const int devices : {4, 72}) {
    const Cluster cluster = cluster_from_dimensions(concat("1x", devices), "GB200-186G");
    CHECK(cluster.memory_of_host(NodeId{0}) == Bytes{236'000'000'000} * devices);
    CHECK(!cluster.kinds()[0].host_memory_assumed);
    CHECK(cluster.link(memory_link(cluster, Rank{0})).bandwidth == 256_GBps * static_cast<double>(devices));
  }
}

TEST_CASE("all devices of a node share their host's memory, both ways, and no others") {
  for (const char* name : {"dgx-a100*2", "dgx-h100*2", "l40s-pcie*2", "2x8"}) {
    CAPTURE(name);
    const Cluster cluster = resolve_cluster(name);
    std::set<LinkId> links;
    for (int rank = 0; rank < 8; ++rank) links.insert(memory_link(cluster, Rank{rank}));
    CHECK(links.size() == 1);
    CHECK(links.count(memory_link(cluster, Rank{8})) == 0);
  }
}

TEST_CASE("a DGX has the host memory of its data sheet") {
  for (const char* name : {"dgx-a100", "dgx-h100", "hgx-h200", "hgx-b200"}) {
    CAPTURE(name);
    CHECK(clusters::named(name).memory_of_host(NodeId{0}) == Bytes{2'000'000'000'000});
    CHECK_FALSE(clusters::named(name).kinds()[0].host_memory_assumed);
  }
  CHECK(clusters::named("l40s-pcie").kinds()[0].host_memory_assumed);
}

TEST_CASE("a file says a host's memory, and keeps it") {
  const Cluster said = cluster_from_json(regular + R"(, "host_memory": "500GB", "host_memory_bandwidth": "100GBps"})");
  CHECK(said.memory_of_host(NodeId{0}) == 500_GB);
  CHECK_FALSE(said.kinds()[0].host_memory_assumed);
  CHECK(said.link(memory_link(said, Rank{3})).bandwidth == 100_GBps);
  const Cluster unsaid = cluster_from_json(regular + "}");
  CHECK(unsaid.memory_of_host(NodeId{0}) == 1_GiB * 512);
  CHECK(unsaid.kinds()[0].host_memory_assumed);
  for (const Cluster& cluster : {said, unsaid, clusters::named("dgx-h100")}) {
    CHECK(cluster_from_json(write_cluster_json(cluster)) == cluster);
  }
  const Cluster drawn =
      cluster_from_json(R"({"node_types": [{"name": "n", "host_memory_bytes": 7, "host_memory_bandwidth": "9GBps",
    "vertices": [{"name": "GPU0", "kind": "device", "device": "A100-80G"}, {"name": "CPU0", "kind": "cpu"}],
    "edges": [{"between": ["GPU0", "CPU0"], "kind": "pcie", "bandwidth": "24GBps"}]}]})");
  CHECK(drawn.memory_of_host(NodeId{0}) == Bytes{7});
  CHECK(drawn.link(memory_link(drawn, Rank{0})).bandwidth == 9_GBps);
  CHECK(contains(error_of([&] { cluster_from_json(regular + R"(, "host_memory": "0GB"})"); }), "host_memory"));
  CHECK(contains(error_of([&] { cluster_from_json(regular + R"(, "host_memory_bandwidth": "0GBps"})"); }),
                 "host_memory_bandwidth"));
}
