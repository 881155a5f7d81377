// The GPU decoder's calls and places of memory, on a host: against the exact decoder, and the same
// bits for every cut, split and recomputation.
// Not: the kernels one by one (bodies_test.cpp) nor a GPU (tests/gpu/).
#include "tawpipe/layers/cuda/decoder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/host_math.hpp"
#include "support/llama_run.hpp"
#include "support/random.hpp"

namespace {

using llama_run::Options;
using llama_run::Piece;
using llama_run::Runner;
using llama_run::whole;
using support::HostDecoder;
using tawpipe::Batch;
using tawpipe::Bfloat16;
using tawpipe::Dtype;
using tawpipe::Half;
using tawpipe::Recompute;
using tawpipe::Transformer;
using tawpipe::layers::cuda::dtype_of;
using tawpipe::layers::cuda::narrow;
using tawpipe::layers::cuda::widen;

constexpr Recompute policies[] = {Recompute::none, Recompute::selective, Recompute::full};

/// Groups of two heads; sizes that loads of 16 bytes take.
Transformer grouped(bool tied) {
  return {.name = "grouped",
          .layers = 3,
          .hidden = 32,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = 48,
          .vocab = 24,
          .tied = tied,
          .head_dim = 8};
}
/// Sizes that they do not take, and no room for the embedding's gradient over what `none` keeps.
Transformer narrow_model() {
  return {.name = "narrow",
          .layers = 3,
          .hidden = 20,
          .heads = 6,
          .kv_heads = 2,
          .intermediate = 10,
          .vocab = 11,
          .tied = true,
          .head_dim = 6};
}
/// With a loss of so many entries of the vocabulary at a time.
Transformer chunked(Transformer model, int entries) {
  model.loss_chunk = entries;
  return model;
}
Batch two_of_nine() { return {.sequence = 9, .microbatch_size = 2, .global_batch = 2}; }

std::vector<std::int32_t> ids(const Transformer& model, const Batch& batch, std::uint64_t seed) {
  support::Random random{seed};
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < batch.tokens(); ++t) ids.push_back(random.between(0, model.vocab - 1));
  return ids;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> gradients;
  bool operator==(const Outcome&) const = default;
};

/// Losses and summed gradients of two microbatches, from weights that every number type holds
/// exactly.
template <class T, class Layer, class G>
Outcome outcome(Transformer model, Dtype dtype, const std::vector<Piece>& pieces, const Options& options) {
  model.dtype = dtype;
  const Batch batch = two_of_nine();
  Runner<T, Layer, G> runner{model, batch, pieces, options};
  support::Random random{7};
  const auto parameters = runner.parameters.template as<T>();
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    for (std::int64_t i = tensor.range.begin; i < tensor.range.end; ++i) {
      const float x = static_cast<float>(tensor.decays() ? random.real(-0.3, 0.3) : random.real(0.8, 1.2));
      parameters[static_cast<std::size_t>(i)] = narrow<T>(widen(Bfloat16{widen(Half{x})}));
    }
  }
  Outcome outcome;
  for (std::uint64_t m = 0; m < 2; ++m) {
    outcome.losses.push_back(runner.run(ids(model, batch, 2 * m), ids(model, batch, 2 * m + 1)).loss);
  }
  for (const G g : runner.gradients.template copy<G>()) outcome.gradients.push_back(static_cast<double>(widen(g)));
  return outcome;
}
template <class T, class G = T>
Outcome ours(const Transformer& model, const std::vector<Piece>& pieces, const Options& options) {
  return outcome<T, HostDecoder<T, G>, G>(model, dtype_of<T>, pieces, options);
}
Outcome exact(const Transformer& model) {
  return outcome<float, tawpipe::layers::host::Llama<float>, float>(model, Dtype::f32, whole(model.layers), {.scale = 0.5});
}

/// Norm of the difference to `wanted`, relative, of the parameters of the worst tensor.
double worst_tensor(const Transformer& model, const Outcome& found, const Outcome& wanted) {
  double worst = 0;
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    double square = 0;
    double norm = 0;
    for (auto i = static_cast<std::size_t>(tensor.range.begin); i < static_cast<std::size_t>(tensor.range.end); ++i) {
      square += std::pow(found.gradients[i] - wanted.gradients[i], 2);
      norm += std::pow(wanted.gradients[i], 2);
    }
    worst = std::max(worst, std::isnan(square) ? 1e300 : std::sqrt(square / norm));
  }
  return worst;
}

const std::vector<std::vector<Piece>>& cuts() {
  static const std::vector<std::vector<Piece>> cuts = {
      {{3, true, true}},
      {{1, true, false}, {2, false, true}},
      {{0, true, false}, {1, false, false}, {1, false, false}, {1, false, false}, {0, false, true}},
  };
  return cuts;
}

/// Every cut, split and policy gives these bits.
template <class T, class G>
void check_same_bits(const Transformer& model, const Outcome& reference) {
  for (const Recompute recompute : policies) {
    CAPTURE(name(recompute));
    for (const bool split : {false, true}) {
      CAPTURE(split);
      for (const auto& pieces : cuts()) {
        CAPTURE(pieces.size());
        CHECK(ours<T, G>(model, pieces, {.recompute = recompute, .split = split, .in_place = split, .scale = 0.5}) == reference);
      }
    }
  }
}

}  // namespace

