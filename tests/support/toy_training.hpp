// A toy model and its workload, and what one device makes of it: what executors of other schedules are held to.
// Not: the model's mathematics (support/toy_layer.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "support/toy_layer.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/catalogue.hpp"

namespace support {

using ToyHostExecutor = tawpipe::host::HostExecutor<double, ToyLayer<double>, ToyOptimizer<double>>;

inline tawpipe::Transformer toy_model(int layers, bool tied) {
  return {.name = "toy",
          .layers = layers,
          .hidden = 4,
          .heads = 2,
          .kv_heads = 1,
          .intermediate = 5,
          .vocab = 7,
          .tied = tied,
          .dtype = tawpipe::Dtype::f64};
}

inline tawpipe::Workload toy_work(const tawpipe::Transformer& model, std::int64_t microbatches) {
  tawpipe::Workload work{model, tawpipe::Batch{.sequence = 3, .microbatch_size = 1, .global_batch = microbatches}};
  work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
  return work;
}

/// Weights to begin with, the same whoever holds them.
inline void set_toy_weights(tawpipe::host::RankState<double>& state) {
  state.for_each_weight([](tawpipe::ParameterRange range, std::span<double> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::sin(0.7 * static_cast<double>(range.begin + static_cast<std::int64_t>(i)));
  });
}

/// What a run of some steps leaves.
struct ToyOutcome {
  std::vector<tawpipe::host::IterationResult> results;  ///< [step]
  std::vector<double> gradient;                         ///< [parameter] of the last step; NaN: not seen
  std::vector<double> weights;                          ///< [parameter] NaN: not seen
};

inline ToyOutcome train_by_threads(const tawpipe::Schedule& schedule, int steps) {
  const tawpipe::Transformer& model = schedule.workload().model();
  ToyHostExecutor executor{schedule, [&] { return ToyLayer<double>{model}; }, {}};
  ToyOutcome outcome;
  outcome.gradient.assign(static_cast<std::size_t>(model.parameters()), NAN);
  outcome.weights = outcome.gradient;
  for (int r = 0; r < schedule.ranks(); ++r) set_toy_weights(executor.rank(tawpipe::Rank{r}));
  for (int step = 1; step <= steps; ++step) {
    std::mutex mutex;
    const auto observe = [&](tawpipe::ParameterRange range, std::span<const double> gradients) {
      const std::lock_guard lock{mutex};
      std::copy(gradients.begin(), gradients.end(), outcome.gradient.begin() + range.begin);
    };
    outcome.results.push_back(executor.run(ToyTokens{model.vocab}, {.step = step, .learning_rate = 0.05}, observe));
  }
  for (int r = 0; r < schedule.ranks(); ++r) {
    executor.rank(tawpipe::Rank{r}).for_each_weight([&](tawpipe::ParameterRange range, std::span<double> numbers) {
      std::copy(numbers.begin(), numbers.end(), outcome.weights.begin() + range.begin);
    });
  }
  return outcome;
}

}  // namespace support
