// The matrix of `nvidia-smi topo -m`: its traps, and the nodes drawn from it.
// Not: the routes' correctness (routing_test.cpp).
#include "tawpipe/topology/nvidia_smi_topology.hpp"

#include "unit/topology/samples.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using samples::contains;
using samples::error_of;
using samples::ours;

namespace {

/// The names of the vertices that `vertex` is linked to by links of `kind`.
std::vector<std::string> neighbours(const NodeGraph& graph, const std::string& vertex, LinkClass kind) {
  std::vector<std::string> names;
  for (const auto& edge : graph.edges) {
    const auto& a = graph.vertices[static_cast<std::size_t>(edge.a)].name;
    const auto& b = graph.vertices[static_cast<std::size_t>(edge.b)].name;
    if (edge.kind == kind && a == vertex) names.push_back(b);
    if (edge.kind == kind && b == vertex) names.push_back(a);
  }
  return names;
}

std::string smi_error(const std::string& text) {
  return error_of([&] { parse_nvidia_smi_topology(text, "topo.txt"); });
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("tabs, escape codes, a missing adapter row and a legend") {
  const auto topology = parse_nvidia_smi_topology(ours("pcie_4gpu_2nic.smi.txt"));
  CHECK(topology.gpus == Names{"GPU0", "GPU1", "GPU2", "GPU3"});
  CHECK(topology.nics == Names{"NIC0 (eth_fast)", "NIC1 (eth_slow)"});
  CHECK(topology.cell(0, 1).kind == SmiConnection::pix);
  CHECK(topology.cell(2, 3).kind == SmiConnection::phb);
  CHECK(topology.cell(5, 2).kind == SmiConnection::node);  // NIC1 has no row: from GPU2's
  CHECK(topology.cell(5, 4).kind == SmiConnection::sys);   // from NIC0's
  CHECK(topology.affinities == Names{"0-15", "0-15", "16-31", "16-31"});
}

TEST_CASE("glued cells, a broken row, a glued affinity and old adapter columns") {
  const auto topology = parse_nvidia_smi_topology(ours("nvlink_8gpu_glued.smi.txt"));
  CHECK(topology.gpus.size() == 8);
  CHECK(topology.nics == Names{"mlx5_0", "mlx5_1"});
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) CHECK(topology.cell(i, j).nvlinks == (i == j ? 0 : 12));
    CHECK(topology.cell(i, 8).kind == (i < 4 ? SmiConnection::pxb : SmiConnection::sys));
    CHECK(topology.affinities[i] == (i < 4 ? "0-7" : "8-15"));
  }
}

TEST_CASE("no affinity columns at all") {
  const auto topology = parse_nvidia_smi_topology(ours("pcie_2gpu.smi.txt"));
  CHECK(topology.gpus.size() == 2);
  CHECK(topology.affinities == Names{"", ""});
}

TEST_CASE("what shares a switch shares its uplink; sockets are crossed by one link") {
  const auto graph = make_node_graph(parse_nvidia_smi_topology(ours("pcie_4gpu_2nic.smi.txt")));
  // PIX: GPU0 and GPU1 below PCIe0. PXB: that and NIC0 below PCIe1. PHB and NODE: GPU2, GPU3, NIC1
  // on one CPU.
  CHECK(neighbours(graph, "PCIe0", LinkClass::pcie) == Names{"GPU0", "GPU1", "PCIe1"});
  CHECK(neighbours(graph, "PCIe1", LinkClass::pcie) == Names{"PCIe0", "NIC0 (eth_fast)", "CPU0"});
  CHECK(neighbours(graph, "CPU1", LinkClass::pcie) == Names{"GPU2", "GPU3", "NIC1 (eth_slow)"});
  CHECK(neighbours(graph, "CPU0", LinkClass::socket) == Names{"CPU1"});
  const NodeType node = make_node_type("node", graph);
  // Routes 0 -> 2 and 1 -> 3 share the links from PCIe0 up and between the sockets; only their ends
  // differ.
  const auto& first = node.paths[0 * 4 + 2];
  const auto& second = node.paths[1 * 4 + 3];
  REQUIRE(first.size() == 5);  // GPU0-PCIe0, PCIe0-PCIe1, PCIe1-CPU0, CPU0-CPU1, CPU1-GPU2
  REQUIRE(second.size() == 5);
  CHECK(first[0] != second[0]);
  for (std::size_t hop = 1; hop < 4; ++hop) CHECK(first[hop] == second[hop]);
  // Each pair uses the adapter near it.
  CHECK(node.to_network[0].back() == node.to_network[1].back());
  CHECK(node.to_network[2].back() == node.to_network[3].back());
  CHECK(node.to_network[0].back() != node.to_network[2].back());
}

