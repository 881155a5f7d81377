// NCCL's topology XML: speeds, switches, hints and what breaks.
// Not: the routes' correctness (routing_test.cpp).
#include "tawpipe/topology/nccl_topology_xml.hpp"

#include "unit/topology/samples.hpp"

using namespace tawpipe;
using samples::contains;
using samples::error_of;
using samples::ours;

namespace {

/// The speed in GB/s of the link between two vertices; 0 if there is none.
double speed(const NodeGraph& graph, const std::string& a, const std::string& b) {
  for (const auto& edge : graph.edges) {
    const auto& from = graph.vertices[static_cast<std::size_t>(edge.a)].name;
    const auto& to = graph.vertices[static_cast<std::size_t>(edge.b)].name;
    if ((from == a && to == b) || (from == b && to == a)) return edge.link.bandwidth.value() / 1e9;
  }
  return 0;
}

double port(const NodeGraph& graph, const std::string& adapter) {
  for (const auto& vertex : graph.vertices) {
    if (vertex.name == adapter) return vertex.network.bandwidth.value() / 1e9;
  }
  return 0;
}

std::string xml_error(const std::string& text) {
  return error_of([&] { node_type_from_nccl_xml(text, {}, "topo.xml"); });
}

/// One GPU whose <pci> and <gpu> have these attributes.
std::string with_gpu(const std::string& pci, const std::string& gpu, const std::string& inside = "") {
  return "<system version=\"1\"><cpu>\n<pci busid=\"1\" class=\"0x030200\" " + pci + ">\n<gpu " + gpu + ">" + inside +
         "</gpu></pci></cpu></system>";
}

}  // namespace

TEST_CASE("a dump: NVSwitches fold into one, slots and ports have NCCL's speeds") {
  const auto graph = node_graph_from_nccl_xml(ours("nvswitch_4gpu.nccl.xml"));
  // GPUs are numbered by dev, not by place: dev 1 stands first in the file. 12 x 20 GB/s over one
  // or two NVSwitches.
  CHECK(graph.vertices[0].name == "GPU0");
  for (const char* gpu : {"GPU0", "GPU1", "GPU2", "GPU3"}) CHECK(speed(graph, gpu, "NVSwitch") == doctest::Approx(240));
  CHECK(speed(graph, "GPU0", "PCI 0000:01:00.0") == doctest::Approx(24));    // link_width 0 is 16
  CHECK(speed(graph, "port_a", "PCI 0000:01:00.0") == doctest::Approx(12));  // half the width
  CHECK(speed(graph, "CPU0", "CPU1") == doctest::Approx(16));                // AMD
  CHECK(port(graph, "port_a") == doctest::Approx(25));                       // 200000 Mb/s
  CHECK(port(graph, "port_b") == doctest::Approx(1.25));                     // below zero: 10000 Mb/s
  CHECK(speed(graph, "NIC 0000:84:00.0", "CPU1") == doctest::Approx(24));    // two ports share the slot
  CHECK(speed(graph, "NIC 0000:84:00.0", "port_c") == doctest::Approx(12.5));
  CHECK(graph.vertices[0].device.name == "A100-80G");
  const NodeType node = make_node_type("node", graph);
  CHECK(node.devices.size() == 4);
  CHECK(node.paths[0 * 4 + 3].size() == 2);  // by NVLink across the sockets
}

TEST_CASE("NVLinks between GPUs count once although both ends name them, and CPUs may have some") {
  const auto graph = node_graph_from_nccl_xml(ours("power9_2gpu.nccl.xml"));
  CHECK(speed(graph, "GPU0", "GPU1") == doctest::Approx(60));  // 3 x 20
  int to_cpu = 0;
  for (const auto& edge : graph.edges) {
    const bool nvlink =
        edge.kind == LinkClass::nvlink && graph.vertices[static_cast<std::size_t>(edge.b)].kind == VertexKind::cpu;
    to_cpu += nvlink && edge.link.bandwidth.value() == 60e9 ? 1 : 0;
  }
  CHECK(to_cpu == 2);
  CHECK(port(graph, "virtual") == doctest::Approx(3.125));  // 25000 Mb/s, a <nic> right below its <cpu>
  CHECK(graph.vertices[0].device.name == "V100-32G");
}

TEST_CASE("a hint: GPUs and adapters by PCI class; NVLinks only when asked for") {
  const auto graph = node_graph_from_nccl_xml(ours("hint_2gpu.nccl.xml"));
  CHECK(speed(graph, "GPU0", "PCI ffff:ff:01.0") == doctest::Approx(12));  // 8 GT/s x16
  CHECK(port(graph, "NIC0") == doctest::Approx(12));                       // no more than its slot
  CHECK(speed(graph, "GPU0", "NVSwitch") == 0);
  CHECK(make_node_type("hint", graph).paths[1].size() == 2);
  const auto linked = node_graph_from_nccl_xml(ours("hint_2gpu.nccl.xml"), {.device = {}, .nvlinks = 12});
  CHECK(speed(linked, "GPU1", "NVSwitch") == doctest::Approx(240));
  NcclXmlOptions options;
  options.device = device_named("V100-32G");
  CHECK(node_type_from_nccl_xml(ours("hint_2gpu.nccl.xml"), options).devices[1].name == "V100-32G");
}

