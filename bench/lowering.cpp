// What it takes to lower a large model's schedule for one rank: its places in memory, its messages
// and its program.
// Not: what a task costs when it runs (executor.cpp, launch.cpp).
#include <sys/resource.h>

#include <string>

#include "benchmarks.hpp"
#include "schedules.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/model/models.hpp"

namespace {

using namespace tawpipe;

/// The most memory that the program has had so far.
double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// llama-2-7b on three nodes of eight, ten microbatches a rank.
void lower(benchmark::State& state, const std::string& name) {
  Workload work{models::named("llama-2-7b"), Batch{.sequence = 4096, .microbatch_size = 1, .global_batch = 240}, Recompute::full};
  const Schedule schedule = build_schedule(name, {.workload = work, .nodes = DeviceGroups{{8, 8, 8}}, .options = {}});
  const double before = peak_megabytes();
  for (auto _ : state) {
    const Dataflow flow = resolve_dataflow(schedule, Rank{1});
    const Program program = Lowering{schedule}.lower(Rank{1});
    benchmark::DoNotOptimize(flow.transfers.data());
    benchmark::DoNotOptimize(program.lanes());
  }
  state.counters["tasks"] = static_cast<double>(schedule.tasks().size());
  state.counters["added_MB"] = peak_megabytes() - before;
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string name : {"tawpipe", "fsdp", "weipipe"}) {
    benchmark::RegisterBenchmark(("lower/" + name).c_str(), lower, name)->Unit(benchmark::kMillisecond);
  }
  return run_benchmarks(argc, argv);
}
