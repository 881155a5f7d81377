// TawPipe with 8 virtual ranks on one GPU against the same microbatches one after the other, eager and by graph; and what it
// costs the host to launch an iteration. Not: speed over several GPUs, which one GPU cannot show.
#include <cstdio>

#include "bench.hpp"

using namespace tawpipe;

namespace {

struct Speeds {
  double eager = 0;  ///< seconds an iteration
  double graph = 0;
};

Speeds measure(const Schedule& schedule) {
  Speeds speeds;
  speeds.eager = gpu::Run{schedule, {.timeline = false}}.quickest(8);
  speeds.graph = gpu::Run{schedule, {.graph = true, .timeline = false}}.quickest(8);
  return speeds;
}

/// Seconds of the host, and not of the GPU, for one iteration of a model so small that the GPU is never waited for.
double launch_seconds(const Schedule& schedule, bool graph) {
  return gpu::Run{schedule, {.graph = graph, .timeline = false}}.quickest(32);
}

Schedule tawpipe_of(const Transformer& model, const Batch& batch, const std::vector<std::int32_t>& nodes) {
  Workload work = gpu::workload(model, batch);
  work.over_devices(DeviceGroups{nodes}.ranks());
  return build_schedule("tawpipe", {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}, .device_memory = {}});
}

}  // namespace

int main() {
  return gpu::run([] {
    const Transformer model = gpu::decoder(8, 2048, 5504, 16, 16);
    const Batch batch{.sequence = 4096, .microbatch_size = 1, .global_batch = 16};
    const Schedule eight = tawpipe_of(model, batch, {4, 4});
    const Schedule plain = tawpipe_of(model, batch, {1});
    const Speeds virtual_ranks = measure(eight);
    const Speeds one = measure(plain);
    const Transformer tiny = gpu::decoder(8, 64, 128, 2, 2);
    const Batch short_batch{.sequence = 64, .microbatch_size = 1, .global_batch = 16};
    const Schedule launches = tawpipe_of(tiny, short_batch, {4, 4});
    const double eager = launch_seconds(launches, false);
    const double graph = launch_seconds(launches, true);
    const auto tasks = static_cast<double>(launches.tasks().size());
    std::printf("{%s,\n \"plain_seconds\": {\"eager\": %.6e, \"graph\": %.6e},\n", gpu::device_json().c_str(), one.eager,
                one.graph);
    std::printf(" \"tawpipe_8_virtual_ranks_seconds\": {\"eager\": %.6e, \"graph\": %.6e},\n", virtual_ranks.eager,
                virtual_ranks.graph);
    std::printf(" \"relative_speed\": {\"eager\": %.4f, \"graph\": %.4f},\n", one.eager / virtual_ranks.eager,
                one.graph / virtual_ranks.graph);
    std::printf(
        " \"small_iteration\": {\"tasks\": %.0f, \"eager_seconds\": %.6e, \"graph_seconds\": %.6e, "
        "\"eager_microseconds_a_task\": %.3f, \"graph_microseconds_a_task\": %.3f}}\n",
        tasks, eager, graph, eager / tasks * 1e6, graph / tasks * 1e6);
  });
}
