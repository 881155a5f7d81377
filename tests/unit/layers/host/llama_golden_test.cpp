// The decoder and AdamW against golden numbers of two dense configurations and four with experts:
// losses, gradients, activations, five steps.
// Not: cuts, splits and memory (llama_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/llama_run.hpp"
#include "tawpipe/layers/adamw.hpp"
#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/router.hpp"

namespace llama_golden_test {

namespace {

using golden::Case;
using llama_run::Piece;
using llama_run::Runner;
using tawpipe::Dtype;

template <class T>
constexpr Dtype dtype_of = sizeof(T) == 4 ? Dtype::f32 : Dtype::f64;

template <class T>
void load(const Case& test, Runner<T>& runner, const tawpipe::Transformer& model) {
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    const auto values = test.init.read<T>(tensor.name);
    REQUIRE(std::ssize(values) == tensor.range.count());
    std::ranges::copy(values, runner.parameters.template as<T>().begin() + tensor.range.begin);
  }
}

struct Difference {
  double most = 0;      // largest difference
  double relative = 0;  // of the largest entry
  double l2 = 0;        // relative
};

template <class A, class B>
Difference difference(const A& ours, const B& wanted) {
  double most = 0;
  double largest = 0;
  double square = 0;
  double wanted_square = 0;
  REQUIRE(std::size(ours) == std::size(wanted));
  for (std::size_t i = 0; i < std::size(ours); ++i) {
    const double d = static_cast<double>(ours[i]) - static_cast<double>(wanted[i]);
    const double w = static_cast<double>(wanted[i]);
    most = std::isnan(d) ? 1e300 : std::max(most, std::abs(d));
    largest = std::max(largest, std::abs(w));
    square += d * d;
    wanted_square += w * w;
  }
  if (largest == 0) return {most, most, std::sqrt(square)};  // of an expert that no token reaches
  return {most, most / largest, std::sqrt(square / wanted_square)};
}

/// Of float64 against a tensor that is in float64, or rounded to float32, where it stands.
double tolerance(const Case& test, const std::string& tensor) {
  return test.expect.tensor(tensor).format == tawpipe::training::NumberFormat::f64 ? 1e-11 : 1e-7;
}

template <class T>
std::span<T> part(llama_run::Guarded& memory, const tawpipe::ParameterRange& range) {
  return memory.as<T>().subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.count()));
}

/// Sum, norm, largest entry and a random projection of every tensor, which are there in float64 for
/// all configurations: numbers laid out as a model's parameters against check/<what>.
void check_summaries(const Case& test, llama_run::Guarded& numbers, const tawpipe::Transformer& model, const std::string& what) {
  const auto expected = [&](const char* of) { return test.expect.read<double>("check/" + what + of); };
  const auto sums = expected(".sum");
  const auto norms = expected(".l2");
  const auto largest = expected(".maxabs");
  const auto projections = expected(".proj");
  const auto recorded = test.config.at("param_order").get<std::vector<std::string>>();
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    CAPTURE(tensor.name);
    const auto at = static_cast<std::size_t>(std::ranges::find(recorded, tensor.name) - recorded.begin());
    REQUIRE(at < recorded.size());
    double sum = 0;
    double square = 0;
    double most = 0;
    double projection = 0;
    std::uint32_t j = 0;
    for (const double x : part<double>(numbers, tensor.range)) {
      sum += x;
      square += x * x;
      most = std::max(most, std::abs(x));
      projection += (++j * 2654435761U / 4294967296.0 - 0.5) * x;  // the product modulo 2^32
    }
    const double tolerance = 1e-11 * norms[at] * std::sqrt(static_cast<double>(tensor.range.count()));
    CHECK(std::abs(sum - sums[at]) <= tolerance);
    CHECK(std::abs(std::sqrt(square) - norms[at]) <= 1e-11 * norms[at]);
    CHECK(std::abs(most - largest[at]) <= 1e-11 * largest[at]);
    CHECK(std::abs(projection - projections[at]) <= tolerance);
  }
}

