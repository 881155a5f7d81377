// The one call: which schedule, with which microbatch size, trains a model fastest on a cluster?
#include <cstdio>

#include "tawpipe/tawpipe.hpp"

using namespace tawpipe::literals;

int main() {
  const tawpipe::Problem problem{
      .cluster = tawpipe::ClusterBuilder{}
                     .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                     .nodes(3)
                     .devices_per_node(8)
                     .intra_node({.bandwidth = 160_GBps, .latency = 3_us})
                     .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})
                     .build(),
      .model = tawpipe::models::named("llama-48x1024"),
      .sequence = 16384,
      .global_batch = 384,
      .schedules = {{"fsdp"}, {"1f1b", {{"overlap", "on"}}}, {"tawpipe"}},
      .cost = tawpipe::RooflineCost{.utilization = 0.34}};
  const tawpipe::Prediction best = predict(problem, tawpipe::shipped_schedules());
  std::printf("%s, %lld sequences a microbatch: %.0f tokens/s a device\n", best.summary.schedule.c_str(),
              static_cast<long long>(best.summary.microbatch_size), best.summary.tokens_per_device_per_second);
}
