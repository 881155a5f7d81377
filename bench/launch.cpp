// What the CUDA executors cost the host for each task, on a device that does nothing: waits,
// records and calls, no driver.
// Not: what CUDA and NCCL add to each of those (tests/gpu).
#include <memory>
#include <string>

#include "benchmarks.hpp"
#include "schedules.hpp"
#include "support/null_device.hpp"
#include "support/test_communicator.hpp"
#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "tawpipe/model/models.hpp"

namespace {

using namespace tawpipe;

/// The same tokens always.
struct Constant {
  void fetch(std::int64_t, std::int32_t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    std::fill(tokens.begin(), tokens.end(), 1);
    std::fill(targets.begin(), targets.end(), 1);
  }
};
/// Where calls of communicators end.
struct Nowhere {
  void make_member(int, int) {}
  void communicate(int, int, const std::vector<support::CommunicatorCall>& calls, int) { all += calls.size(); }
  std::size_t all = 0;
};

Schedule small_schedule(const std::string& name, const std::vector<std::int32_t>& nodes) {
  Transformer model = models::named("llama-4x128");
  model.layers = 24;
  model.hidden = 16;
  model.heads = model.kv_heads = 2;
  model.intermediate = 32;
  model.vocab = 64;
  model.dtype = Dtype::f32;
  Workload work{model, Batch{.sequence = 8, .microbatch_size = 1, .global_batch = 96}};
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  return build_schedule(name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}});
}

void count_tasks(benchmark::State& state, std::size_t tasks) {
  state.counters["per_task"] = benchmark::Counter(static_cast<double>(tasks) * static_cast<double>(state.iterations()),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// Host time of one iteration's issue. per_task: of each task.
void virtual_ranks(benchmark::State& state, const std::string& name, bool timeline) {
  const Schedule schedule = small_schedule(name, {8, 8, 8});
  cuda::VirtualExecutor<support::NullDevice, support::NullLayer, support::NullUpdate> executor{
      schedule, {}, [] { return support::NullLayer{}; }, {}, {.timeline = timeline}};
  for (auto _ : state) executor.issue(false);
  count_tasks(state, schedule.tasks().size());
}

/// One rank's, of a schedule of 24.
void one_rank(benchmark::State& state, const std::string& name) {
  const Schedule schedule = small_schedule(name, {8, 8, 8});
  using Communicator = support::TestCommunicator<Nowhere, support::NullDevice::Stream>;
  Nowhere nowhere;
  const auto family = std::make_shared<Communicator::Family>();
  cuda::NcclExecutor<support::NullDevice, Communicator, support::NullLayer, support::NullUpdate> executor{
      schedule, {}, Communicator{nowhere, family, 0, 24}, [] { return support::NullLayer{}; }, {}, {.timeline = false}};
  for (auto _ : state) executor.issue(false);
  std::size_t own = 0;
  for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) own += schedule.program(Rank{0}, lane).size();
  count_tasks(state, own);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string name : {"tawpipe", "zb-h1", "fsdp"}) {
    benchmark::RegisterBenchmark(("virtual_ranks/" + name).c_str(), virtual_ranks, name, false)->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("one_rank/" + name).c_str(), one_rank, name)->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("virtual_ranks/tawpipe_timeline", virtual_ranks, "tawpipe", true)->Unit(benchmark::kMicrosecond);
  return run_benchmarks(argc, argv);
}