TEST_CASE("NVLinks beyond what a GPU has are an NVSwitch; NVLink hides PCI Express, so affinity places the GPUs") {
  const auto graph = make_node_graph(parse_nvidia_smi_topology(ours("nvlink_8gpu_glued.smi.txt")));
  CHECK(neighbours(graph, "NVSwitch", LinkClass::nvlink).size() == 8);
  for (const auto& edge : graph.edges) {
    if (edge.kind == LinkClass::nvlink) CHECK(edge.link.bandwidth.value() == 240e9);  // 12 x 20 GB/s
  }
  int cpus = 0;
  for (const auto& vertex : graph.vertices) cpus += vertex.kind == VertexKind::cpu ? 1 : 0;
  CHECK(cpus == 2);
}

TEST_CASE("few NVLinks are direct links, and pairs without one go by PCI Express") {
  const std::string text =
      "      GPU0 GPU1 GPU2 GPU3 CPU Affinity\n"
      "GPU0  X    NV4  PHB  PHB  0-3\n"
      "GPU1  NV4  X    PHB  PHB  0-3\n"
      "GPU2  PHB  PHB  X    NV4  0-3\n"
      "GPU3  PHB  PHB  NV4  X    0-3\n";
  const auto graph = make_node_graph(parse_nvidia_smi_topology(text));
  CHECK(neighbours(graph, "GPU0", LinkClass::nvlink) == Names{"GPU1"});
  const NodeType node = make_node_type("bridges", graph);
  REQUIRE(node.paths[1].size() == 1);
  CHECK(node.links[static_cast<std::size_t>(node.paths[1][0])].bandwidth.value() == 80e9);  // 4 x 20 GB/s
  CHECK(node.paths[2].size() == 2);                                                         // GPU0 - CPU - GPU2
}

TEST_CASE("four GPUs with four NVLinks to each other are joined directly: 3 x 4 links fit a GPU") {
  const std::string text =
      "      GPU0 GPU1 GPU2 GPU3\n"
      "GPU0  X    NV4  NV4  NV4\n"
      "GPU1  NV4  X    NV4  NV4\n"
      "GPU2  NV4  NV4  X    NV4\n"
      "GPU3  NV4  NV4  NV4  X\n";
  const auto graph = make_node_graph(parse_nvidia_smi_topology(text));
  CHECK(neighbours(graph, "GPU0", LinkClass::nvlink).size() == 3);
  CHECK(neighbours(graph, "NVSwitch", LinkClass::nvlink).empty());
}

TEST_CASE("18 NVLinks mean an H100, unless the device is named; the speeds follow") {
  const std::string text = "GPU0 GPU1\nGPU0 X NV18\nGPU1 NV18 X\n";
  CHECK(node_type_from_nvidia_smi(text).devices[0].name == "H100-80G");
  CHECK(node_type_from_nvidia_smi(text).links[0].bandwidth.value() == doctest::Approx(370.8e9));
  SmiOptions options{.device = device_named("B200-180G"), .speeds = {}};
  CHECK(node_type_from_nvidia_smi(text, options).devices[0].name == "B200-180G");
  CHECK(node_type_from_nvidia_smi(text, options).links[0].bandwidth.value() == doctest::Approx(721.8e9));  // 18 x 40.1
  LinkSpeeds speeds;
  speeds.nvlink = 1_GBps;
  options.speeds = speeds;
  CHECK(node_type_from_nvidia_smi(text, options).links[0].bandwidth.value() == 18e9);
}

