// TawPipe with 8 virtual ranks on one GPU against the same microbatches one after another, eager
// and by graph; and what it costs the host to launch an iteration.
// Not: speed over several GPUs, which one GPU cannot show.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "bench.hpp"
#include "support/null_device.hpp"

using namespace tawpipe;

namespace {

struct Speeds {
  double eager = 0;  ///< seconds an iteration
  double graph = 0;
};

Speeds measure(const Schedule& schedule, int times) {
  const auto quickest = [&](bool graph) {
    gpu::Optimizer update{*schedule.workload().model().decoder, {}};
    return gpu::Run{schedule, {.graph = graph, .timeline = false}, std::move(update)}.quickest(times);
  };
  Speeds speeds{.eager = quickest(false), .graph = quickest(true)};
  return speeds;
}

/// Seconds of the host to put one iteration into the streams, where layers and optimizer launch
/// nothing: waits, records and the copies that messages are. By graph: one launch.
double launch_seconds(const Schedule& schedule, bool graph, int times) {
  cuda::VirtualExecutor<cuda::CudaDevice, support::NullLayer, support::NullUpdate> executor{
      schedule, cuda::CudaDevice{0}, [] { return support::NullLayer{}; }, {}, {.graph = graph, .timeline = false}};
  const gpu::Tokens tokens{schedule.workload().model().token_ids};
  double best = std::numeric_limits<double>::infinity();
  for (int step = 1; step <= 2 + times; ++step) {  // the first two connect and capture
    const std::int64_t begin = detail::now();
    executor.start(tokens, {.step = step});
    const double seconds = static_cast<double>(detail::now() - begin) * 1e-9;
    executor.finish();
    if (step > 2) best = std::min(best, seconds);
  }
  return best;
}

Schedule tawpipe_of(const Transformer& model, const Batch& batch, const std::vector<std::int32_t>& nodes) {
  Workload work = gpu::workload(model, batch);
  work.over_devices(DeviceGroups{nodes}.ranks());
  return build_schedule("tawpipe", {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}, .device_memory = {}});
}

}  // namespace

int main(int argc, char** argv) {
  const int divisor = gpu::divisor(argc, argv);
  return gpu::run([=] {
    const auto part = [&](int size) { return std::max(1, size / divisor); };
    const Transformer model = gpu::decoder(8, part(2048), part(5504), part(16), part(16));
    const Batch batch{.sequence = 4096 / divisor, .microbatch_size = 1, .global_batch = 16};
    const Schedule eight = tawpipe_of(model, batch, {4, 4});
    const Schedule plain = tawpipe_of(model, batch, {1});
    std::printf("{%s}\n", gpu::device_json().c_str());
    const Speeds virtual_ranks = measure(eight, part(8));
    const Speeds one = measure(plain, part(8));
    std::printf(
        "{\"plain_seconds\": {\"eager\": %.6e, \"graph\": %.6e}, \"tawpipe_8_virtual_ranks_seconds\": {\"eager\": %.6e, "
        "\"graph\": %.6e}, \"relative_speed\": {\"eager\": %.4f, \"graph\": %.4f}}\n",
        one.eager, one.graph, virtual_ranks.eager, virtual_ranks.graph, one.eager / virtual_ranks.eager,
        one.graph / virtual_ranks.graph);
    std::fflush(stdout);
    const Transformer narrow = gpu::decoder(8, 64, 128, 2, 2);  // messages are copied at once
    const Batch short_batch{.sequence = 64, .microbatch_size = 1, .global_batch = 16};
    const Schedule launches = tawpipe_of(narrow, short_batch, {4, 4});
    const double eager = launch_seconds(launches, false, part(32));
    const double graph = launch_seconds(launches, true, part(32));
    const auto tasks = static_cast<double>(launches.tasks().size());
    std::printf(
        "{\"launches\": {\"tasks\": %.0f, \"eager_seconds\": %.6e, \"graph_seconds\": %.6e, "
        "\"eager_microseconds_a_task\": %.3f, \"graph_microseconds_a_task\": %.3f}}\n",
        tasks, eager, graph, eager / tasks * 1e6, graph / tasks * 1e6);
  });
}
