// Runs a schedule on the toy model by the host executor, and brings what it computed into one
// array.
// Not: the toy itself (toy_layer.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "schedules.hpp"
#include "support/toy_layer.hpp"
#include "tawpipe/execute/executor.hpp"
#include "tawpipe/execute/host/executor.hpp"

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

/// Sequences of 3 tokens, one a microbatch, sizes as the executors of double need them.
inline tawpipe::Workload toy_work(const tawpipe::Transformer& model, std::int64_t microbatches,
                                  tawpipe::Recompute recompute = tawpipe::Recompute::none) {
  tawpipe::Workload work{model, tawpipe::Batch{.sequence = 3, .microbatch_size = 1, .global_batch = microbatches}, recompute};
  work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
  return work;
}

/// Weights to begin with, the same whichever rank holds them.
inline void set_toy_weights(tawpipe::host::RankState<double>& state) {
  state.for_each_weight([](tawpipe::ParameterRange range, std::span<double> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = std::sin(0.7 * static_cast<double>(range.begin + static_cast<std::int64_t>(i)));
    }
  });
}

/// What some steps of training left.
struct ToyOutcome {
  std::vector<double> losses;    ///< [step]
  std::vector<double> gradient;  ///< [parameter] of the last step; NaN where no update saw one
  std::vector<double> weights;   ///< [parameter] at the end, of a rank that has its new value
  double copies_differ = 0;      ///< the most by which two copies of a weight differ
  std::vector<tawpipe::IterationResult> results;
};

inline ToyOutcome train_by_threads(const tawpipe::Schedule& schedule, int steps, const tawpipe::host::HostOptions& options = {},
                                   double clip = 0) {
  const tawpipe::LayerStack& model = schedule.workload().model();
  ToyHostExecutor executor{schedule, [&] { return ToyLayer<double>{model}; }, {}, options};
  executor.for_each_rank([](auto& rank) { set_toy_weights(rank); });
  ToyOutcome outcome;
  outcome.gradient.assign(static_cast<std::size_t>(model.parameters()), NAN);
  outcome.weights = outcome.gradient;
  std::mutex mutex;
  const auto observe = [&](tawpipe::ParameterRange range, std::span<const double> gradients) {
    const std::lock_guard lock{mutex};
    std::copy(gradients.begin(), gradients.end(), outcome.gradient.begin() + range.begin);
  };
  for (int step = 1; step <= steps; ++step) {
    const tawpipe::Iteration args{.step = step, .learning_rate = 0.05, .gradient_clip = clip};
    outcome.results.push_back(executor.run(ToyTokens{model.token_ids}, args, observe));
    outcome.losses.push_back(outcome.results.back().loss());
  }
  tawpipe::read_weights(executor, [&](tawpipe::ParameterRange range, std::span<const double> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      double& known = outcome.weights[static_cast<std::size_t>(range.begin) + i];
      if (!std::isnan(known)) outcome.copies_differ = std::max(outcome.copies_differ, std::abs(known - numbers[i]));
      known = numbers[i];
    }
  });
  return outcome;
}

/// The most by which two arrays differ; huge where one has a NaN.
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::isnan(a[i]) || std::isnan(b[i]) ? 1e300 : std::abs(a[i] - b[i]));
  }
  return largest;
}

/// One device that computes everything.
inline tawpipe::Schedule toy_alone(const tawpipe::Workload& work) {
  return tawpipe::build_schedule("1f1b", {.workload = work, .nodes = tawpipe::DeviceGroups{{1}}, .options = {}});
}

}  // namespace support
