// Sizes as text: what they mean and how they fail.
// Not: the presets (clusters_test.cpp).
#include "tawpipe/topology/cluster_dimensions.hpp"

#include "unit/topology/samples.hpp"

using namespace tawpipe;
using samples::contains;

TEST_CASE("nodes x devices is a regular cluster of A100s with an adapter for each device") {
  const Cluster cluster = cluster_from_dimensions("3x8");
  CHECK(cluster.nodes() == 3);
  CHECK(cluster.ranks() == 24);
  CHECK(cluster.name() == "3x8");
  CHECK(cluster.device(Rank{0}) == device_named("A100-80G"));
  // Links of a node: 8 ports, 8 adapters and 8 links to the host, each out and in, and the host's memory.
  CHECK(cluster.links() == 3 * 49);
  // NVLink 12 x 20 GB/s; the adapters of two devices of one node are different links.
  CHECK(cluster.link(cluster.route(Rank{0}, Rank{1}).links[0]).bandwidth.value() == 240e9);
  CHECK(cluster.route(Rank{0}, Rank{8}).links[0] != cluster.route(Rank{1}, Rank{8}).links[0]);
  CHECK(cluster.link(cluster.route(Rank{0}, Rank{8}).links[0]).bandwidth.value() == doctest::Approx(24e9));
}

TEST_CASE("a + b + c are unequal nodes") {
  const Cluster cluster = cluster_from_dimensions("8+8+4");
  CHECK(cluster.nodes() == 3);
  CHECK(cluster.ranks() == 20);
  CHECK(cluster.devices_in(NodeId{2}) == 4);
  CHECK(cluster.kinds().size() == 2);
}

TEST_CASE("a device that is named has the links of its usual machine; without a name one is assumed") {
  CHECK(cluster_from_dimensions("1x2").device(Rank{0}).assumed);
  CHECK(cluster_from_dimensions("2x2") == cluster_from_dimensions("2x2", "A100-80G"));
  const Cluster hopper = cluster_from_dimensions("2x2", "H100-80G");
  CHECK(hopper.device(Rank{1}).name == "H100-80G");
  CHECK_FALSE(hopper.device(Rank{1}).assumed);
  CHECK(hopper.kinds()[0].links[0].bandwidth.value() == doctest::Approx(370.8e9));  // 18 x 20.6
  CHECK(cluster_from_dimensions("1x2", "A800-80G").kinds()[0].links[0].bandwidth.value() == doctest::Approx(160e9));
  const Link slot = cluster_from_dimensions("1x2", "L40S-48G").kinds()[0].links[0];
  CHECK(slot.kind == LinkClass::pcie);
  CHECK(slot.bandwidth.value() == doctest::Approx(24e9));
}

TEST_CASE("a size that cannot be says why") {
  const auto error = [](std::string_view text) { return samples::error_of([&] { cluster_from_dimensions(text); }); };
  for (const char* text : {"x", "3x", "x8", "3x8x2", "3x-8", "8+", "+8", "8++4", "", "3 x 8", "axb", "1e2x4"}) {
    CAPTURE(text);
    CHECK(contains(error(text), "is not a cluster size: write nodes x devices such as 3x8"));
  }
  CHECK(error("0x8") == "a cluster of 0 nodes is impossible; it needs at least 1");
  CHECK(error("8x0") == "a node of 0 devices is impossible; it needs at least 1");
  CHECK(error("8+0") == "a node of 0 devices is impossible; it needs at least 1");
  CHECK(contains(error("1001x1000"), "at most 1000000 devices fit"));
  CHECK(contains(error("99999999999999999999x8"), "at most 1000000 devices fit"));
  CHECK(contains(error("999999+999999"), "at most 1000000 devices fit"));
  CHECK(contains(error("1x4096"), "at most 2048 fit; spread them over several nodes"));
}

TEST_CASE("a million devices are built without a pause") { CHECK(cluster_from_dimensions("125000x8").ranks() == 1'000'000); }

TEST_CASE("a number of nodes may follow a star") {
  CHECK(split_node_count("dgx*16") == std::pair<std::string_view, int>{"dgx", 16});
  CHECK(split_node_count("dgx") == std::pair<std::string_view, int>{"dgx", 0});
  for (const char* text : {"dgx*", "dgx*0", "dgx*-1", "dgx*four", "dgx*2 "}) {
    CHECK(contains(samples::error_of([&] { split_node_count(text); }), "does not say how many nodes"));
  }
}

TEST_CASE("only digits, x and + make a size") {
  CHECK(looks_like_dimensions("3x8"));
  CHECK(looks_like_dimensions("x"));
  CHECK_FALSE(looks_like_dimensions("8"));
  CHECK_FALSE(looks_like_dimensions("xyz"));
  CHECK_FALSE(looks_like_dimensions("./3x8"));
}
