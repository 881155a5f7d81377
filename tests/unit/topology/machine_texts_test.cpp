// Texts that people keep of a machine, as --cluster and `topology import` read them: what they name
// is used, what they lack is said.
// Not: single formats in detail (nvidia_smi_topology_test.cpp, nccl_topology_xml_test.cpp, ...).
#include "tawpipe/topology/cluster_file.hpp"

#include "tawpipe/topology/devices.hpp"
#include "unit/topology/samples.hpp"

using namespace tawpipe;
using samples::contains;
using samples::error_of;
using samples::ours;

namespace {

int adapters_of(const Cluster& cluster, double bytes_per_second) {
  int count = 0;
  for (const Link& link : cluster.kinds().front().links) {
    if (link.end == LinkEnd::adapter_out && link.bandwidth.value() == doctest::Approx(bytes_per_second)) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("the text around a matrix names the GPUs") {
  const Cluster cluster = cluster_from_text(ours("collect_env_l40s.txt"), "env.txt");
  REQUIRE(cluster.ranks() == 4);
  for (int rank = 0; rank < 4; ++rank) CHECK(cluster.device(Rank{rank}) == device_named("L40S-48G"));
  CHECK_FALSE(cluster.device(Rank{0}).assumed);
  std::string text = ours("collect_env_l40s.txt");
  const std::string matrix = text.substr(text.find("GPU Topology:"));
  const std::string listed = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-2)\n";
  const Cluster some = cluster_from_text(listed + matrix, "env.txt");
  CHECK(some.device(Rank{1}).name == "A100-80G");
  CHECK_FALSE(some.device(Rank{1}).assumed);
  CHECK(some.device(Rank{2}).assumed);
  const std::string table = "|   0  NVIDIA H200                    On  |   00000000:19:00.0 Off |                    0 |\n";
  CHECK(cluster_from_text(table + matrix, "smi.txt").device(Rank{0}).name == "H200-141G");
  const std::string unknown = "GPU 0: NVIDIA RTX A5000\n";
  CHECK(contains(error_of([&] { cluster_from_text(unknown + matrix, "env.txt"); }),
                 "no data sheet is known for GPU 'NVIDIA RTX A5000'"));
  CHECK(cluster_from_text(unknown + matrix, "env.txt", 0, "RTX3090-24G").device(Rank{0}).name == "RTX3090-24G");
}

TEST_CASE("a matrix that was pasted as a quotation is read") {
  const Cluster cluster = cluster_from_text(ours("quoted.txt"), "mail.txt");
  CHECK(cluster.ranks() == 8);
  CHECK(cluster.device(Rank{0}).name == "H100-80G");
  CHECK(cluster_format(ours("quoted.txt")) == ClusterFormat::nvidia_smi);
}

TEST_CASE("a partial XML lacks NVLinks, which is noticed and can be added") {
  const Cluster bare = cluster_from_text(ours("partial_sm90.xml"), "part.xml");
  CHECK(bare.ranks() == 8);
  CHECK(bare.device(Rank{0}).name == "H100-80G");
  CHECK(adapters_of(bare, 12.5e9) == 32);
  CHECK(missing_nvlinks(bare) == 18);
  const Cluster whole = cluster_from_text(ours("partial_sm90.xml"), "part.xml", 4, "", 18);
  CHECK(whole.ranks() == 32);
  CHECK(missing_nvlinks(whole) == 0);
  const Route route = whole.route(Rank{0}, Rank{7});
  CHECK(whole.link(route.links.front()).bandwidth.value() == doctest::Approx(18 * 20.6e9));
  for (const char* other : {"nvlink_8gpu_glued.smi.txt", "regular.cluster.json"}) {
    CHECK(contains(error_of([&] { cluster_from_text(ours(other), other, 0, "", 18); }), "says itself which NVLinks there are"));
  }
  CHECK(missing_nvlinks(resolve_cluster("dgx-h100")) == 0);
  CHECK(missing_nvlinks(resolve_cluster("l40s-pcie")) == 0);
  CHECK(missing_nvlinks(resolve_cluster("4x1")) == 0);
}

TEST_CASE("AMD's GPUs are joined by XGMI, each with a link to each other") {
  const std::string text = ours("rocm_smi_xgmi.txt");
  CHECK(cluster_format(text) == ClusterFormat::amd_smi);
  const Cluster cluster = cluster_from_text(text, "rocm.txt");
  REQUIRE(cluster.ranks() == 8);
  CHECK(cluster.device(Rank{0}).name == "MI300X-192G");
  CHECK(cluster.device(Rank{0}).assumed);
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      if (from == to) continue;
      const Route route = cluster.route(Rank{from}, Rank{to});
      REQUIRE(route.links.size() == 1);
      CHECK(cluster.link(route.links[0]).kind == LinkClass::xgmi);
      CHECK(cluster.link(route.links[0]).bandwidth.value() == doctest::Approx(48e9));
    }
  }
  CHECK(cluster.route(Rank{0}, host_memory).links.size() == 2);  // a slot, and the memory
  const Cluster named = cluster_from_text(text, "rocm.txt", 0, "mi355x");
  CHECK(named.device(Rank{7}).name == "MI355X-288G");
  CHECK_FALSE(named.device(Rank{7}).assumed);
  const Cluster told = cluster_from_text(text + "\nGPU[0]\t\t: Card Series: \t\tAMD Instinct MI325X OAM\n", "rocm.txt");
  CHECK(told.device(Rank{0}).name == "MI325X-256G");
  CHECK(missing_nvlinks(cluster) == 0);
}

TEST_CASE("what rocm-smi shows of other machines is used or refused") {
  const auto table = [](const std::string& title, const std::string& cell) {
    return concat("===== ", title, " between two GPUs =====\n       GPU0   GPU1\nGPU0   0   ", cell, "\nGPU1   ", cell, "   0\n");
  };
  const Cluster pcie = cluster_from_text(table("Link Type", "PCIE") + "ROCm System Management\n", "rocm.txt", 0, "A100-80G");
  CHECK(pcie.link(pcie.route(Rank{0}, Rank{1}).links[0]).kind == LinkClass::pcie);
  CHECK(contains(error_of([&] { cluster_from_text(table("Weight", "30") + table("Link Type", "XGMI"), "rocm.txt"); }),
                 "XGMI joins GPU0 and GPU1 through other GPUs (weight 30"));
  CHECK(contains(error_of([&] { cluster_from_text(table("Weight", "15") + "XGMI", "rocm.txt"); }), "no table"));
  CHECK(contains(error_of([&] { cluster_from_text("== Link Type between two GPUs ==\n GPU0 GPU1\nGPU0 0\nXGMI", "rocm.txt"); }),
                 "line 3: expected the row of GPU0 with 2 columns"));
}

TEST_CASE("what cannot be a node is refused by its name") {
  CHECK(cluster_format(ours("slurm_tree.conf")) == ClusterFormat::slurm);
  CHECK(contains(error_of([] { cluster_from_text(ours("slurm_tree.conf"), "topology.conf"); }),
                 "tawpipe topology import topology.conf"));
  CHECK(cluster_format(ours("nccl_info.log")) == ClusterFormat::nccl_log);
}
