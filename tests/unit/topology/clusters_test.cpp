// The presets: their speeds, their shapes and their names.
// Not: files (cluster_file_test.cpp).
#include "tawpipe/topology/clusters.hpp"

#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/devices.hpp"
#include "unit/topology/samples.hpp"

using namespace tawpipe;
using samples::contains;

namespace {

/// The slowest link of a route.
double bottleneck(const Cluster& cluster, int from, int to) {
  double least = 1e30;
  for (const auto link : cluster.route(Rank{from}, Rank{to}).links) least = std::min(least, cluster.link(link).bandwidth.value());
  return least;
}

}  // namespace

TEST_CASE("every preset is built, says its source, and grows to several nodes") {
  for (const auto& preset : clusters::all()) {
    CAPTURE(preset.name);
    CHECK_FALSE(preset.description.empty());
    CHECK_FALSE(preset.source.empty());
    const Cluster cluster = clusters::named(preset.name);
    CHECK(cluster.name() == preset.name);
    CHECK(cluster.nodes() == preset.nodes);
    CHECK(cluster.ranks() == (preset.name.ends_with("nvl72") ? 72 : 8) * preset.nodes);
    const Cluster four = preset.make(4);
    CHECK(four.nodes() == 4);
    for (int to = 1; to < four.ranks(); ++to) CHECK_FALSE(four.route(Rank{0}, Rank{to}).links.empty());
  }
}

TEST_CASE("the A800 cluster of the paper has 160 GB/s NVLink and one 10 GbE adapter a node") {
  const Cluster cluster = clusters::named("a800x24-10gbe");
  CHECK(cluster.device(Rank{0}).peak.value() == 312e12);
  CHECK(cluster.device(Rank{0}).memory_bandwidth.value() == 2039e9);
  CHECK(bottleneck(cluster, 0, 1) == 160e9);
  // 10 Gb/s = 1.25 GB/s on the wire, 1448 of 1538 bytes are payload: 1.25 x 0.94148 = 1.17685 GB/s.
  CHECK(bottleneck(cluster, 0, 8) == doctest::Approx(1.17685e9).epsilon(1e-5));
  CHECK(cluster.route(Rank{0}, Rank{8}).links[0] == cluster.route(Rank{7}, Rank{8}).links[0]);
}

TEST_CASE("DGX nodes reach NCCL's speeds: NVSwitch inside, the adapter's slot between") {
  const Cluster a100 = cluster_named("dgx-a100*2");
  CHECK(bottleneck(a100, 0, 7) == 240e9);
  CHECK(bottleneck(a100, 0, 8) == doctest::Approx(24e9));  // 25 GB/s of HDR limited by a gen 4 slot
  const Cluster h100 = cluster_named("dgx-h100*2");
  CHECK(bottleneck(h100, 0, 7) == doctest::Approx(370.8e9));
  CHECK(bottleneck(h100, 0, 8) == doctest::Approx(48e9));  // 50 GB/s of NDR limited by a gen 5 slot
  CHECK(bottleneck(cluster_named("hgx-b200"), 0, 7) == doctest::Approx(18 * 40.1e9));
}

TEST_CASE("each GPU of a DGX node has an adapter of its own") {
  const Cluster cluster = cluster_named("dgx-a100*2");
  std::vector<LinkId> adapters;
  for (int rank = 0; rank < 8; ++rank) {
    for (const auto link : cluster.route(Rank{rank}, Rank{8}).links) {
      if (cluster.link(link).end == LinkEnd::adapter_out) adapters.push_back(link);
    }
  }
  REQUIRE(adapters.size() == 8);
  std::sort(adapters.begin(), adapters.end());
  CHECK(std::unique(adapters.begin(), adapters.end()) == adapters.end());
}

TEST_CASE("the latencies of a DGX node are NCCL's") {
  const Cluster cluster = cluster_named("dgx-h100*2");
  CHECK(cluster.route(Rank{0}, Rank{1}).latency == Duration{3'400'000});
  // GPU to switch 2.85, switch to adapter 0.1, adapter 8.3; back 0.1 and 2.85: 14.2 us.
  CHECK(cluster.route(Rank{0}, Rank{8}).latency == Duration{14'200'000});
}

