// What users keep of their machines: outputs of nccl-tests and descriptions of topologies, through
// the command.
// Not: single formats (tests/unit/report/nccl_tests_test.cpp, tests/unit/topology).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"

using nlohmann::json;
using support::check_refused;
using support::run;

namespace {

std::string nccl(const std::string& name) { return std::string{TAWPIPE_TEST_DATA "/nccl_tests/"} + name; }
std::string machine(const std::string& name) { return std::string{TAWPIPE_TEST_DATA "/topology/"} + name; }

}  // namespace

TEST_CASE("links come from outputs under launchers, between hosts per adapter") {
  const json inside = json::parse(run("calibrate --json - " + nccl("srun_labels.txt")).out);
  CHECK(inside.at("intra_node").at("bytes_per_second").get<double>() == doctest::Approx(362e9).epsilon(0.01));
  const auto text = run("calibrate " + nccl("all_gather_two_hosts_8_nics.txt"));
  REQUIRE(text.code == 0);
  CHECK(text.out.find("each of 8 adapters") != std::string::npos);
  CHECK(text.out.find("8 adapters a node: assumed") != std::string::npos);
  const json between = json::parse(run("calibrate --json - " + nccl("all_gather_two_hosts_8_nics.txt")).out);
  CHECK(between.at("adapters_per_node") == 8);
  CHECK(between.at("inter_node").at("bytes_per_second").get<double>() == doctest::Approx(44e9).epsilon(0.01));
  const json four = json::parse(run("calibrate --adapters 4 --json - " + nccl("all_gather_two_hosts_8_nics.txt")).out);
  CHECK(four.at("adapters_per_node") == 4);
  CHECK(run("calibrate --adapters 8 " + nccl("alltoall_two_hosts.txt")).out.find("assumed") == std::string::npos);
}

TEST_CASE("sums in NVSwitches are no link's bandwidth") {
  const std::string sums = nccl("all_reduce_nvls_h100.txt");
  check_refused(run("calibrate " + sums), {"all_reduce_nvls_h100.txt", "NVLS", "all_gather_perf", "NCCL_ALGO=Ring", "--ring"});
  CHECK(run("calibrate --ring " + sums).code == 0);
  check_refused(run("calibrate --ring --timeline t.csv"), {"give one kind"});
}

TEST_CASE("machines' descriptions are imported with what they name") {
  const json l40s = json::parse(run("topology import " + machine("collect_env_l40s.txt") + " --json -").out);
  CHECK(l40s.at("node_types")[0].at("devices")[0].at("name") == "L40S-48G");
  CHECK(run("topology import " + machine("quoted.txt")).out.find("8 devices") != std::string::npos);
  const auto log = run("topology import " + machine("nccl_info.log"));
  CHECK(log.out.find("H100-80G is assumed") != std::string::npos);
  CHECK(log.out.find("nvlink 371 GB/s") != std::string::npos);
  const auto amd = run("topology import " + machine("rocm_smi_xgmi.txt"));
  CHECK(amd.out.find("8 devices") != std::string::npos);
  CHECK(amd.out.find("MI300X-192G is assumed") != std::string::npos);
  CHECK(amd.out.find("xgmi 48.0 GB/s") != std::string::npos);
  CHECK(run("topology import " + machine("rocm_smi_xgmi.txt") + " --device MI355X").out.find("assumed, as") == std::string::npos);
}

TEST_CASE("missing NVLinks are said, in predictions too, and added") {
  const std::string part = machine("partial_sm90.xml");
  const auto bare = run("topology import " + part);
  CHECK(bare.out.find("NO NVLINK: 8 GPUs (H100-80G)") != std::string::npos);
  CHECK(bare.out.find("--nvlinks 18 adds them") != std::string::npos);
  CHECK(run("simulate --schedule fsdp --model llama-4x1024 --sequence 1024 --global-batch 8 --cluster " + part)
            .out.find("NO NVLINK") != std::string::npos);
  const auto whole = run("topology import " + part + " --nvlinks 18");
  CHECK(whole.out.find("NO NVLINK") == std::string::npos);
  CHECK(whole.out.find("nvlink 371 GB/s") != std::string::npos);
  check_refused(run("topology import " + machine("quoted.txt") + " --nvlinks 18"), {"says itself which NVLinks"});
}

TEST_CASE("Slurm's switches are a fabric, by themselves or above nodes") {
  const std::string tree = machine("slurm_tree.conf");
  const json part = json::parse(run("topology import " + tree + " --uplink 400Gbps --json -").out);
  CHECK(part.at("nodes") == 32);
  CHECK(part.at("fabric").at("attach")[15] == "leaf1");
  CHECK(part.at("fabric").at("attach")[16] == "leaf2");
  CHECK(part.at("fabric").at("edges")[0].at("bytes_per_second") == 50e9);
  CHECK(run("topology import " + tree).out.find("assumed, as Slurm's file has no speeds") != std::string::npos);
  const support::Folder folder;
  const std::string cluster = folder / "cluster.json";
  const auto joined = run("topology import " + tree + " --cluster dgx-h100 --uplink 400GBps --json " + cluster);
  CAPTURE(joined.err);
  REQUIRE(joined.code == 0);
  CHECK(run("topology show " + cluster).out.find("32 nodes, 256 devices") != std::string::npos);
  // As `fabric` of another file.
  json file = json::parse(support::read_file(machine("graph.cluster.json")));
  file["nodes"] = std::vector<std::string>(32, file.at("node_types")[0].at("name"));
  file["fabric"] = part.at("fabric");
  const auto shown = run("topology show " + folder.write("joined.json", file.dump()));
  CAPTURE(shown.err);
  CHECK(shown.code == 0);
  check_refused(run("topology show " + tree), {"Slurm's tree of switches", "topology import"});
  check_refused(run("topology import " + machine("quoted.txt") + " --cluster dgx-h100"), {"go with Slurm's tree"});
}
