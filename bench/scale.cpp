// Do time and memory grow linearly with a schedule's tasks, and what does folding save? Processor
// time and peak memory, from a workload in memory to the summary. TawPipe on groups of 4 nodes, 8
// shards a node, each shard's device 8 tensor-parallel ones; data-parallel replicas of that: up to
// 131,072 devices and 100 million tasks.
//   bench_scale                            the table, each row in a separate process
//   bench_scale full|folded DATA MICROBATCHES    one row
// Not: how fast single parts are (build_and_simulate.cpp, engine.cpp).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/simulate/folding.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace {

using namespace tawpipe;
using namespace tawpipe::literals;

constexpr int nodes_of_replica = 4;
constexpr int devices_of_node = 64;
constexpr int tensor = 8;

/// @param microbatches  of each replica
Workload workload(std::int64_t microbatches) {
  const Transformer model{
      .name = "llama-32x8192", .layers = 32, .hidden = 8192, .heads = 64, .kv_heads = 8, .intermediate = 28672, .vocab = 128256};
  Workload work{model, {.sequence = 8192, .microbatch_size = 1, .global_batch = microbatches}, Recompute::full};
  work.over_devices(nodes_of_replica * devices_of_node / tensor);
  return work;
}

Cluster cluster(int nodes) {
  return ClusterBuilder{}
      .device({.name = "H100-80G", .memory = 80_GiB, .peak = 989_TFLOPS, .memory_bandwidth = 3350_GBps})
      .nodes(nodes)
      .devices_per_node(devices_of_node)
      .intra_node({.bandwidth = 450_GBps, .latency = 2_us})
      .inter_node({.bandwidth = 400_Gbps, .latency = 5_us})
      .adapters_per_node(devices_of_node / tensor)
      .build();
}

Summary answer(bool folds, int data, std::int64_t microbatches) {
  const Cluster on = cluster(nodes_of_replica * data);
  const Mesh mesh = Mesh{.tensor = tensor, .data = data}.over(on.ranks());
  const RooflineCost cost{};
  const Workload whole = workload(microbatches * data);
  const Schedule logical = schedules::tawpipe(workload(microbatches), mesh.pipeline_nodes(on.groups_by_node()));
  if (folds) {
    const FoldedSimulation folded = simulate_folded(logical, whole, mesh, {}, on, cost);
    if (!folded.run) throw InputError(folded.refusal);
    return summarize(folded.run->schedule, on, folded.run->timeline);
  }
  const Schedule full = compose(logical, whole, mesh);
  return summarize(full, on, simulate(full, on, cost));
}

int row(bool folds, int data, std::int64_t microbatches) {
  const Summary summary = answer(folds, data, microbatches);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  const double took = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
  const auto tasks = static_cast<double>(summary.tasks);
  const double peak = static_cast<double>(used.ru_maxrss) * 1024;
  std::printf("| %s | %d | %lld | %lld | %.3f s | %.2f us | %.1f MiB | %.1f | %.9f s |\n", folds ? "folded" : "full",
              summary.ranks, static_cast<long long>(summary.tasks),
              static_cast<long long>(folds ? summary.folding.tasks : summary.tasks), took, took / tasks * 1e6, peak / 1048576,
              peak / tasks, to_seconds(summary.makespan));
  return 0;
}

int table() {
  constexpr std::pair<int, std::int64_t> sizes[] = {{1, 32}, {1, 320}, {8, 320}, {64, 320}, {512, 320}};
  std::puts("| | devices | tasks | simulated | time | a task | peak memory | bytes a task | makespan |");
  std::puts("|---|---|---|---|---|---|---|---|---|");
  std::fflush(stdout);
  for (const bool folds : {false, true}) {
    for (const auto& [data, microbatches] : sizes) {
      const pid_t child = fork();
      if (child == 0) {
        row(folds, data, microbatches);
        std::fflush(stdout);
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0)
        std::printf("| %s | %d replicas: ended by signal %d |\n", folds ? "folded" : "full", data, WTERMSIG(status));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return table();
  if (argc != 4) {
    std::fputs("bench_scale [full|folded DATA MICROBATCHES]\n", stderr);
    return 2;
  }
  return row(std::string_view{argv[1]} == "folded", std::atoi(argv[2]), std::atoll(argv[3]));
}
