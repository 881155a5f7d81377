// A small model, and a request for a plan of it with few schedules.
// Not: what is planned (unit/search).
#pragma once

#include <cstdint>
#include <utility>

#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace support {

using namespace tawpipe;
using namespace tawpipe::literals;

inline const Transformer small{
    .name = "small", .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .intermediate = 128, .vocab = 96};

inline PlanRequest request(Cluster cluster, std::int64_t batch = 8) {
  PlanRequest made{.problem = {.cluster = std::move(cluster), .model = small, .sequence = 256, .global_batch = batch}};
  made.problem.usable_memory = 1;
  made.schedules = {{"tawpipe"},
                    {"fsdp", {{"prefetch", "1"}}},
                    {"ddp"},
                    {"1f1b", {{"overlap", "on"}}},
                    {"interleaved-1f1b", {{"chunks", "2"}}},
                    {"zb-h1"},
                    {"v-min"},
                    {"chimera"}};
  return made;
}

/// Two nodes of two devices of so much memory.
inline Cluster with_memory(Bytes memory) {
  return ClusterBuilder{}
      .device({.name = "device", .memory = memory, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .devices_of_nodes({2, 2})
      .intra_node({.bandwidth = 10_GBps, .latency = 1_us})
      .inter_node({.bandwidth = 1_GBps, .latency = 5_us})
      .build();
}

}  // namespace support
