// One commit's processor time for building, simulating, validating and lowering schedules, and
// bytes of a task: lines of `phase/case seconds tasks bytes_a_task`. Compiled against the headers
// of any commit (compare.py); older ones had other paths. Under callgrind each runs once, and only
// its instructions are collected (--collect-atstart=no).
// Not: how fast each part is (build_and_simulate.cpp, lowering.cpp).
#include <malloc.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_TOGGLE_COLLECT
#define RUNNING_ON_VALGRIND 0
#endif

#if __has_include("tawpipe/schedules/shipped.hpp")
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#else
#include "tawpipe/schedule/schedules/fully_sharded.hpp"
#include "tawpipe/schedule/schedules/one_f_one_b.hpp"
#include "tawpipe/schedule/schedules/tawpipe.hpp"
#include "tawpipe/schedule/schedules/weipipe.hpp"
#endif
#if __has_include("tawpipe/verify/validate.hpp")
#include "tawpipe/verify/validate.hpp"
#else
#include "tawpipe/analysis/validate.hpp"
#endif
#include "tawpipe/cost/roofline.hpp"
#if __has_include("tawpipe/simulate/simulate.hpp")
#include "tawpipe/simulate/simulate.hpp"
#else
#include "tawpipe/simulate/simulator.hpp"
namespace tawpipe {
inline Timeline simulate(const Schedule& schedule, const Cluster& cluster, const RooflineCost& cost) {
  return Simulator{cluster, cost}.run(schedule);
}
}  // namespace tawpipe
#endif
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace {

using namespace tawpipe;
using namespace tawpipe::literals;

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string wanted;

/// The least of several runs. The caller starts the program several times.
template <class Run>
void measure(const std::string& name, const Schedule& schedule, Run&& run) {
  if (name.find(wanted) == std::string::npos) return;
  double least = 1e9;
  const double first = processor_seconds();
  do {
    const double begin = processor_seconds();
    CALLGRIND_TOGGLE_COLLECT;
    run();
    CALLGRIND_TOGGLE_COLLECT;
    least = std::min(least, processor_seconds() - begin);
  } while (!RUNNING_ON_VALGRIND && processor_seconds() - first < 0.5);
  const auto tasks = static_cast<double>(schedule.tasks().size());
  std::printf("%s %.6f %.0f %.2f\n", name.c_str(), least, tasks, static_cast<double>(schedule.memory_bytes()) / tasks);
}

Workload workload(std::int64_t microbatches) {
  const Transformer model{
      .name = "llama", .layers = 48, .hidden = 1024, .heads = 32, .kv_heads = 32, .intermediate = 2816, .vocab = 32000};
  return {model, {.sequence = 16384, .microbatch_size = 1, .global_batch = microbatches}};
}

template <class Build>
void all_of(const std::string& name, const Cluster& cluster, Build&& build) {
  const Workload large = workload(1536);
  const Schedule schedule = build(large);
  measure("build/" + name, schedule, [&] { return build(large).tasks().size(); });
  measure("simulate/" + name, schedule, [&] { return simulate(schedule, cluster, RooflineCost{}).makespan(); });
  measure("validate/" + name, schedule, [&] {
    if (!validate(schedule).ok()) std::abort();
  });
  const Schedule small = build(workload(240));
  measure("lower/" + name, small, [&] {
    const Dataflow flow = resolve_dataflow(small);
    const Lowering lowering{small};
    std::size_t launches = 0;
    for (int r = 0; r < small.ranks(); ++r) launches += lowering.lower(Rank{r}).lane(0).size();
    if (launches == 0 || flow.transfers.empty()) std::abort();
  });
}

}  // namespace

/// @param argv  a part of the rows' names, such as validate/fsdp; none: all rows
int main(int argc, char** argv) {
  if (argc > 1) wanted = argv[1];
  // What lies above freed memory decides whether the C library returns it, so that each repeat is
  // given new pages: chance, up to a half of the time of a build.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_MAX, 0);
  const Cluster cluster = ClusterBuilder{}
                              .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                              .nodes(3)
                              .devices_per_node(8)
                              .intra_node({.bandwidth = 200_GBps, .latency = 3_us})
                              .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})
                              .build();
  const DeviceGroups nodes = cluster.groups_by_node();
  all_of("tawpipe", cluster, [&](const Workload& work) { return schedules::tawpipe(work, nodes); });
  all_of("weipipe", cluster, [&](const Workload& work) { return schedules::weipipe(work, 24); });
  all_of("fsdp", cluster, [&](const Workload& work) { return schedules::fully_sharded(work, nodes); });
  all_of("1f1b", cluster, [&](const Workload& work) { return schedules::one_f_one_b(work, 24, {.overlap = true}); });
}