TEST_CASE("in float32 losses and gradients are the exact decoder's, for every cut, split and recomputation") {
  for (const Transformer& model :
       {grouped(false), grouped(true), narrow_model(), chunked(grouped(true), 8), chunked(narrow_model(), 3)}) {
    CAPTURE(model.name);
    CAPTURE(model.tied);
    CAPTURE(model.loss_chunk);
    const Outcome wanted = exact(chunked(model, 0));
    const Outcome found = ours<float>(model, whole(model.layers), {.scale = 0.5});
    for (std::size_t m = 0; m < 2; ++m) CHECK(std::abs(found.losses[m] - wanted.losses[m]) < 2e-6);
    CHECK(worst_tensor(model, found, wanted) < 1e-5);
    check_same_bits<float, float>(model, found);
  }
}

// A 16-bit number is off by at most u = 2^-9 (bfloat16) or 2^-12 (float16) of itself. Some 20
// roundings a layer lie between an activation and a gradient; they add up as a random walk to about
// sqrt(20 x 3 layers) u = 8 u; three times that is allowed.
TEST_CASE("in bfloat16 and float16 they are within the rounding of activations, and the same bits throughout") {
  for (const Transformer& model : {grouped(true), narrow_model(), chunked(grouped(true), 10), chunked(narrow_model(), 4)}) {
    CAPTURE(model.name);
    CAPTURE(model.loss_chunk);
    const Outcome wanted = exact(chunked(model, 0));
    const auto check = [&](const Outcome& found, double unit) {
      for (std::size_t m = 0; m < 2; ++m) CHECK(std::abs(found.losses[m] - wanted.losses[m]) < 8 * unit);
      CHECK(worst_tensor(model, found, wanted) < 24 * unit);
    };
    const auto brain = ours<Bfloat16, float>(model, whole(model.layers), {.scale = 0.5});
    check(brain, 0x1p-9);
    check_same_bits<Bfloat16, float>(model, brain);
    const auto half = ours<Half, float>(model, whole(model.layers), {.scale = 0.5});
    check(half, 0x1p-12);
    check_same_bits<Half, float>(model, half);
    // Gradients in 16 bits are rounded once a microbatch.
    check(ours<Bfloat16>(model, whole(model.layers), {.scale = 0.5}), 0x1p-9);
    check(ours<Half>(model, whole(model.layers), {.scale = 0.5}), 0x1p-12);
  }
}

TEST_CASE("a loss scale multiplies gradients and not the loss") {
  const Transformer model = [] {
    Transformer one = grouped(true);
    one.dtype = Dtype::f32;
    return one;
  }();
  const Batch batch = two_of_nine();
  const auto run = [&](const float* scale) {
    struct Scaled : HostDecoder<float> {
      using HostDecoder<float>::HostDecoder;
    };
    Runner<float, Scaled> runner{model, batch, whole(model.layers)};
    runner.layer().use_loss_scale(scale);
    std::ranges::generate(runner.parameters.as<float>(),
                          [random = support::Random{5}]() mutable { return static_cast<float>(random.real(-0.4, 0.4)); });
    const double loss = runner.run(ids(model, batch, 1), ids(model, batch, 2)).loss;
    return std::pair{loss, runner.gradients.copy<float>()};
  };
  const float scale = 64;
  const auto plain = run(nullptr);
  const auto scaled = run(&scale);
  CHECK(plain.first == scaled.first);
  for (std::size_t i = 0; i < plain.second.size(); ++i) CHECK(scaled.second[i] == 64 * plain.second[i]);  // a power of two
}

TEST_CASE("models that it cannot compute are refused in one sentence") {
  const auto refusal = [](Transformer model, const Batch& batch) {
    model.dtype = Dtype::bf16;
    try {
      HostDecoder<Bfloat16>{model, batch, Recompute::none};
    } catch (const tawpipe::InputError& error) {
      return std::string{error.what()};
    }
    return std::string{"accepted"};
  };
  CHECK(refusal(grouped(true), two_of_nine()) == "accepted");
  Transformer odd = narrow_model();
  odd.intermediate = 11;
  CHECK(
      refusal(odd, two_of_nine()) ==
      "model 'narrow': on a GPU in 16 bits hidden and intermediate size must be even, and a microbatch at least two tokens, not "
      "20, 11 and 18");
  Transformer mixture = grouped(true);
  mixture.experts = mixture.experts_per_token = 1;
  CHECK(refusal(mixture, two_of_nine()) ==
        "model 'grouped': a mixture of experts can be simulated, but not computed by this code");
  // 7 tokens x 10 < 4 x 20
  CHECK(refusal(narrow_model(), {.sequence = 7, .microbatch_size = 1, .global_batch = 1}) ==
        "model 'narrow': a microbatch of 7 tokens is too small; tokens x intermediate size must be at least 80, four times the "
        "hidden size");
}
