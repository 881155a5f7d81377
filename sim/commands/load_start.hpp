// Gives an executor the numbers that a training starts with.
// Not: which these are (train_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "../parallel.hpp"
#include "tawpipe/execute/executor.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/training/initial_weights.hpp"
#include "train_run.hpp"

namespace tawpipe::sim {

/// A number takes tens of nanoseconds: an 8B model would keep one core for minutes.
template <class T>
void fill_on_all_cores(const training::InitialWeights& initial, ParameterRange range, std::span<T> numbers) {
  constexpr std::int64_t piece = std::int64_t{1} << 18;
  const auto pieces = static_cast<std::size_t>((range.count() + piece - 1) / piece);
  on_threads(all_threads(), pieces, [&](std::size_t i) {
    const std::int64_t from = static_cast<std::int64_t>(i) * piece;
    const std::int64_t count = std::min(piece, range.count() - from);
    initial.fill(ParameterRange{range.begin + from, range.begin + from + count},
                 numbers.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count)));
  });
}

/// Weights and moments at the start: from a checkpoint, from published weights, or from the seed.
template <class T, class Executor>
void load_start(Executor& executor, const Run& run) {
  const training::InitialWeights initial{run.model.model, run.state.data.seed};
  set_weights(executor, [&](ParameterRange range, std::span<T> numbers) {
    if (run.checkpoint) {
      run.checkpoint->read(training::ParameterValue::weight, range, numbers);
    } else if (run.weights) {
      run.weights->read(range, numbers);
    } else {
      fill_on_all_cores(initial, range, numbers);
    }
  });
  if (!run.checkpoint) return;
  set_moments(executor, [&](ParameterRange range, std::span<T> first, std::span<T> second) {
    run.checkpoint->read(training::ParameterValue::first_moment, range, first);
    run.checkpoint->read(training::ParameterValue::second_moment, range, second);
  });
}

}  // namespace tawpipe::sim
