// Mixtures of experts: the choice, the same bits for every cut, split and recomputation,
// derivatives, experts without tokens, what a dense decoder computes too, refusals.
// Not: what the numbers must be (llama_golden_test.cpp).
#include "tawpipe/layers/host/experts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/llama_outcome.hpp"
#include "support/llama_run.hpp"
#include "tawpipe/layers/parameter_update.hpp"

namespace experts_test {

namespace {

using llama_run::fill;
using llama_run::ids;
using llama_run::Runner;
using llama_run::whole;
using tawpipe::Batch;
using tawpipe::Dtype;
using tawpipe::InputError;
using tawpipe::ParameterOrder;
using tawpipe::Recompute;
using tawpipe::Transformer;
using tawpipe::layers::RoutingSizes;
using tawpipe::layers::host::choose_experts;
using tawpipe::layers::host::Llama;

/// Two of five experts.
Transformer mixture(int shared = 0) {
  return {.name = "mixture",
          .layers = 4,
          .hidden = 20,
          .heads = 6,
          .kv_heads = 2,
          .intermediate = 14,
          .vocab = 11,
          .tied = shared > 0,
          .dtype = Dtype::f64,
          .head_dim = 6,
          .experts = 5,
          .experts_per_token = 2,
          .shared_width = shared};
}
/// One of seven experts, with so little room that few rows and logits are there at a time, and none
/// for the embedding's gradient.
Transformer cramped() {
  Transformer model = mixture();
  model.name = "cramped";
  model.hidden = 8;
  model.intermediate = 6;
  model.experts = 7;
  model.experts_per_token = 1;
  model.loss_chunk = 3;
  return model;
}
/// All of three experts.
Transformer all_chosen() {
  Transformer model = mixture(4);
  model.name = "all chosen";
  model.experts = model.experts_per_token = 3;
  return model;
}
Batch two_of_nine() { return {.sequence = 9, .microbatch_size = 2, .global_batch = 2}; }

struct Choice {
  std::vector<std::int32_t> experts;
  std::vector<double> weights;
};
Choice chosen(const std::vector<double>& logits, std::int64_t k) {
  Choice choice{std::vector<std::int32_t>(static_cast<std::size_t>(k), -1), std::vector<double>(static_cast<std::size_t>(k))};
  choose_experts(logits.data(), std::ssize(logits), k, choice.experts.data(), choice.weights.data());
  return choice;
}

/// Calls `visit(name, its numbers)` for the tensors of a model's numbers.
template <class Visit>
void for_each_tensor(const Transformer& model, std::span<double> numbers, Visit&& visit) {
  for (const auto& tensor : ParameterOrder{model}.tensors()) {
    visit(tensor.name,
          numbers.subspan(static_cast<std::size_t>(tensor.range.begin), static_cast<std::size_t>(tensor.range.count())));
  }
}

}  // namespace

TEST_CASE("the k largest logits are chosen, of equal ones the first, with the softmax of these") {
  using Experts = std::vector<std::int32_t>;
  CHECK(chosen({1, 3, 2, -1}, 2).experts == Experts{1, 2});
  CHECK(chosen({1, 1, 1, 1}, 2).experts == Experts{0, 1});
  CHECK(chosen({0, 2, 5, 2, 5, 2}, 3).experts == Experts{2, 4, 1});
  CHECK(chosen({-1, -2, -3}, 3).experts == Experts{0, 1, 2});
  CHECK(chosen({-3, -2, -1}, 3).experts == Experts{2, 1, 0});
  CHECK(chosen({4, 9}, 1).weights == std::vector<double>{1});
  const auto two = chosen({0, 1, 3}, 2);
  CHECK(std::abs(two.weights[0] - 1 / (1 + std::exp(-2.0))) < 1e-15);
  CHECK(std::abs(two.weights[1] - 1 / (1 + std::exp(2.0))) < 1e-15);
  // Of numbers that are none, still k different experts.
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& logits : {std::vector<double>{nan, nan, nan, nan}, {1, nan, 2, 3}, {nan, 1, 2, nan}}) {
    auto experts = chosen(logits, 3).experts;
    std::ranges::sort(experts);
    CHECK(std::ranges::adjacent_find(experts) == experts.end());
    CHECK(experts.front() >= 0);
    CHECK(experts.back() < 4);
  }
}