template <class T>
void check_first_step(const std::string& name) {
  CAPTURE(name);
  const Case test{name};
  const auto model = test.model(dtype_of<T>);
  const double count = static_cast<double>(test.microbatches());
  Runner<T> runner{model, test.batch(), llama_run::whole(model.layers), {.scale = 1 / count, .constants = test.constants()}};
  load(test, runner, model);

  const bool exact = sizeof(T) == 8;
  const auto losses = test.expect.read<double>("loss_mb.f64");
  double mean = 0;
  for (std::int64_t m = 0; m < test.microbatches(); ++m) {
    const auto result = runner.run(test.microbatch(test.tokens, m), test.microbatch(test.targets, m));
    CHECK(std::abs(result.loss - losses[static_cast<std::size_t>(m)]) < (exact ? 1e-12 : 1e-5));
    mean += result.loss / count;
  }
  CHECK(std::abs(mean - test.expect.read<double>("loss.f64").front()) < (exact ? 1e-12 : 2e-6));
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    CAPTURE(tensor.name);
    const std::string wanted = "grad0/" + tensor.name;
    const Difference d = difference(part<T>(runner.gradients, tensor.range), test.expect.read<double>(wanted));
    CHECK(d.relative < (exact ? tolerance(test, wanted) : 1e-5));
    if (!exact) CHECK(d.l2 < 5e-6);
  }
  if (exact) check_summaries(test, runner.gradients, model, "grad0");
}

template <class T>
void check_parameters(const Case& test, Runner<T>& runner, const tawpipe::Transformer& model, const std::string& step) {
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    if (!test.expect.contains(step + tensor.name)) continue;  // all but A have some layers only
    CAPTURE(step + tensor.name);
    const Difference d = difference(part<T>(runner.parameters, tensor.range), test.expect.read<double>(step + tensor.name));
    if (sizeof(T) == 8) {
      CHECK(d.relative < tolerance(test, step + tensor.name));
    } else {
      CHECK(d.l2 < 3e-5);
      CHECK(d.most < 3e-4);
    }
  }
}

/// Steps with the constants of the configurations, which are AdamW's defaults.
template <class T>
void check_training(const std::string& name) {
  CAPTURE(name);
  const Case test{name};
  const auto model = test.model(dtype_of<T>);
  const double count = static_cast<double>(test.microbatches());
  Runner<T> runner{model, test.batch(), llama_run::whole(model.layers), {.scale = 1 / count, .constants = test.constants()}};
  load(test, runner, model);
  llama_run::Guarded mean{std::ssize(runner.parameters.bytes())};
  llama_run::Guarded square{std::ssize(runner.parameters.bytes())};
  std::ranges::fill(mean.as<T>(), T{0});
  std::ranges::fill(square.as<T>(), T{0});
  const auto losses = test.expect.read<double>("loss_mb.f64");
  for (std::int64_t step = 0; step <= 5; ++step) {
    CAPTURE(step);
    std::ranges::fill(runner.gradients.template as<T>(), T{0});
    for (std::int64_t m = 0; m < test.microbatches(); ++m) {
      const auto result = runner.run(test.microbatch(test.tokens, m), test.microbatch(test.targets, m), step < 5);
      const double wanted = losses[static_cast<std::size_t>(step * test.microbatches() + m)];
      CHECK(std::abs(result.loss - wanted) < (sizeof(T) == 8 ? 1e-12 : 1e-5));
    }
    if (step == 1 || step == 5) {
      const std::string what = "step" + std::to_string(step);
      check_parameters(test, runner, model, what + "/");
      if (sizeof(T) == 8) check_summaries(test, runner.parameters, model, what);
    }
    if (step == 5) break;
    for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
      tawpipe::layers::adamw_step<T>({}, {.number = step + 1, .learning_rate = 1e-3, .decay = tensor.decays()},
                                     part<T>(runner.parameters, tensor.range), part<T>(runner.gradients, tensor.range),
                                     part<T>(mean, tensor.range), part<T>(square, tensor.range));
    }
  }
}

}  // namespace

TEST_CASE("five steps of AdamW keep to the golden course in float64") {
  check_training<double>("A");
  check_training<double>("B");
  check_training<double>("M0");
  check_training<double>("M1");
  check_training<double>("D1");
  check_training<double>("D2");
}

