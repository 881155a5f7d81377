// Tests of topology/slurm_topology.hpp: Slurm's tree of switches as a fabric.
#include "tawpipe/topology/slurm_topology.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tawpipe/core/text_file.hpp"

using tawpipe::FabricGraph;
using tawpipe::InputError;
using tawpipe::read_slurm_tree;
using tawpipe::SlurmTree;

namespace {

void check_refused(const std::string& text, const std::string& why) {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS(read_slurm_tree(text, "t.conf"), doctest::Contains(why.c_str()), InputError);
}

}  // namespace

TEST_CASE("two leaves of 16 nodes and a spine") {
  const std::string text = tawpipe::read_text_file(std::string{TAWPIPE_TEST_DATA} + "/topology/slurm_tree.conf", "tree", 1);
  const SlurmTree tree = read_slurm_tree(text);
  REQUIRE(tree.nodes.size() == 32);
  CHECK(tree.nodes[0] == "n01");
  CHECK(tree.nodes[31] == "n32");
  REQUIRE(tree.switches.size() == 3);
  CHECK(tree.switches[0].nodes_below == 16);
  CHECK(tree.switches[2].nodes_below == 32);
  const FabricGraph graph = fabric_of(
      tree, [](int nodes) { return tawpipe::LinkSpec{.bandwidth = tawpipe::BytesPerSecond{1e9 * nodes}, .latency = {}}; });
  CHECK(graph.attachments.size() == 32);
  CHECK(graph.attachments[16].at == 32 + 1);
  REQUIRE(graph.edges.size() == 2);
  CHECK(graph.edges[1].a == 32 + 1);
  CHECK(graph.edges[1].b == 32 + 2);
  CHECK(graph.edges[1].link.bandwidth.value() == 16e9);
}

TEST_CASE("names may be listed in every way of Slurm's") {
  const SlurmTree tree = read_slurm_tree(
      "# a comment\n"
      "switchname=a NODES=n[9-11],r[1-2]c[01-02],login LinkSpeed=100 # another\n"
      "SwitchName=b Nodes=x[1,3] \\\n  LinkSpeed=5\n\n"
      "SwitchName=top Switches=a,b\n");
  CHECK(tawpipe::join(tree.nodes, " ") == "n9 n10 n11 r1c01 r1c02 r2c01 r2c02 login x1 x3");
  CHECK(tree.switches[2].nodes_below == 10);
}

TEST_CASE("what is no tree is refused with the line") {
  check_refused("SwitchName=a Nodes=n[1-\n", "t.conf, line 1: 'n[1-' is not a list of names");
  check_refused("SwitchName=a Nodes=n[4-1]\n", "is not a list of names");
  check_refused("Nodes=n1\n", "line 1: the line has no SwitchName=");
  check_refused("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n", "line 2: node 'n1' is below two switches");
  check_refused("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "switch 'a' occurs twice");
  check_refused("SwitchName=a Switches=b\n", "switch 'a' has 'b' below it, which has no line");
  check_refused("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Switches=a\n", "in a circle");
  check_refused("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n", "2 switches with none above them");
  check_refused("BlockName=b1 Nodes=n[1-18]\n", "blocks (topology/block)");
  check_refused("SwitchName=a Nodes=n1 Speed=1\n", "'Speed=1' is not read");
  check_refused("SwitchName=a Nodes=n[1-99999]\n", "line 1");
}
