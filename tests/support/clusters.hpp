// Small regular clusters and a small model for tests.
// Not: clusters whose speeds mean anything.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/model/workload.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace support {

using namespace tawpipe::literals;

/// Nodes of `sizes` devices; 1 GB/s and 1 us everywhere.
inline tawpipe::Cluster nodes_of(std::vector<std::int32_t> sizes) {
  return tawpipe::ClusterBuilder{}
      .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .devices_of_nodes(std::move(sizes))
      .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
      .inter_node({.bandwidth = 1_GBps, .latency = 1_us})
      .build();
}

/// `ranks` devices in `nodes` equal nodes.
inline tawpipe::Cluster cluster(int ranks, int nodes = 1) {
  return nodes_of(std::vector<std::int32_t>(static_cast<std::size_t>(nodes), ranks / nodes));
}

/// A transformer of `layers` layers and `microbatches` microbatches of one sequence of 4 tokens.
inline tawpipe::Workload transformer(int layers, std::int64_t microbatches, bool tied = false) {
  const tawpipe::Transformer model{
      .name = "small", .layers = layers, .hidden = 8, .heads = 4, .kv_heads = 4, .intermediate = 16, .vocab = 12, .tied = tied};
  return {model, tawpipe::Batch{.sequence = 4, .microbatch_size = 1, .global_batch = microbatches}};
}

}  // namespace support
