// A schedule small enough to work out by hand: two ranks of two nodes, one microbatch, one
// activation there and one back.
// Not: any schedule of the catalogue.
#pragma once

#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace tawpipe::test {

/// F 2 s on rank 0 | hop 1 s | F 2 s, B 3 s on rank 1 | hop 1 s | B 3 s on rank 0: 12 s in all.
/// Tasks: 0 F0, 1 hop, 2 F1, 3 B1, 4 hop, 5 B0, 6 and 7 the updates.
struct TwoRanks {
  Cluster cluster =
      ClusterBuilder{}
          .device(
              {.name = "d", .memory = Bytes{100'000'000}, .peak = FlopsPerSecond{1e12}, .memory_bandwidth = BytesPerSecond{1e12}})
          .nodes(2)
          .devices_per_node(1)
          .inter_node({.bandwidth = BytesPerSecond{1e9}, .latency = Duration{}})
          .build();
  Schedule schedule = schedules::gpipe(Workload::abstract(2, 1), 2);
  Timeline timeline = simulate(
      schedule, cluster,
      FixedCost{.forward = seconds(2), .backward_input = seconds(2), .backward_weight = seconds(1), .transfer = seconds(1)});
};

}  // namespace tawpipe::test
