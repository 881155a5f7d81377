// How long does a question about 24 ranks take, from a workload in memory to the figures that a
// user reads? Milliseconds. Each schedule on 3 nodes of 8, 48 layers, 96 microbatches: built,
// simulated, summarized, as `tawpipe compare` does for one size of the microbatch.
// Not: starting the program, reading files, printing.
#include <string>

#include "benchmarks.hpp"
#include "schedules.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/clusters.hpp"

namespace {

void answer(benchmark::State& state, const std::string& schedule) {
  const tawpipe::Cluster cluster = tawpipe::cluster_named("a800x24-10gbe");
  tawpipe::Workload workload{tawpipe::models::named("llama-48x1024"),
                             {.sequence = 16384, .microbatch_size = 16, .global_batch = 1536},
                             tawpipe::Recompute::full};
  workload.over_devices(cluster.ranks());
  const tawpipe::RooflineCost cost{.utilization = 0.34};
  std::int64_t tasks = 0;
  for (auto _ : state) {
    const tawpipe::Schedule built =
        tawpipe::build_schedule(schedule, {.workload = workload, .nodes = cluster.groups_by_node(), .options = {}});
    const tawpipe::Summary summary = tawpipe::summarize(built, cluster, tawpipe::simulate(built, cluster, cost));
    benchmark::DoNotOptimize(summary.makespan);
    tasks = summary.tasks;
  }
  state.counters["tasks"] = static_cast<double>(tasks);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string name : {"tawpipe", "weipipe", "fsdp", "1f1b"}) {
    benchmark::RegisterBenchmark(("answer/" + name).c_str(), answer, name)->Unit(benchmark::kMillisecond);
  }
  return run_benchmarks(argc, argv);
}
