// How fast are schedules built and simulated? Tasks a second, and bytes of memory a task.
// On 24 ranks in 3 nodes, a model of 48 layers and 1536 microbatches: each schedule; and TawPipe
// and 1F1B on 256 ranks in 32 nodes.
// Not: how good the schedules are.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using namespace tawpipe::literals;
using tawpipe::Cluster;
using tawpipe::Schedule;
using tawpipe::Workload;

namespace {

Cluster cluster(int nodes) {
  return tawpipe::ClusterBuilder{}
      .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
      .nodes(nodes)
      .devices_per_node(8)
      .intra_node({.bandwidth = 200_GBps, .latency = 3_us})
      .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})
      .build();
}

/// A model with two layers a rank of the smaller cluster, one a rank of the larger.
Workload workload(int layers, std::int64_t microbatches) {
  const tawpipe::Transformer model{
      .name = "llama", .layers = layers, .hidden = 1024, .heads = 32, .kv_heads = 32, .intermediate = 2816, .vocab = 32000};
  return {model, tawpipe::Batch{.sequence = 16384, .microbatch_size = 1, .global_batch = microbatches}};
}

using Build = Schedule (*)(const Workload&, const Cluster&);

struct Case {
  const char* name;
  int nodes;
  int layers;
  std::int64_t microbatches;
  Build build;
};

Schedule tawpipe_of(const Workload& work, const Cluster& cluster) {
  return tawpipe::schedules::tawpipe(work, cluster.groups_by_node());
}

const Case cases[] = {
    {"tawpipe", 3, 48, 1536, tawpipe_of},
    {"weipipe", 3, 48, 1536,
     [](const Workload& work, const Cluster& cluster) { return tawpipe::schedules::weipipe(work, cluster.ranks()); }},
    {"fsdp", 3, 48, 1536,
     [](const Workload& work, const Cluster& cluster) {
       return tawpipe::schedules::fully_sharded(work, cluster.groups_by_node());
     }},
    {"fsdp_two_level", 3, 48, 1536,
     [](const Workload& work, const Cluster& cluster) {
       return tawpipe::schedules::fully_sharded(work, cluster.groups_by_node(), {.two_level = true});
     }},
    {"gpipe", 3, 48, 1536,
     [](const Workload& work, const Cluster& cluster) {
       return tawpipe::schedules::gpipe(work, cluster.ranks(), {.overlap = true});
     }},
    {"1f1b", 3, 48, 1536,
     [](const Workload& work, const Cluster& cluster) {
       return tawpipe::schedules::one_f_one_b(work, cluster.ranks(), {.overlap = true});
     }},
    {"tawpipe_256_ranks", 32, 256, 1024, tawpipe_of},
    {"1f1b_256_ranks", 32, 256, 1024,
     [](const Workload& work, const Cluster& cluster) {
       return tawpipe::schedules::one_f_one_b(work, cluster.ranks(), {.overlap = true});
     }},
};

void count(benchmark::State& state, const Schedule& schedule) {
  const auto tasks = static_cast<double>(schedule.tasks().size());
  state.counters["tasks"] = tasks;
  state.counters["tasks/s"] = benchmark::Counter(tasks * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["bytes/task"] = static_cast<double>(schedule.memory_bytes()) / tasks;
}

void build(benchmark::State& state, const Case& sample) {
  const Cluster on = cluster(sample.nodes);
  const Workload work = workload(sample.layers, sample.microbatches);
  for (auto _ : state) {
    const Schedule schedule = sample.build(work, on);
    benchmark::DoNotOptimize(schedule.tasks().data());
  }
  count(state, sample.build(work, on));
}

void simulate(benchmark::State& state, const Case& sample) {
  const Cluster on = cluster(sample.nodes);
  const Schedule schedule = sample.build(workload(sample.layers, sample.microbatches), on);
  double seconds = 0;
  for (auto _ : state) {
    const tawpipe::Timeline timeline = tawpipe::simulate(schedule, on, tawpipe::RooflineCost{});
    seconds = to_seconds(timeline.makespan());
  }
  count(state, schedule);
  state.counters["simulated_s"] = seconds;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Case& sample : cases) {
    benchmark::RegisterBenchmark((std::string{"build/"} + sample.name).c_str(), build, sample)->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((std::string{"simulate/"} + sample.name).c_str(), simulate, sample)
        ->Unit(benchmark::kMillisecond);
  }
  return run_benchmarks(argc, argv);
}
