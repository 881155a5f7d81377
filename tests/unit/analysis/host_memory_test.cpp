// What is offloaded must fit the memory of its node's host, and its copies share that memory's speed.
// Not: how a host is described (unit/topology/host_memory_test.cpp).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

Cluster with_hosts(int nodes, int node_size, HostMemory host) {
  return ClusterBuilder{}
      .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .nodes(nodes)
      .devices_per_node(node_size)
      .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
      .inter_node({.bandwidth = 1_GBps, .latency = 1_us})
      .host_link({.bandwidth = 1_GBps, .latency = 0_us})
      .host_memory(host)
      .build();
}

Schedule copies(int ranks) {
  ScheduleBuilder builder{"copies", support::transformer(2, 1), ranks, {"compute", "to_host"}};
  const Content saved{ContentKind::saved, StageId{0}, 0};
  for (int rank = 0; rank < ranks; ++rank) {
    const BufferId device = builder.transient(rank, saved, 1_MB);
    const BufferId host =
        builder.buffer({.rank = Rank{rank}, .content = saved, .persistent = false, .host = true, .bytes = 1_MB});
    builder.add({.op = Op::copy_to_host, .payload = Payload::activations, .lane = LaneId{1}, .rank = Rank{rank}, .bytes = 1_MB},
                {{device, Access::read}, {host, Access::write}});
  }
  return builder.build();
}

}  // namespace

TEST_CASE("copies of a node share the bandwidth of its host's memory") {
  const HostMemory slow{.bandwidth = 2_GBps};
  const auto time = [&](int nodes, int devices) {
    return simulate(copies(nodes * devices), with_hosts(nodes, devices, slow), RooflineCost{}).makespan();
  };
  CHECK(time(1, 1) == 1_ms);  // its own link
  CHECK(time(1, 2) == 1_ms);
  CHECK(time(1, 4) == 2_ms);
  CHECK(time(4, 1) == 1_ms);
  CHECK(time(2, 4) == 2_ms);
}

TEST_CASE("what does not fit the hosts is out of memory") {
  const Schedule schedule = with_offload(
      build_schedule("gpipe", {.workload = support::transformer(8, 8), .nodes = DeviceGroups{{2, 2}}, .options = {}}),
      {.activations = true, .optimizer = true});
  const auto summary = [&](Bytes host, double usable = 1) {
    const Cluster cluster = with_hosts(2, 2, {.capacity = host});
    return summarize(schedule, cluster, simulate(schedule, cluster, RooflineCost{}), usable);
  };
  const Summary enough = summary(1_GB);
  REQUIRE(enough.host_need.size() == 2);
  CHECK(enough.host_need[0] == enough.peak_memory[0].host + enough.peak_memory[1].host);
  CHECK(enough.host_need[1] == enough.peak_memory[2].host + enough.peak_memory[3].host);
  CHECK(enough.fits());
  CHECK_FALSE(enough.host_memory_assumed);
  const Bytes most = std::max(enough.host_need[0], enough.host_need[1]);
  CHECK(summary(most).fits());
  const Summary little = summary(most - 1_B);
  CHECK_FALSE(little.fits());
  CHECK(little.out_of_memory.empty());
  CHECK(little.out_of_host_memory.size() >= 1);
  CHECK_FALSE(summary(most, 0.99).fits());
  CHECK_FALSE(fits_memory(little.peak_memory, with_hosts(2, 2, {.capacity = most - 1_B})));
  const auto json = to_json(little);
  CHECK(json.at("out_of_memory") == true);
  CHECK(json.at("out_of_memory_ranks").empty());
  CHECK(json.at("out_of_host_memory_nodes").size() == little.out_of_host_memory.size());
  CHECK(json.at("host_memory_bytes").at(0) == (most - 1_B).value());
  CHECK(json.at("host_need_bytes").at(0) == little.host_need[0].value());
  CHECK(json.at("traffic").at("link_bytes").at("memory") == little.traffic.host_bytes[0] + little.traffic.host_bytes[1]);
}

TEST_CASE("a prediction with an offload that no host holds does not fit") {
  Problem problem{.cluster = with_hosts(1, 2, {.capacity = 1_MB}),
                  .model = Transformer{
                      .name = "tiny", .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .intermediate = 256, .vocab = 100}};
  problem.sequence = 128;
  problem.global_batch = 4;
  problem.microbatch_sizes = {1};
  problem.schedules = {{"1f1b"}};
  problem.cost = RooflineCost{.utilization = 0.5};
  CHECK(Predictor(problem, shipped()).best().fits());
  problem.offload.optimizer = true;
  CHECK_FALSE(Predictor(problem, shipped()).best().fits());
  problem.cluster = with_hosts(1, 2, {.capacity = 100_MB});
  CHECK(Predictor(problem, shipped()).best().fits());
}
