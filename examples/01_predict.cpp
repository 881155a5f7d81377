// Predicts one training iteration: a cluster, a model, a schedule, and the result.
#include <cstdio>

#include "tawpipe/tawpipe.hpp"

using namespace tawpipe::literals;

int main() {
  // Three nodes of eight devices; each node has one 10 Gb/s adapter that its devices share.
  const auto cluster = tawpipe::ClusterBuilder{}
                           .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                           .nodes(3)
                           .devices_per_node(8)
                           .intra_node({.bandwidth = 160_GBps, .latency = 3_us})
                           .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})
                           .build();

  // One iteration: 1536 sequences of 16384 tokens in microbatches of 4; activations are computed
  // again in the backward.
  const tawpipe::Workload work{tawpipe::models::named("llama-48x1024"),
                               {.sequence = 16384, .microbatch_size = 4, .global_batch = 1536},
                               tawpipe::Recompute::full};

  // TawPipe with the nodes as its groups, simulated at 34 % of the devices' peak.
  const auto schedule = tawpipe::schedules::tawpipe(work, cluster.groups_by_node());
  const auto timeline = tawpipe::simulate(schedule, cluster, tawpipe::RooflineCost{.utilization = 0.34});
  const auto summary = tawpipe::summarize(schedule, cluster, timeline);

  std::printf("%s on %d devices: %lld tasks\n", summary.schedule.c_str(), summary.ranks, static_cast<long long>(summary.tasks));
  std::printf("one iteration   %.1f s\n", tawpipe::to_seconds(summary.makespan));
  std::printf("throughput      %.0f tokens/s a device\n", summary.tokens_per_device_per_second);
  std::printf("bubble          %.1f %%\n", 100 * summary.bubble.ratio);
  std::printf("peak memory     %.1f GiB on rank 0\n", static_cast<double>(summary.peak_memory[0].total.value()) / (1 << 30));
  std::printf("between nodes   %.1f GB\n", static_cast<double>(summary.traffic.inter_node_bytes) / 1e9);
  return summary.out_of_memory.empty() ? 0 : 1;
}
