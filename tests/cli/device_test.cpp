// Which GPU a cluster has: named by --device, by the cluster, or assumed and said.
// Not: the parsers of machines' descriptions (unit/topology).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

using support::parsed;
using support::run;

namespace {

const std::string matrix = TAWPIPE_TEST_DATA "/topology/pcie_4gpu_2nic.smi.txt";
const std::string small_model = " --model llama-8x512 --sequence 512 --global-batch 16 --cluster ";

}  // namespace

TEST_CASE("a device that nothing names is assumed and said; --device names it") {
  for (const std::string& cluster : {std::string{"1x4"}, matrix}) {
    CAPTURE(cluster);
    const std::string simulate = "simulate --schedule 1f1b" + small_model + cluster;
    CHECK(run(simulate).out.find("device   A100-80G is assumed, as the cluster names none; --device NAME") != std::string::npos);
    CHECK(parsed(run(simulate + " --json -")).at("assumed_device") == "A100-80G");
    const support::Result named = run(simulate + " --device H100-80G");
    CHECK(named.out.find("assumed") == std::string::npos);
    CHECK(named.out.find("H100-80G") != std::string::npos);
    CHECK_FALSE(parsed(run(simulate + " --device H100-80G --json -")).contains("assumed_device"));
    const support::Result assumed = run(simulate + " --json -");
    CHECK(parsed(assumed).at("makespan_s") > parsed(run(simulate + " --device B200-180G --json -")).at("makespan_s"));
    CHECK(parsed(assumed).at("makespan_s") == parsed(run(simulate + " --device A100-80G --json -")).at("makespan_s"));
    CHECK(parsed(run("compare" + small_model + cluster + " --json -")).at("assumed_device") == "A100-80G");
  }
  CHECK_FALSE(parsed(run("simulate --schedule 1f1b --cluster 1x4 --microbatches 4 --json - --cost "
                         "fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"))
                  .contains("assumed_device"));
}

TEST_CASE("--device overrides what a cluster says, and an unknown one is refused with those there are") {
  const auto memory = [&](const std::string& flags) {
    return parsed(run("simulate --schedule 1f1b --json -" + small_model + "dgx-h100" + flags)).at("device_memory_bytes")[0];
  };
  CHECK(memory("") == 80.0 * (1 << 30));
  CHECK(memory(" --device H200-141G") == 141.0 * (1 << 30));
  for (const std::string& cluster : {std::string{"dgx-h100"}, std::string{"1x4"}, matrix}) {
    support::check_refused(run("simulate --schedule 1f1b" + small_model + cluster + " --device H201"),
                           {"'H201'", "H200-141G", "B200-180G"});
  }
}

TEST_CASE("devices that nobody measured are said to be none, in words and by the interval") {
  const std::string simulate = "simulate --schedule fsdp --model llama-3-8b --sequence 4096 --global-batch 64 --cluster ";
  for (const char* cluster : {"hgx-mi300x", "hgx-mi355x", "hgx-gaudi3"}) {
    CAPTURE(cluster);
    const std::string out = run(simulate + cluster).out;
    CHECK(out.find("note     NOT MEASURED: no run on") != std::string::npos);
    CHECK(out.find("has no curves of its own") != std::string::npos);
  }
  support::check_refused(run(simulate + "hgx-mi355x --gemm-format nvfp4"), {"MI355X-288G", "MXFP4", "mxfp8"});
  CHECK(run(simulate + "hgx-mi355x --gemm-format mxfp8").code == 0);
  support::check_refused(run(simulate + "hgx-mi300x --gemm-format mxfp8"), {"no GEMMs in mxfp8", "fp8"});
  CHECK(run(simulate + "dgx-h100").out.find("NOT MEASURED") == std::string::npos);
  const auto links = parsed(run(simulate + "hgx-mi300x --json -")).at("traffic").at("link_bytes");
  CHECK(links.at("xgmi") > 0);
  CHECK_FALSE(parsed(run(simulate + "dgx-h100 --json -")).at("traffic").at("link_bytes").contains("xgmi"));
}

TEST_CASE("sums of clusters name all devices, and --inter-node is each adapter's speed") {
  const std::string simulate = "simulate --schedule fsdp --model llama-3-8b --sequence 4096 --global-batch 64 --cluster ";
  const std::string both = run(simulate + "dgx-h100+dgx-a100").out;
  CHECK(both.find("8 H100-80G of 80.0 GiB, 8 A100-80G of 80.0 GiB") != std::string::npos);
  CHECK(both.find("; H100-80G's, others have their own") != std::string::npos);
  const auto time = [&](const std::string& cluster) {
    return parsed(run(simulate + cluster + " --json -")).at("makespan_s").get<double>();
  };
  CHECK(time("dgx-h100*2 --inter-node 25Gbps") > 1.2 * time("dgx-h100*2"));
  CHECK(time("dgx-h100*2 --inter-node 800Gbps") < time("dgx-h100*2"));
  CHECK(run("topology show dgx-h100*2 --inter-node 100Gbps").out.find("100 GB/s out in all") != std::string::npos);
  support::check_refused(run("topology show topo --inter-node 100Gbps"), {"unknown cluster 'topo'"});
  support::check_refused(run("topology show " + matrix + " --inter-node fast"), {"fast"});
}

TEST_CASE("a machine is imported with its device, and the cluster file says one that was assumed") {
  const support::Folder folder;
  const std::string import = "topology import " + matrix + " --json " + folder / "node.json";
  CHECK(run(import).out.find("A100-80G is assumed, as nothing names the GPU; --device NAME names it") != std::string::npos);
  CHECK(parsed(run("simulate --schedule 1f1b --json -" + small_model + folder / "node.json")).at("assumed_device") == "A100-80G");
  CHECK(run(import + " --device L40S-48G").out.find("is assumed") == std::string::npos);
  CHECK_FALSE(parsed(run("simulate --schedule 1f1b --json -" + small_model + folder / "node.json")).contains("assumed_device"));
  CHECK(run("topology show 2x8").out.find("A100-80G is assumed") != std::string::npos);
  CHECK(run("topology show 2x8 --device H100-80G").out.find("is assumed") == std::string::npos);
}