TEST_CASE("every cut, split, recomputation and use of memory of a mixture gives the same bits within its memory") {
  // cramped in float64: 18 x 8 - 18 - (37 + 7) / 2 rounded up = 104 numbers for rows of 8 and logits
  // of 7.
  const RoutingSizes sizes{cramped(), two_of_nine(), 8};
  CHECK(sizes.rows == 13);
  CHECK(sizes.logits == 14);
  for (const Transformer& model : {mixture(), mixture(6), cramped(), all_chosen()}) {
    CAPTURE(model.name);
    CAPTURE(model.shared_width);
    llama_run::check_same_bits(model, two_of_nine());
  }
}

TEST_CASE("gradients of a mixture are derivatives of the loss, of routers too") {
  for (const Transformer& model : {mixture(), mixture(6), cramped(), all_chosen()}) {
    CAPTURE(model.name);
    llama_run::check_derivatives(model, two_of_nine());
  }
}

TEST_CASE("a router of equal logits sends all to the first experts; the others have no gradient, and decay") {
  const Transformer model = mixture();
  Runner<double> runner{model, two_of_nine(), whole(model.layers)};
  fill(runner, model);
  const auto parameters = runner.parameters.as<double>();
  for_each_tensor(model, parameters, [&](const std::string& name, std::span<double> numbers) {
    if (name.ends_with("feed_forward.gate.weight")) std::ranges::fill(numbers, 0);
  });
  runner.run(ids(model, two_of_nine(), 1), ids(model, two_of_nine(), 2));
  const auto is_zero = [](double g) { return g == 0; };
  for_each_tensor(model, runner.gradients.as<double>(), [&](const std::string& name, std::span<double> numbers) {
    CAPTURE(name);
    const std::size_t at = name.find("experts.");
    const bool of_expert = at != std::string::npos;
    if (of_expert && name[at + 8] >= '2') CHECK(std::ranges::all_of(numbers, is_zero));
    if (of_expert && name[at + 8] < '2') CHECK(std::ranges::none_of(numbers, is_zero));
    // Of routers rows 0 and 1 of 20 numbers have some, with opposite signs.
    if (!name.ends_with("feed_forward.gate.weight")) return;
    CHECK(std::ranges::none_of(numbers.first(40), is_zero));
    CHECK(std::ranges::all_of(numbers.subspan(40), is_zero));
    for (std::size_t j = 0; j < 20; ++j) CHECK(std::abs(numbers[j] + numbers[20 + j]) < 1e-15);
  });

  const auto before = runner.parameters.copy<double>();
  std::vector<double> first(before.size(), 0);
  std::vector<double> second(before.size(), 0);
  const tawpipe::layers::AdamWUpdate<double> optimizer{model, {.weight_decay = 0.1}};
  optimizer.update({.parameters = {0, std::ssize(before)},
                    .weights = runner.parameters.bytes(),
                    .gradients = runner.gradients.bytes(),
                    .first_moment = std::as_writable_bytes(std::span{first}),
                    .second_moment = std::as_writable_bytes(std::span{second}),
                    .step = 1,
                    .learning_rate = 0.01});
  for (const auto& tensor : ParameterOrder{model}.tensors()) {
    if (tensor.name.find("experts.4.") == std::string::npos) continue;
    for (auto i = static_cast<std::size_t>(tensor.range.begin); i < static_cast<std::size_t>(tensor.range.end); ++i) {
      CHECK(std::abs(parameters[i] - before[i] * (1 - 0.01 * 0.1)) < 1e-16);
    }
  }
}

