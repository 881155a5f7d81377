// Cluster files: the JSON format both ways, formats told by content, and names resolved.
// Not: the importers' own details (nvidia_smi_topology_test.cpp, nccl_topology_xml_test.cpp).
#include "tawpipe/topology/cluster_file.hpp"

#include "tawpipe/topology/clusters.hpp"
#include "unit/topology/samples.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using samples::contains;
using samples::error_of;
using samples::ours;

namespace {

std::string json_error(const std::string& text) {
  return error_of([&] { cluster_from_json(text, "lab.json"); });
}

/// The regular sample with one piece of text replaced.
std::string with(const std::string& from, const std::string& to, const std::string& file = "regular.cluster.json") {
  std::string text = ours(file);
  const auto place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

}  // namespace

TEST_CASE("the regular form") {
  const Cluster cluster = cluster_from_json(ours("regular.cluster.json"));
  const Cluster expected = ClusterBuilder{}
                               .name("lab")
                               .device(device_named("A100-80G"))
                               .nodes(3)
                               .devices_per_node(8)
                               .intra_node({200_GBps, 3_us})
                               .inter_node({10_Gbps, 30_us})
                               .adapters_per_node(2)
                               .build();
  CHECK(cluster == expected);
}

TEST_CASE("the link of each device to the memory of its host: said, of a graph with CPUs found, kept in the dump, or not known") {
  const Cluster said = cluster_from_json(with(R"("adapters_per_node": 2)", R"("adapters_per_node": 2,
    "host_link": {"bandwidth": "24GBps", "latency": "6us"})"));
  for (const Rank rank : {Rank{0}, Rank{23}}) {
    const Route out = said.route(rank, host_memory);
    const Route in = said.route(host_memory, rank);
    REQUIRE(out.links.size() == 2);  // its own link, and the host's memory
    CHECK(said.link(out.links[0]) == Link{LinkClass::pcie, LinkEnd::host, 24_GBps, 6_us});
    REQUIRE(in.links.size() == 2);
    CHECK(in.links[1] != out.links[0]);
    CHECK(out.latency == 6_us);
  }
  CHECK(said.route(Rank{0}, host_memory).links != said.route(Rank{1}, host_memory).links);
  CHECK(cluster_from_json(write_cluster_json(said)) == said);
  const Cluster unsaid = cluster_from_json(ours("regular.cluster.json"));
  CHECK(contains(error_of([&] { unsaid.route(Rank{0}, host_memory); }), "give \"host_link\" in the cluster's file"));
  // Two GPUs of a DGX A100 share a PCI Express switch and its link to the CPU: device, switch, CPU, its memory.
  const Cluster dgx = clusters::named("dgx-a100");
  CHECK(dgx.route(Rank{0}, host_memory).links.size() == 3);
  CHECK(dgx.route(Rank{0}, host_memory).links[1] == dgx.route(Rank{1}, host_memory).links[1]);
  CHECK(dgx.route(Rank{0}, host_memory).links[1] != dgx.route(Rank{2}, host_memory).links[1]);
  CHECK(dgx.link(dgx.route(host_memory, Rank{0}).links[1]).bandwidth == 24_GBps);
  CHECK(cluster_from_json(write_cluster_json(dgx)) == dgx);
}

TEST_CASE("unequal nodes of a device with numbers of its own") {
  const Cluster cluster = cluster_from_json(ours("unequal.cluster.json"));
  CHECK(cluster.ranks() == 5);
  CHECK(cluster.devices_in(NodeId{2}) == 1);
  CHECK(cluster.device(Rank{4}).name == "home-made");
  CHECK(cluster.device(Rank{4}).memory == 12_GiB);
  CHECK(cluster.device(Rank{4}).peak == 25_TFLOPS);
  CHECK(cluster.link(cluster.route(Rank{0}, Rank{1}).links[0]).kind == LinkClass::pcie);
}

TEST_CASE("the graph form: node types, nodes by name, and a fabric") {
  const Cluster cluster = cluster_from_json(ours("graph.cluster.json"));
  CHECK(cluster.name() == "two racks");
  CHECK(cluster.ranks() == 5);
  CHECK(cluster.device(Rank{4}).name == "H100-80G");
  // 0 -> 2 stays in rack 0: GPU, root, NIC; out, in; NIC, root, GPU. 0 -> 4 crosses the racks' link
  // as well.
  CHECK(cluster.route(Rank{0}, Rank{2}).links.size() == 6);
  const Route across = cluster.route(Rank{0}, Rank{4});
  REQUIRE(across.links.size() == 3 + 1 + 2);
  CHECK(cluster.link(across.links[3]).end == LinkEnd::fabric);
  CHECK(cluster.link(across.links[3]).bandwidth == 40_Gbps);
  CHECK(across.latency == 3_us + 8_us + 1_us + 3_us);
}

TEST_CASE("a leaf-spine fabric in short") {
  const std::string fabric =
      R"("fabric": {"nodes_per_leaf": 2, "spines": 1, "uplink": {"bandwidth": "5GBps", "latency": "1us"}})";
  std::string text = ours("graph.cluster.json");
  text = text.substr(0, text.find("\"fabric\"")) + fabric + "}";
  const Cluster cluster = cluster_from_json(text);
  CHECK(cluster.route(Rank{0}, Rank{2}).links.size() == 6);
  CHECK(cluster.route(Rank{0}, Rank{4}).links.size() == 3 + 2 + 2);  // up to the spine, down to the other leaf
}

TEST_CASE("what is written reads back as an equal cluster") {
  std::vector<Cluster> clusters{cluster_from_dimensions("3x8"), cluster_from_dimensions("4+2+1"), cluster_named("dgx-a100*2")};
  for (const auto& preset : clusters::all()) clusters.push_back(preset.make(preset.nodes));
  for (const char* ending : {".cluster.json", ".smi.txt", ".nccl.xml"}) {
    for (const auto& path : samples::all_ours(ending)) clusters.push_back(read_cluster_file(path));
  }
  // Numbers that no short decimal holds.
  clusters.push_back(ClusterBuilder{}
                         .device({.name = "odd",
                                  .memory = Bytes{12345678901},
                                  .peak = FlopsPerSecond{1e15 / 3},
                                  .peak_fp8 = FlopsPerSecond{2e15 / 3},
                                  .peak_fp4 = FlopsPerSecond{4e15 / 3},
                                  .memory_bandwidth = BytesPerSecond{1e12 / 7},
                                  .sms = 77})
                         .nodes(2)
                         .devices_per_node(2)
                         .intra_node({BytesPerSecond{1e11 / 3}, Duration{1234567}})
                         .inter_node({BytesPerSecond{1.25e9 * 1448 / 1538}, Duration{1}})
                         .build());
  for (const auto& cluster : clusters) {
    CAPTURE(cluster.name());
    const std::string text = write_cluster_json(cluster);
    CHECK(cluster_from_json(text) == cluster);
    CHECK(write_cluster_json(cluster_from_json(text)) == text);
  }
}

TEST_CASE("broken JSON is told with line and column in one line") {
  CHECK(contains(json_error("{\n  \"name\": }"), "lab.json: not JSON: line 2, column 11: "));
  CHECK(contains(json_error(""), "lab.json: not JSON: line 1"));
  CHECK(contains(json_error("{\"a\\nb\": 1}"), "unknown key 'a?b'"));  // a line break in a key stays out of the message
  CHECK(contains(json_error("[1]"), "lab.json: expected an object {...}, not a list"));
}

TEST_CASE("unknown keys get the nearest known one") {
  CHECK(contains(json_error(with("\"nodes\"", "\"node\"")), "lab.json: unknown key 'node'; did you mean 'nodes'?"));
  CHECK(contains(json_error(with("\"kind\"", "\"knid\"")), "intra_node: unknown key 'knid'; did you mean 'kind'?"));
  CHECK(contains(json_error(with("\"memory\"", "\"memry\"", "unequal.cluster.json")),
                 "device: unknown key 'memry'; did you mean 'memory'?"));
  CHECK(contains(json_error("{\"node_types\": [], \"fabrik\": 1}"), "unknown key 'fabrik'; did you mean 'fabric'?"));
}

TEST_CASE("values that cannot be say what would be right") {
  CHECK(contains(json_error(with("200GBps", "-200GBps")), "intra_node.bandwidth: '-200GBps' is not a bandwidth"));
  CHECK(contains(json_error(with("200GBps", "0GBps")), "it must be above zero"));
  CHECK(contains(json_error(with("\"200GBps\"", "200")), "intra_node.bandwidth: expected a text in quotes, not 200"));
  CHECK(contains(json_error(with("\"bandwidth\": \"200GBps\"", "\"bytes_per_second\": -1")),
                 "expected a number above zero, not -1"));
  CHECK(contains(json_error(with("3us", "3")), "'3' is not a duration"));
  CHECK(contains(json_error(with("\"nvlink\"", "\"nvlnk\"")), "unknown kind 'nvlnk'; did you mean 'nvlink'?"));
  CHECK(contains(json_error(with("A100-80G", "A101")), "unknown device 'A101'"));
  CHECK(contains(json_error(with("\"nodes\": 3", "\"nodes\": 0")),
                 "lab.json: nodes: expected a whole number from 1 to 1000000, not 0"));
  CHECK(contains(json_error(with("\"nodes\": 3", "\"nodes\": 2.5")), "not 2.5"));
  CHECK(contains(json_error(with("\"nodes\": 3", "\"nodes\": 99999999999999999999")), "expected a whole number"));
  CHECK(contains(json_error(with("\"nodes\": 3", "\"nodes\": \"3\"")), "expected a whole number from 1 to 1000000, not \"3\""));
  CHECK(contains(json_error(with("\"nodes\": 3", "\"nodes\": 999999")), "at most 1000000 devices fit"));
  CHECK(contains(json_error(with("\"devices_per_node\": 8", "\"devices_per_node\": 8, \"devices_of_nodes\": [8]")), "not both"));
  CHECK(contains(json_error(with("[2, 2, 1]", "[]", "unequal.cluster.json")), "the list is empty"));
  CHECK(
      contains(json_error(with("[2, 2, 1]", "[2, 0]", "unequal.cluster.json")), "expected a whole number from 1 to 2048, not 0"));
  CHECK(contains(json_error(with("\"12GiB\"", "\"0GiB\"", "unequal.cluster.json")), "memory: must be above zero"));
  CHECK(contains(json_error(with("\"25TFLOPS\"", "\"25TFLOPS\", \"sms\": 0", "unequal.cluster.json")),
                 "device.sms: expected a whole number from 1 to 4096, not 0"));
  CHECK(contains(json_error("{\"nodes\": 1, \"devices_per_node\": 1}"), "lab.json: 'device' is missing"));
  CHECK(contains(json_error("{\"device\": 7, \"devices_per_node\": 1}"), "device: expected an object {...}, not 7"));
}

TEST_CASE("graphs that cannot be name the vertex") {
  const std::string file = "graph.cluster.json";
  CHECK(contains(json_error(with("[\"NIC\", \"root\"]", "[\"NIC\", \"rot\"]", file)),
                 "edges[2].between[1]: unknown vertex 'rot'; did you mean 'root'?"));
  CHECK(contains(json_error(with("\"name\": \"GPU1\"", "\"name\": \"GPU0\"", file)), "vertices[1].name: 'GPU0' occurs twice"));
  CHECK(contains(json_error(with("\"kind\": \"cpu\"", "\"kind\": \"gpu\"", file)), "unknown kind 'gpu'; did you mean 'cpu'?"));
  CHECK(contains(json_error(with("[\"NIC\", \"root\"]", "[\"NIC\"]", file)), "expected the names of two vertices"));
  CHECK(contains(json_error(with("[\"pair\", \"pair\", \"single\"]", "[\"pear\"]", file)),
                 "unknown node type 'pear'; did you mean 'pair'?"));
  CHECK(contains(json_error(with("[\"pair\", \"pair\", \"single\"]", "3", file)),
                 "with several node types, list the type of each node"));
  CHECK(contains(json_error(with("[\"rack0\", \"rack0\", \"rack1\"]", "[\"rack0\"]", file)),
                 "a switch for each of the 3 nodes, not a list of 1"));
  CHECK(contains(json_error(with("[\"rack0\", \"rack0\", \"rack1\"]", "[\"rack9\"]", file)), "fabric.attach"));
}

TEST_CASE("formats are told by content") {
  CHECK(cluster_format("  {\"name\"") == ClusterFormat::json);
  CHECK(cluster_format("\xef\xbb\xbf<system") == ClusterFormat::nccl_xml);
  CHECK(cluster_format(ours("nvlink_8gpu_glued.smi.txt")) == ClusterFormat::nvidia_smi);
  CHECK(cluster_format("") == ClusterFormat::unknown);
  CHECK(cluster_format("hello") == ClusterFormat::unknown);
  CHECK(contains(error_of([] { cluster_from_text("hello", "readme.txt"); }),
                 "readme.txt is not a cluster: expected JSON, NCCL's topology XML"));
}

TEST_CASE("clusters are added by their nodes") {
  const Cluster sum = resolve_cluster("dgx-h100*2+dgx-a100");
  CHECK((sum.ranks() == 24 && sum.nodes() == 3));
  CHECK(sum.name() == "dgx-h100*2+dgx-a100");
  CHECK(sum.device(Rank{15}).name == "H100-80G");
  CHECK(sum.device(Rank{16}).name == "A100-80G");
  CHECK(resolve_cluster("16xH100+dgx-a100").nodes() == 3);
  CHECK(contains(error_of([] { resolve_cluster("dgx-h100+"); }), "unknown cluster ''"));
  CHECK(contains(error_of([] { resolve_cluster("dgx-h100+dgx-a10"); }), "did you mean 'dgx-a100'?"));
  CHECK(contains(error_of([] { resolve_cluster("dgx-h100+dgx-a100", "H100-80G"); }), "leave out --device"));
  CHECK(contains(error_of([] { resolve_cluster("dgx-h100*100000+dgx-a100*100000"); }), "is too large"));
}

TEST_CASE("a text resolves to a preset, a size or a file") {
  CHECK(resolve_cluster("dgx-h100*2").ranks() == 16);
  CHECK(resolve_cluster("a800x24-10gbe").ranks() == 24);
  CHECK(resolve_cluster("3x8").ranks() == 24);
  // A device by name replaces what is assumed, and what is said.
  for (const std::string& text :
       {std::string{"3x8"}, std::string{"dgx-a100*2"}, std::string{"dgx-h100"}, samples::path("regular.cluster.json"),
        samples::path("nvswitch_4gpu.nccl.xml"), samples::path("pcie_4gpu_2nic.smi.txt") + "*2"}) {
    CAPTURE(text);
    const Cluster named = resolve_cluster(text, "H200-141G");
    CHECK(named.ranks() == resolve_cluster(text).ranks());
    for (int rank = 0; rank < named.ranks(); ++rank) CHECK(named.device(Rank{rank}) == device_named("H200-141G"));
    CHECK(contains(error_of([&] { resolve_cluster(text, "H201-141G"); }), "H200-141G"));
  }
  CHECK(resolve_cluster("3x8").device(Rank{0}).assumed);
  CHECK(resolve_cluster(samples::path("pcie_4gpu_2nic.smi.txt")).device(Rank{0}).assumed);
  CHECK_FALSE(resolve_cluster("dgx-h100").device(Rank{0}).assumed);
  const Cluster assumed = resolve_cluster("1x2");
  CHECK(cluster_from_json(write_cluster_json(assumed)).device(Rank{0}).assumed);
  CHECK(resolve_cluster("8+4").ranks() == 12);
  CHECK(resolve_cluster(samples::path("regular.cluster.json")).name() == "lab");
  CHECK(resolve_cluster(samples::path("nvswitch_4gpu.nccl.xml")).ranks() == 4);
  CHECK(resolve_cluster(samples::path("nvswitch_4gpu.nccl.xml") + "*3").ranks() == 12);
  CHECK(resolve_cluster(samples::path("pcie_4gpu_2nic.smi.txt") + "*2").nodes() == 2);
}

TEST_CASE("what resolves to nothing gets the nearest name and the other ways") {
  const auto error = [](const std::string& text) { return error_of([&] { resolve_cluster(text); }); };
  CHECK(contains(error("dgx-h10"), "unknown cluster 'dgx-h10'; did you mean 'dgx-h100'?"));
  CHECK(contains(error("dgx-h10*4"), "did you mean 'dgx-h100'?"));
  CHECK(contains(error("nothing.json"),
                 "or a number of devices such as 64xH100, a size such as 3x8 or 8+8+4, or the name of a file that exists"));
  CHECK(contains(error("0x8"), "a cluster of 0 nodes is impossible"));
  CHECK(contains(error(""), "unknown cluster ''"));
  CHECK(contains(error(samples::path("")), "cannot be read"));  // a folder
  CHECK(contains(error(samples::path("regular.cluster.json") + "*2"), "says its number of nodes; leave out '*2'"));
  CHECK(contains(error(samples::path("pcie_2gpu.smi.txt") + "*2"), "has no network adapter, so 2 of them cannot be joined"));
  CHECK(contains(error_of([] { read_cluster_file("/no/such/file"); }), "the cluster file '/no/such/file' cannot be read"));
}

TEST_CASE("cut and changed cluster files are read or refused, never worse") {
  for (const auto& path : samples::all_ours(".cluster.json")) {
    CAPTURE(path);
    samples::fuzz(samples::read(path), [](const std::string& input) { cluster_from_json(input); });
  }
  samples::fuzz(write_cluster_json(cluster_from_dimensions("2+1")), [](const std::string& input) { cluster_from_json(input); });
  for (const char* size : {"3x8", "8+8+4", "dgx-h100*16", "a800x24-10gbe"}) {
    samples::fuzz(size, [](const std::string& input) { resolve_cluster(input); });
  }
}
