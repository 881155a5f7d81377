// Trains a small LLaMA with TawPipe on six ranks in this process; its gradient equals one device's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <span>
#include <vector>

#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/training/initial_weights.hpp"

namespace {

using Executor = tawpipe::host::HostExecutor<double, tawpipe::layers::host::Llama<double>, tawpipe::layers::AdamWUpdate<double>>;

// Data: anything that gives the same tokens for the same step and microbatch. These count upwards,
// so they can be learnt.
struct Counting {
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(step * 7 + microbatch * 3) + i) % 29);
      targets[i] = (tokens[i] + 1) % 29;
    }
  }
};

// Trains for some steps; returns the first step's gradient.
std::vector<double> train(const tawpipe::Transformer& model, const tawpipe::Schedule& schedule, int steps) {
  // The program's own tensors, one for each buffer of weights that a rank keeps: the executor
  // trains them in place.
  std::vector<std::vector<double>> tensors;
  std::vector<tawpipe::LentParameters> lent;
  for (std::int32_t r = 0; r < schedule.ranks(); ++r) {
    for (const auto& kept : tawpipe::kept_parameters(schedule, tawpipe::Rank{r}, tawpipe::ContentKind::weights)) {
      tensors.emplace_back(static_cast<std::size_t>(tawpipe::parameters_in(kept)));
      lent.push_back({.rank = tawpipe::Rank{r}, .parameters = kept, .memory = std::as_writable_bytes(std::span{tensors.back()})});
    }
  }
  Executor executor{schedule,
                    [&] {
                      return tawpipe::layers::host::Llama<double>{model, schedule.workload().batch(), tawpipe::Recompute::none};
                    },
                    tawpipe::layers::AdamWUpdate<double>{model, {}},
                    {.lent = lent}};
  const tawpipe::training::InitialWeights initial{model, 1};
  executor.for_each_rank([&](auto& rank) {
    rank.for_each_weight([&](tawpipe::ParameterRange range, std::span<double> numbers) { initial.fill(range, numbers); });
  });
  std::vector<double> gradient(static_cast<std::size_t>(model.parameters()));
  std::mutex mutex;
  for (int step = 1; step <= steps; ++step) {
    const auto result = executor.run(Counting{}, {.step = step, .learning_rate = 3e-3},
                                     [&](tawpipe::ParameterRange range, std::span<const double> numbers) {
                                       if (step > 1) return;
                                       const std::lock_guard lock{mutex};
                                       std::copy(numbers.begin(), numbers.end(), gradient.begin() + range.begin);
                                     });
    if (step % 10 == 0 || step == 1) std::printf("  step %2d  loss %.3f\n", step, result.loss());
  }
  std::size_t trained = 0;
  for (const auto& tensor : tensors) trained += tensor.size();
  std::printf("  %zu weights in %zu tensors of this program\n", trained, tensors.size());
  return gradient;
}

}  // namespace

int main() {
  const tawpipe::Transformer model{.name = "tiny",
                                   .layers = 6,
                                   .hidden = 32,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .intermediate = 64,
                                   .vocab = 29,
                                   .tied = true,
                                   .dtype = tawpipe::Dtype::f64};
  tawpipe::Workload work{model, tawpipe::Batch{.sequence = 16, .microbatch_size = 1, .global_batch = 12}};
  work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});

  const tawpipe::Registry schedules = tawpipe::shipped_schedules();
  std::puts("one device");
  const auto alone =
      train(model, schedules.build("1f1b", {.workload = work, .nodes = tawpipe::DeviceGroups{{1}}, .options = {}}), 30);
  std::puts("TawPipe on nodes of 3, 2 and 1 ranks");
  const auto shared =
      train(model, schedules.build("tawpipe", {.workload = work, .nodes = tawpipe::DeviceGroups{{3, 2, 1}}, .options = {}}), 30);

  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    difference = std::max(difference, std::abs(alone[i] - shared[i]));
    largest = std::max(largest, std::abs(alone[i]));
  }
  std::printf("gradients differ by %s of the largest entry\n", difference < 1e-12 * largest ? "less than 1e-12" : "too much");
}