TEST_CASE("experts that are all alike are one MLP, and so is a shared expert beside experts that give nothing") {
  // The dense decoder's MLP in each expert, or in the shared one. With equal logits the first expert
  // of cramped() has all 18 tokens, in blocks of 13 and 5.
  for (const Transformer& model : {mixture(), mixture(14), cramped()}) {
    CAPTURE(model.name);
    const bool shared = model.shared_width > 0;
    const bool equal_logits = model.experts_per_token == 1;
    CAPTURE(shared);
    Transformer dense = model;
    dense.experts = dense.experts_per_token = dense.shared_width = 0;
    Runner<double> plain{dense, two_of_nine(), whole(dense.layers)};
    Runner<double> routed{model, two_of_nine(), whole(model.layers)};
    fill(plain, dense);
    fill(routed, model);
    const auto dense_name = [&](std::string name) {
      const std::size_t at = name.find("feed_forward.") + 13;
      const std::string mlp = shared ? "shared_experts." : "experts.";
      if (at == 12 || name.compare(at, mlp.size(), mlp) != 0) return at == 12 ? name : std::string{};
      return name.erase(at, mlp.size() + (shared ? 0 : 2));
    };
    for_each_tensor(model, routed.parameters.as<double>(), [&](const std::string& name, std::span<double> to) {
      for_each_tensor(dense, plain.parameters.as<double>(), [&](const std::string& from, std::span<double> numbers) {
        if (from == dense_name(name)) std::ranges::copy(numbers, to.begin());
      });
      if (shared && name.find("experts.") != std::string::npos && dense_name(name).empty() && name.ends_with("w2.weight")) {
        std::ranges::fill(to, 0);
      }
      if (equal_logits && name.ends_with("feed_forward.gate.weight")) std::ranges::fill(to, 0);
    });
    const auto tokens = ids(model, two_of_nine(), 1);
    const auto targets = ids(model, two_of_nine(), 2);
    CHECK(std::abs(plain.run(tokens, targets).loss - routed.run(tokens, targets).loss) < 1e-13);
    // Gradients of the experts together are the MLP's.
    for_each_tensor(dense, plain.gradients.as<double>(), [&](const std::string& wanted, std::span<double> numbers) {
      CAPTURE(wanted);
      std::vector<double> sum(numbers.size(), 0);
      for_each_tensor(model, routed.gradients.as<double>(), [&](const std::string& name, std::span<double> part) {
        if (dense_name(name) != wanted) return;
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      });
      for (std::size_t i = 0; i < sum.size(); ++i) CHECK(std::abs(sum[i] - numbers[i]) < 1e-13);
    });
  }
}

TEST_CASE("mixtures that have no room for the router's choice are refused with their sizes") {
  const auto refusal = [](const Transformer& model, const Batch& batch) {
    try {
      Llama<double>{model, batch, Recompute::none};
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{"accepted"};
  };
  CHECK(refusal(mixture(), two_of_nine()) == "accepted");
  CHECK(refusal(cramped(), two_of_nine()) == "accepted");
  // 1 token x 28 < 2 x 20
  CHECK(refusal(mixture(), {.sequence = 1, .microbatch_size = 1, .global_batch = 1}) ==
        "model 'mixture': a microbatch of 1 tokens is too small; tokens x width of a token's experts must be at least 40, twice "
        "the hidden size");
  // 2 x 20 - 2 - 33 numbers for logits of 60
  Transformer model = mixture();
  model.intermediate = 40;
  model.experts = 60;
  CHECK(
      refusal(model, {.sequence = 1, .microbatch_size = 1, .global_batch = 1}) ==
      "model 'mixture': a microbatch of 1 tokens with 2 of 60 experts each and a hidden size of 20 has no room for the router's "
      "choice, or too many of them; take a larger hidden size, or fewer experts or more tokens");
}

}  // namespace experts_test
