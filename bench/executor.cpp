// The cost of an iteration of the host executor in addition to its layers and transfers, on the
// model of docs/training.md.
// Not: the layers themselves (layers.cpp) nor several hosts (accuracy/).
#include <string>

#include "benchmarks.hpp"
#include "schedules.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/training/initial_weights.hpp"

namespace {

using namespace tawpipe;

/// The same tokens always: what they are does not matter here.
struct Constant {
  void fetch(std::int64_t, std::int32_t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i % 256);
      targets[i] = static_cast<std::int32_t>((i + 1) % 256);
    }
  }
};

/// Iterations of `name` on one rank: nothing overlaps, so all time that no task takes is the
/// executor's. overhead: that share of the iteration; tasks: how many it has.
void overhead(benchmark::State& state, const std::string& name) {
  Transformer model = models::named("llama-4x128");
  model.vocab = 256;
  model.dtype = Dtype::f32;
  const Batch batch{.sequence = 128, .microbatch_size = 4, .global_batch = 16};
  Workload work{model, batch};
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  const Schedule schedule = build_schedule(name, {.workload = work, .nodes = DeviceGroups{{1}}, .options = {}});
  using Layer = layers::host::Llama<float>;
  using Optimizer = layers::AdamWUpdate<float>;
  host::HostExecutor<float, Layer, Optimizer> executor{schedule,
                                                       [&] {
                                                         return Layer{model, batch, Recompute::none};
                                                       },
                                                       Optimizer{model, {}}};
  const training::InitialWeights initial{model, 0};
  executor.for_each_rank([&](auto& rank) {
    rank.for_each_weight([&](ParameterRange range, std::span<float> numbers) { initial.fill(range, numbers); });
  });
  double whole = 0;
  double outside = 0;
  std::int64_t step = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    const IterationResult result = executor.run(Constant{}, {.step = ++step, .learning_rate = 1e-3});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    double inside = 0;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) inside += to_seconds(result.timeline.duration_of(id<TaskId>(t)));
    whole += seconds;
    outside += seconds - inside;
  }
  state.counters["overhead"] = outside / whole;
  state.counters["tasks"] = static_cast<double>(schedule.tasks().size());
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string name : {"1f1b", "tawpipe", "fsdp"}) {
    benchmark::RegisterBenchmark(("overhead/" + name).c_str(), overhead, name)->Unit(benchmark::kMillisecond)->UseRealTime();
  }
  return run_benchmarks(argc, argv);
}