TEST_CASE("L40S: a pair shares a switch, the socket link is crossed only between sockets") {
  const Cluster cluster = clusters::named("l40s-pcie");
  CHECK(cluster.route(Rank{0}, Rank{1}).links.size() == 2);
  CHECK(cluster.route(Rank{0}, Rank{2}).links.size() == 4);
  CHECK(cluster.route(Rank{0}, Rank{4}).links.size() == 5);
  CHECK(bottleneck(cluster, 0, 3) == doctest::Approx(24e9));
  CHECK(bottleneck(cluster, 0, 4) == doctest::Approx(10e9));
  // Ranks 0 and 1 leave their switch by the same uplink.
  CHECK(cluster.route(Rank{0}, Rank{2}).links[1] == cluster.route(Rank{1}, Rank{2}).links[1]);
}

TEST_CASE("a wrong name gets the nearest one") {
  CHECK(contains(samples::error_of([] { clusters::named("dgx-h10"); }), "unknown cluster 'dgx-h10'; did you mean 'dgx-h100'?"));
  CHECK(contains(samples::error_of([] { cluster_named("dgx-a10*2"); }), "did you mean 'dgx-a100'?"));
  CHECK(contains(samples::error_of([] { cluster_named("dgx-a100*999999999"); }), "at most 1000000 devices fit"));
}

TEST_CASE("a preset with a number of nodes carries it in its name") {
  CHECK(cluster_named("dgx-h100*16").ranks() == 128);
  CHECK(cluster_named("dgx-h100*16").name() == "dgx-h100*16");
  CHECK(cluster_named("a800x24-10gbe*5").ranks() == 40);
}

TEST_CASE("other names of a machine, and numbers of devices") {
  CHECK(cluster_named("dgx-b200*2").ranks() == 16);
  CHECK(cluster_named("DGX-H100x4").ranks() == 32);
  CHECK(cluster_named("gb200-nvl72x2").ranks() == 144);
  const auto shape = [](std::string_view text) {
    const Cluster cluster = resolve_cluster(text);
    return concat(cluster.nodes(), " of ", cluster.devices_in(NodeId{0}), " ", cluster.device(Rank{0}).name, ", ",
                  cluster.name());
  };
  CHECK(shape("64xH100") == "8 of 8 H100-80G, 64xH100");
  CHECK(shape("h100x4") == "1 of 4 H100-80G, h100x4");
  CHECK(shape("8x4090") == "1 of 8 RTX4090-24G, 8x4090");
  CHECK(shape("16xA100-40G") == "2 of 8 A100-40G, 16xA100-40G");
  CHECK(shape("144xGB200") == "2 of 72 GB200-186G, 144xGB200");
  CHECK(shape("3x8") == "3 of 8 A100-80G, 3x8");
  CHECK(contains(samples::error_of([] { resolve_cluster("36xH100"); }), "36 devices are no whole number of nodes of 8"));
  CHECK(contains(samples::error_of([] { resolve_cluster("8xH100", "H200"); }), "leave out --device"));
}

TEST_CASE("clouds' machines have the adapters of their pages, those beside a GPU as one") {
  const auto out = [](std::string_view name) {
    const Cluster cluster = cluster_named(name);
    double sum = 0;
    int adapters = 0;
    for (const Link& link : cluster.kinds().front().links) {
      if (link.end != LinkEnd::adapter_out) continue;
      ++adapters;
      sum += link.bandwidth.value() * 8e-9;
    }
    return std::pair{adapters, sum};
  };
  CHECK(out("p5.48xlarge") == std::pair{8, 3200.0});    // 32 x 100
  CHECK(out("p5en.48xlarge") == std::pair{8, 3200.0});  // 16 x 200
  CHECK(out("P4D.24xlarge*2") == std::pair{4, 400.0});
  CHECK(out("p3dn.24xlarge") == std::pair{1, 100.0});
  CHECK(out("A3-High") == std::pair{4, 800.0});
  CHECK(out("a3-mega") == std::pair{8, 1600.0});
  CHECK(out("a2-ultra") == std::pair{1, 100.0});
  CHECK(out("hgx-b300") == std::pair{8, 6400.0});
  CHECK(out("hgx-gaudi3") == std::pair{8, 4800.0});  // 24 x 200
  CHECK(out("gb300-nvl72") == std::pair{72, 57600.0});
  for (const clusters::OtherName& other : clusters::other_names()) {
    REQUIRE(clusters::find(other.name) != nullptr);
    CHECK(clusters::find(other.name)->name == other.preset);
  }
  // An 800 Gb/s adapter leaves by a gen 6 slot of 96 GB/s.
  CHECK(bottleneck(cluster_named("dgx-b300*2"), 0, 8) == doctest::Approx(96e9));
}

