// What a LLaMA decoder's tests compare: drawn parameters and ids, losses and gradients of two
// microbatches, whatever the cut, derivatives.
// Not: the run itself (support/llama_run.hpp).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/llama_run.hpp"
#include "support/random.hpp"

namespace llama_run {

using tawpipe::Batch;
using tawpipe::DecoderConstants;
using tawpipe::Dtype;
using tawpipe::Recompute;
using tawpipe::Transformer;

inline std::vector<std::int32_t> ids(const Transformer& model, const Batch& batch, std::uint64_t seed) {
  support::Random random{seed};
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < batch.tokens(); ++t) ids.push_back(random.between(0, model.vocab - 1));
  return ids;
}

inline double uniform(support::Random& random) { return random.real(-1, 1); }

template <class T>
void fill(Runner<T>& runner, const Transformer& model) {
  support::Random random{7};
  const auto parameters = runner.parameters.template as<T>();
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    for (std::int64_t i = tensor.range.begin; i < tensor.range.end; ++i) {
      parameters[static_cast<std::size_t>(i)] =
          static_cast<T>(tensor.decays() ? 0.5 * uniform(random) : 1 + 0.2 * uniform(random));
    }
  }
}

/// Loss and gradients of two microbatches, added up.
template <class T>
struct Outcome {
  std::vector<double> losses;
  std::vector<T> gradients;
  bool operator==(const Outcome&) const = default;
};

template <class T>
Outcome<T> outcome(Transformer model, const Batch& batch, const std::vector<Piece>& pieces, const Options& options) {
  model.dtype = sizeof(T) == 4 ? Dtype::f32 : Dtype::f64;
  Runner<T> runner{model, batch, pieces, options};
  fill(runner, model);
  Outcome<T> outcome;
  for (std::uint64_t m = 0; m < 2; ++m) {
    outcome.losses.push_back(runner.run(ids(model, batch, 2 * m), ids(model, batch, 2 * m + 1)).loss);
  }
  outcome.gradients = runner.gradients.template copy<T>();
  return outcome;
}

/// Four layers in 1 to 6 pieces.
inline const std::vector<std::vector<Piece>>& cuts() {
  static const std::vector<std::vector<Piece>> cuts = {
      {{2, true, false}, {2, false, true}},
      {{1, true, false}, {2, false, false}, {1, false, true}},
      {{0, true, false}, {4, false, false}, {0, false, true}},
      {{1, true, false}, {1, false, false}, {1, false, false}, {1, false, true}},
      {{0, true, false}, {1, false, false}, {1, false, false}, {1, false, false}, {1, false, false}, {0, false, true}},
  };
  return cuts;
}

/// Every cut, split and recomputation of four layers gives the same bits.
inline void check_same_bits(const Transformer& model, const Batch& batch, const DecoderConstants& constants = {}) {
  const auto reference = outcome<double>(model, batch, whole(model.layers), {.scale = 0.5, .constants = constants});
  CHECK(std::ranges::none_of(reference.gradients, [](double g) { return std::isnan(g); }));
  const auto reference32 = outcome<float>(model, batch, whole(model.layers), {.scale = 0.5, .constants = constants});
  for (std::size_t m = 0; m < 2; ++m) CHECK(std::abs(reference.losses[m] - reference32.losses[m]) < 1e-5);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    CAPTURE(name(recompute));
    for (const bool split : {false, true}) {
      CAPTURE(split);
      const Options options{.recompute = recompute, .split = split, .in_place = split, .scale = 0.5, .constants = constants};
      CHECK(outcome<double>(model, batch, whole(model.layers), options) == reference);
      CHECK(outcome<float>(model, batch, whole(model.layers), options) == reference32);
      for (const auto& pieces : cuts()) {
        CAPTURE(pieces.size());
        CHECK(outcome<double>(model, batch, pieces, options) == reference);
      }
    }
  }
}

/// Gradients of every tensor against differences of the loss, in float64.
inline void check_derivatives(const Transformer& model, const Batch& batch, const DecoderConstants& constants = {}) {
  // Per tensor one direction r: with d(e) = (L(p + e r) - L(p - e r)) / 2e, (4 d(e) - d(2e)) / 3 = g . r
  // up to e^4 and rounding / e, the larger near 1e-10 at e = 1e-5.
  constexpr double step = 1e-5;
  Runner<double> runner{model, batch, whole(model.layers), {.scale = 3, .constants = constants}};
  fill(runner, model);
  const auto tokens = ids(model, batch, 1);
  const auto targets = ids(model, batch, 2);
  runner.run(tokens, targets);
  const auto parameters = runner.parameters.as<double>();
  const auto gradients = runner.gradients.as<double>();
  const auto at_start = runner.parameters.copy<double>();
  support::Random random{3};
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    CAPTURE(tensor.name);
    std::vector<double> direction(static_cast<std::size_t>(tensor.range.count()));
    std::ranges::generate(direction, [&] { return uniform(random); });
    const auto begin = static_cast<std::size_t>(tensor.range.begin);
    const auto loss_at = [&](double along) {
      for (std::size_t i = 0; i < direction.size(); ++i) parameters[begin + i] = at_start[begin + i] + along * direction[i];
      return runner.run(tokens, targets, false).loss;
    };
    const auto difference = [&](double e) { return (loss_at(e) - loss_at(-e)) / (2 * e); };
    const double slope = (4 * difference(step) - difference(2 * step)) / 3;
    loss_at(0);
    double expected = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) expected += gradients[begin + i] / 3 * direction[i];
    CHECK(std::abs(slope - expected) < 2e-9 + 1e-7 * std::abs(expected));
  }
}

}  // namespace llama_run