TEST_CASE("virtual machines that show SYS only get a CPU for each GPU") {
  const std::string text = "GPU0 GPU1 GPU2\nGPU0 X SYS SYS\nGPU1 SYS X SYS\nGPU2 SYS SYS X\n";
  const auto graph = make_node_graph(parse_nvidia_smi_topology(text));
  CHECK(graph.edges.size() == 3 + 3);  // each GPU to its CPU, each pair of CPUs
}

TEST_CASE("errors name line and cell") {
  CHECK(contains(smi_error(""), "topo.txt holds no matrix"));
  CHECK(contains(smi_error("hello\nworld\n"), "no line starts with the columns GPU0, GPU1"));
  CHECK(smi_error("GPU0 GPU1\nGPU0 X FOO\nGPU1 PIX X\n") ==
        "topo.txt, line 2: row GPU0, column GPU1: 'FOO' is not a connection; expected X, NV#, PIX, PXB, PHB, NODE or SYS");
  CHECK(smi_error("GPU0 GPU1\nGPU0 X\nGPU1 PIX X\n") ==
        "topo.txt, line 2: row GPU0, column GPU1: the cell is missing; expected X, NV#, PIX, PXB, PHB, NODE or SYS");
  CHECK(smi_error("GPU0 GPU1\nGPU0 X PIX\n") == "topo.txt, line 1: column GPU1 has no row of its own");
  CHECK(contains(smi_error("GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X\n"), "line 3: row GPU1, column GPU0 differs from row GPU0"));
  CHECK(
      contains(smi_error("GPU0 GPU1\nGPU0 PIX PIX\nGPU1 PIX X\n"), "line 2: row GPU0, column GPU0: a row's own column holds X"));
  CHECK(contains(smi_error("GPU0 GPU1\nGPU0 X X\nGPU1 PIX X\n"), "column GPU1: X stands only in a row's own column"));
  CHECK(contains(smi_error("GPU0 GPU1\nGPU0 X PIX\nGPU0 X PIX\n"), "line 3: a second row for GPU0"));
  CHECK(contains(smi_error("GPU0 GPU0\nGPU0 X X\n"), "column GPU0 occurs twice"));
  CHECK(contains(smi_error("GPU0 NIC0\nGPU0 X NV2\n"), "an adapter has no NVLink"));
  CHECK(contains(smi_error("GPU0 NIC0 GPU1\n"), "column GPU1 stands after an adapter"));
}

TEST_CASE("every real machine's matrix is imported") {
  const auto paths = samples::reference("nvidia_smi");
  if (paths.empty()) MESSAGE("the reference folder is not at hand");
  for (const auto& path : paths) {
    CAPTURE(path);
    const std::string text = samples::read(path);
    NodeType node;
    CHECK_NOTHROW(node = node_type_from_nvidia_smi(text, {}, path));
    CHECK_NOTHROW(Cluster("node", {node}, {0}));
    // Files are named "..._8gpu_...".
    const auto place = path.find("gpu_", path.rfind('/'));
    CHECK(node.devices.size() == static_cast<std::size_t>(path[place - 1] - '0'));
    samples::fuzz(text, [](const std::string& input) { node_type_from_nvidia_smi(input); });
  }
}

TEST_CASE("cut and changed matrices are read or refused, never worse") {
  for (const auto& path : samples::all_ours(".smi.txt")) {
    CAPTURE(path);
    samples::fuzz(samples::read(path), [](const std::string& input) { node_type_from_nvidia_smi(input); });
  }
}