TEST_CASE("AMD's and Intel's devices have a link to each other, and no more in a node than have") {
  const Cluster mi300x = cluster_named("hgx-mi300x*2");
  CHECK(mi300x.route(Rank{0}, Rank{5}).links.size() == 1);
  CHECK(bottleneck(mi300x, 0, 5) == 48e9);
  CHECK(bottleneck(mi300x, 0, 8) == doctest::Approx(48e9));  // a slot; XGMI leads through no third device
  CHECK(bottleneck(cluster_named("hgx-gaudi3*2"), 0, 5) == doctest::Approx(75e9));
  CHECK(bottleneck(cluster_named("hgx-gaudi3*2"), 0, 8) == doctest::Approx(75e9));
  const Cluster sized = resolve_cluster("16xMI355X");
  CHECK(sized.nodes() == 2);
  CHECK(sized.link(sized.route(Rank{1}, Rank{6}).links[0]).kind == LinkClass::xgmi);
  CHECK(contains(samples::error_of([] { resolve_cluster("1x16", "MI300X"); }), "each has links to 7 others"));
}

TEST_CASE("GeForce have no peer access: messages pass the host's memory, with one adapter a node") {
  const Cluster cluster = resolve_cluster("16x4090");
  const auto classes = [&](int from, int to) {
    std::string text;
    for (const LinkId link : cluster.route(Rank{from}, Rank{to}).links) text += concat(name(cluster.link(link).kind), " ");
    return text;
  };
  CHECK(classes(0, 1) == "pcie memory pcie ");
  CHECK(classes(0, 7) == "pcie memory socket pcie ");
  CHECK(bottleneck(cluster, 0, 1) == doctest::Approx(24e9));
  CHECK(bottleneck(cluster, 0, 7) == doctest::Approx(10e9));  // NCCL's figure between sockets (nccl-tests#307)
  CHECK(cluster.route(Rank{0}, Rank{8}).links[0] == cluster.route(Rank{7}, Rank{8}).links[0]);
  CHECK(bottleneck(cluster, 0, 8) == doctest::Approx(12.5e9));
  const Cluster four = resolve_cluster("4x4090");
  CHECK(four.route(Rank{0}, Rank{3}).links.size() == 3);
  const Cluster matrix = cluster_from_text(samples::ours("pcie_4gpu_2nic.smi.txt"), "smi.txt", 0, "4090");
  const Route route = matrix.route(Rank{0}, Rank{1});
  CHECK(std::any_of(route.links.begin(), route.links.end(), [&](LinkId l) { return matrix.link(l).kind == LinkClass::memory; }));
}

TEST_CASE("devices are found by name, and carry their data sheet's numbers") {
  const DeviceSpec h200 = device_named("H200-141G");
  CHECK(h200.memory == Bytes{std::int64_t{141} << 30});
  CHECK(h200.peak.value() == 989e12);
  CHECK(h200.memory_bandwidth.value() == 4800e9);
  CHECK(h200.sms == 132);
  for (const auto& device : known_devices()) {
    CHECK(device_named(device.name).name == device.name);
    CHECK_FALSE(device.source.empty());
    CHECK(device.sms > 0);
  }
  CHECK(contains(samples::error_of([] { device_named("A100-81G"); }), "unknown device 'A100-81G'; did you mean 'A100-80G'?"));
}

TEST_CASE("cards with fewer NVLinks are told apart by name") {
  CHECK(usual_nvlinks(known_device("H100-80G")) == 18);
  CHECK(usual_nvlinks(known_device("H800-80G")) == 8);
  CHECK(usual_nvlinks(known_device("A800-80G")) == 8);
  CHECK(usual_nvlinks(known_device("L40S-48G")) == 0);
}
