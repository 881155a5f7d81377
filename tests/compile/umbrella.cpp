// The umbrella as others include it: after hostile macros, by g++, clang++ and, as a .cu file,
// nvcc.
// Not: a test of behaviour.
#define TAWPIPE_HEADER_OF_base
#include "compile/hostile_macros.hpp"
#include "tawpipe/tawpipe.hpp"

int main() {
  using namespace tawpipe::literals;
  const tawpipe::Cluster cluster = tawpipe::ClusterBuilder{}
                                       .device({.name = "one", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                                       .nodes(1)
                                       .devices_per_node(2)
                                       .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
                                       .build();
  const tawpipe::Schedule schedule = tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 4), 2);
  const tawpipe::FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 1_s};
  return tawpipe::simulate(schedule, cluster, cost).makespan() > 1_s ? 0 : 1;
}