TEST_CASE("chip-to-chip links to the CPU and links between the parts of a switch") {
  const auto graph = node_graph_from_nccl_xml(ours("gh200_2gpu.nccl.xml"));
  // 10000 MB/s x 20 = 200 GB/s.
  bool found = false;
  for (const auto& edge : graph.edges) found = found || (edge.kind == LinkClass::nvlink && edge.link.bandwidth.value() == 200e9);
  CHECK(found);
  CHECK(speed(graph, "PCI 0009:00:00.0", "PCI 0019:00:00.0") == doctest::Approx(5000));
}

TEST_CASE("the device is known by its PCI id, else by its compute capability, else an A100") {
  const auto device = [](const std::string& pci, const std::string& gpu) {
    return node_type_from_nccl_xml(with_gpu(pci, gpu)).devices[0].name;
  };
  CHECK(device("device=\"0x2335\"", "sm=\"90\"") == "H200-141G");
  CHECK(device("device=\"0x20f3\"", "sm=\"80\"") == "A800-80G");
  CHECK(device("", "sm=\"90\"") == "H100-80G");
  CHECK(device("", "sm=\"89\"") == "L40S-48G");
  CHECK(device("", "sm=\"70\"") == "V100-32G");
  CHECK(device("", "sm=\"103\"") == "B200-180G");
  CHECK(device("", "sm=\"120\"") == "RTX5090-32G");
  CHECK(device("", "") == "A100-80G");
}

TEST_CASE("rates and widths as kernels print them") {
  const auto slot = [](const std::string& attributes) {
    return node_type_from_nccl_xml(with_gpu(attributes, "")).links[0].bandwidth.value() / 1e9;
  };
  CHECK(slot("link_speed=\"16 GT/s\" link_width=\"16\"") == doctest::Approx(24));
  CHECK(slot("link_speed=\"32.0 GT/s PCIe\" link_width=\"0\"") == doctest::Approx(48));
  CHECK(slot("link_speed=\"8 GT/s\" link_width=\"8\"") == doctest::Approx(6));
  CHECK(slot("link_speed=\"2.5 GT/s PCIe\" link_width=\"1\"") == doctest::Approx(0.1875));
  CHECK(slot("link_speed=\"Unknown\" link_width=\"16\"") == doctest::Approx(12));
  CHECK(slot("") == doctest::Approx(12));
}

TEST_CASE("errors name the line and the attribute") {
  CHECK(contains(xml_error("<system version=\"1\">\n<cpu>\n</system>"), "topo.xml, line 3: not XML: "));
  CHECK(contains(xml_error(""), "not XML"));
  CHECK(contains(xml_error("<graph/>"), "the root element is 'graph'; NCCL's topology starts with <system version=\"1\">"));
  CHECK(contains(xml_error("<system version=\"2\"/>"), "version '2' is unknown; expected 1"));
  CHECK(contains(xml_error("<system version=\"1\"><cpu/></system>"), "has no GPU"));
  CHECK(contains(xml_error(with_gpu("link_speed=\"9 GT/s\"", "")),
                 "line 2, <pci>: link_speed='9 GT/s' is unknown; expected 2.5, 5, 8"));
  CHECK(contains(xml_error(with_gpu("link_width=\"wide\"", "")), "link_width must be a whole number from 0 to 32, not 'wide'"));
  CHECK(contains(xml_error(with_gpu("", "sm=\"33\"")), "line 3, <gpu>: sm=\"33\" is no GPU of the table"));
  CHECK(contains(xml_error(with_gpu("", "dev=\"-7\"")), "dev must be a whole number from"));
  CHECK(contains(xml_error(with_gpu("", "", "<nvlink target=\"x\" count=\"0\" tclass=\"0x068000\"/>")),
                 "count must be a whole number from 1 to 1024, not '0'"));
  CHECK(contains(xml_error(with_gpu("", "", "<nvlink target=\"x\" count=\"1\" tclass=\"0x99\"/>")), "tclass='0x99' is unknown"));
  CHECK(contains(xml_error(with_gpu("", "", "<c2c count=\"1\"/>")), "bw is missing"));
  CHECK(contains(xml_error("<system version=\"1\"><pci class=\"0x0302\"/></system>"), "this GPU stands outside any <cpu>"));
  std::string deep = "<system version=\"1\"><cpu>";
  for (int i = 0; i < 5000; ++i) deep += "<pci class=\"0x060400\">";
  deep += "<pci class=\"0x030200\"/>";
  for (int i = 0; i < 5000; ++i) deep += "</pci>";
  CHECK(contains(xml_error(deep + "</cpu></system>"), "nested deeper than 32 levels"));
}

TEST_CASE("every real machine's XML is imported") {
  const auto paths = samples::reference("nccl_xml");
  if (paths.empty()) MESSAGE("the reference folder is not at hand");
  for (const auto& path : paths) {
    CAPTURE(path);
    const std::string text = samples::read(path);
    NodeType node;
    CHECK_NOTHROW(node = node_type_from_nccl_xml(text, {}, path));
    CHECK(node.devices.size() == 8);
    CHECK_NOTHROW(Cluster("two", {node}, {0, 0}));  // all have adapters
    samples::fuzz(text, [](const std::string& input) { node_type_from_nccl_xml(input); });
  }
}

TEST_CASE("cut and changed XML is read or refused, never worse") {
  for (const auto& path : samples::all_ours(".nccl.xml")) {
    CAPTURE(path);
    samples::fuzz(samples::read(path), [](const std::string& input) { node_type_from_nccl_xml(input); });
  }
}