TEST_CASE("five steps of AdamW keep to the golden course in float32") {
  check_training<float>("A");
  check_training<float>("B");
  check_training<float>("M0");
  check_training<float>("M1");
  check_training<float>("D1");
  check_training<float>("D2");
}

TEST_CASE("losses and gradients of all configurations in float64") {
  check_first_step<double>("A");
  check_first_step<double>("B");
  check_first_step<double>("M0");
  check_first_step<double>("M1");
  check_first_step<double>("D1");
  check_first_step<double>("D2");
}

TEST_CASE("routers choose the golden experts, with the golden weights") {
  for (const std::string name : {"M1", "D1", "D2"}) {
    CAPTURE(name);
    const Case test{name};
    const auto model = test.model(Dtype::f64);
    const auto rules = test.constants().router;
    const tawpipe::layers::host::Router<double> router{model, test.batch(), rules};
    const std::int64_t tokens = test.batch().tokens();
    const std::int64_t k = model.experts_per_token;
    std::vector<double> memory(static_cast<std::size_t>(k * tokens * model.hidden));
    const tawpipe::layers::Routing<double> routing{memory.data(), router.sizes()};
    const auto indices = test.expect.read<std::int32_t>("routing/topk_index");
    const auto weights = test.expect.read<double>("routing/topk_weight");
    const auto counts = test.expect.read<std::int32_t>("routing/counts");
    int layers = 0;
    for (int layer = model.dense_layers; layer < model.layers; ++layer) {
      const std::string act = "act/L" + std::to_string(layer) + ".ffn_norm";
      if (!test.expect.contains(act)) continue;
      ++layers;
      CAPTURE(layer);
      const auto normed = test.expect.read<double>(act);
      const auto gate = test.init.read<double>("decoders." + std::to_string(layer) + ".feed_forward.gate.weight");
      const double* const bias = rules.bias.empty() ? nullptr : rules.bias.data() + (layer - model.dense_layers) * model.experts;
      router.choose(gate.data(), normed.data(), routing, {.bias = bias});
      const std::int64_t first = layer * test.microbatches();  // of this layer, microbatch 0
      for (std::int64_t pair = 0; pair < tokens * k; ++pair) {
        const auto at = static_cast<std::size_t>(first * tokens * k + pair);
        CHECK(routing.expert[pair] == indices[at]);
        CHECK(std::abs(routing.weight[pair] - weights[at]) < 1e-12);
      }
      for (std::int64_t e = 0; e < model.experts; ++e) {
        CHECK(routing.begin[e + 1] - routing.begin[e] == counts[static_cast<std::size_t>(first * model.experts + e)]);
      }
    }
    CHECK(layers == 2);
  }
}

TEST_CASE("activations between layers of configuration A, and their derivatives, in float64") {
  const Case test{"A"};
  const auto model = test.model(Dtype::f64);
  // x0 | layer | x1 | ... | x4 | head: each boundary is a separate output.
  std::vector<Piece> pieces(6, Piece{.layers = 1});
  pieces.front() = {.embedding = true};
  pieces.back() = {.head = true};
  Runner<double> runner{model, test.batch(), pieces, {.constants = test.constants()}};
  load(test, runner, model);
  const auto result = runner.run(test.microbatch(test.tokens, 0), test.microbatch(test.targets, 0));
  REQUIRE(result.boundaries.size() == 5);
  REQUIRE(result.boundary_gradients.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CAPTURE(i);
    const std::string x = "/x" + std::to_string(i);
    CHECK(difference(result.boundaries[i], test.expect.read<double>("act" + x)).relative < 1e-13);
    CHECK(difference(result.boundary_gradients[i], test.expect.read<double>("dact" + x)).relative < 1e-11);
  }
}

TEST_CASE("losses and gradients of all configurations in float32") {
  check_first_step<float>("A");
  check_first_step<float>("B");
  check_first_step<float>("M0");
  check_first_step<float>("M1");
  check_first_step<float>("D1");
  check_first_step<float>("D2");
}

}  // namespace llama_golden_test
