// Tests of topology/nccl_graph_log.hpp: the graph of a log as NCCL prints it.
// Not: NCCL's XML (nccl_topology_xml_test.cpp).
#include "tawpipe/topology/nccl_graph_log.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tawpipe/core/text_file.hpp"
#include "tawpipe/topology/cluster_file.hpp"

using tawpipe::Cluster;
using tawpipe::cluster_from_text;
using tawpipe::InputError;
using tawpipe::LinkClass;
using tawpipe::node_graph_from_nccl_log;
using tawpipe::NodeGraph;
using tawpipe::Rank;

namespace {

std::string recorded() { return tawpipe::read_text_file(std::string{TAWPIPE_TEST_DATA} + "/topology/nccl_info.log", "log", 1); }

/// The lines of one process.
std::string log_of(const std::string& process, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += process + " NCCL INFO " + line + "\n";
  return text;
}

/// Four V100 in a ring of direct NVLinks, and a card of two ports, as NCCL before 2.20 prints it.
const std::vector<std::string> four_direct = {"=== System : maxBw 12.0 totalBw 40.0 ===",
                                              "CPU/0 (1/1/2)",
                                              "+ PCI[12.0] - GPU/1A000 (1)",
                                              "              + NVL[40.0] - GPU/1B000",
                                              "+ PCI[12.0] - GPU/1B000 (0)",
                                              "              + NVL[40.0] - GPU/1A000",
                                              "+ PCI[12.0] - NIC/20000",
                                              "              + NET[12.5] - NET/0 (0/0/1/12.500000)",
                                              "              + NET[12.5] - NET/1 (1/0/1/12.500000)",
                                              "==========================================",
                                              "GPU/1A000 :GPU/1A000 (0/5000.000000/LOC)"};

}  // namespace

TEST_CASE("a log of eight H100 has all of NCCL's speeds") {
  const Cluster cluster = cluster_from_text(recorded(), "nccl.log");
  CHECK(cluster.ranks() == 8);
  CHECK(cluster.device(Rank{0}).name == "H100-80G");
  CHECK(cluster.device(Rank{0}).assumed);
  const tawpipe::Route route = cluster.route(Rank{0}, Rank{7});
  for (const auto link : route.links) {
    CHECK(cluster.link(link).kind == LinkClass::nvlink);
    CHECK(cluster.link(link).bandwidth.value() == doctest::Approx(370.8e9));
  }
  int adapters = 0;
  for (const tawpipe::Link& link : cluster.kinds().front().links) {
    if (link.end != tawpipe::LinkEnd::adapter_out) continue;
    ++adapters;
    CHECK(link.bandwidth.value() == doctest::Approx(50e9));
  }
  CHECK(adapters == 8);
  CHECK(cluster_from_text(recorded(), "nccl.log", 4, "H200-141G").ranks() == 32);
}

TEST_CASE("labels, several processes at once and other lines do not matter") {
  const std::string text = recorded();
  std::string mixed;
  for (const std::string_view line : tawpipe::split(text, '\n')) {
    mixed += "0: " + std::string{line} + "\n1: node1:99:99 [1] NCCL INFO Trees [0] -1/-1/-1\n";
    std::string other{line};
    if (const auto at = other.find(":77:81 [0]"); at != std::string::npos)
      mixed += "1: " + other.replace(at, 10, ":99:99 [1]") + "\n";
  }
  CHECK(cluster_from_text(mixed, "nccl.log").ranks() == 8);
}

TEST_CASE("direct NVLinks, GPUs by rank and a card of two ports, as older versions print them") {
  const NodeGraph graph = node_graph_from_nccl_log(log_of("h:1:2 [0]", four_direct));
  const auto count = [&](tawpipe::VertexKind kind) {
    return std::count_if(graph.vertices.begin(), graph.vertices.end(), [&](const auto& one) { return one.kind == kind; });
  };
  CHECK(count(tawpipe::VertexKind::device) == 2);
  CHECK(count(tawpipe::VertexKind::adapter) == 2);
  const auto direct =
      std::count_if(graph.edges.begin(), graph.edges.end(), [](const auto& edge) { return edge.kind == LinkClass::nvlink; });
  CHECK(direct == 1);
}

TEST_CASE("a log that is cut is refused with the place") {
  CHECK_THROWS_WITH_AS(
      node_graph_from_nccl_log(log_of("h", {"=== System : maxBw 1.0 totalBw 1.0 ===", "  + PCI[12.0] - GPU/1 (0)"})),
      doctest::Contains("line 2: '  + PCI[12.0] - GPU/1 (0)' stands below no CPU"), InputError);
  CHECK_THROWS_WITH_AS(node_graph_from_nccl_log(log_of("h", {"=== System : maxBw 1.0 totalBw 1.0 ===", "CPU/0 (1/1/2)"})),
                       doctest::Contains("no GPU in it"), InputError);
  CHECK_THROWS_WITH_AS(
      node_graph_from_nccl_log(log_of("h", {"=== System : maxBw 1.0 totalBw 1.0 ===", "CPU/0 (1/1/2)", "+ PCI[x] - GPU/1 (0)"})),
      doctest::Contains("has no speed"), InputError);
}
