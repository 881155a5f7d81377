// Layers of DeepSeek-V3's kind: first layers without experts, sigmoid scores in groups, latent attention;
// weights of a softmax over all experts, and the loss that balances them: derivatives, and one result for
// every cut, split and recomputation.
// Not: golden numbers (llama_golden_test.cpp).
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/llama_outcome.hpp"
#include "tawpipe/layers/host/router.hpp"

namespace mixture_kinds_test {

namespace {

using tawpipe::Batch;
using tawpipe::DecoderConstants;
using tawpipe::Dtype;
using tawpipe::Transformer;

Transformer mixture() {
  return {.name = "mixture",
          .layers = 4,
          .hidden = 12,
          .heads = 2,
          .kv_heads = 1,
          .intermediate = 8,
          .vocab = 11,
          .dtype = Dtype::f64,
          .head_dim = 6,
          .experts = 6,
          .experts_per_token = 2,
          .shared_width = 8,
          .dense_layers = 1,
          .dense_width = 20};
}

/// Values are wider or narrower than keys; queries have a short vector or none.
Transformer latent(int query_rank, int value) {
  Transformer model = mixture();
  model.kv_heads = 2;
  model.query_rank = query_rank;
  model.key_value_rank = 5;
  model.rope_width = 4;
  model.head_dim = 6;
  model.value_size = value;
  return model;
}

DecoderConstants sigmoids() {
  DecoderConstants constants;
  constants.router.sigmoid = true;
  constants.router.scale = 2.5;
  constants.router.bias = {0.1, -0.2, 0, 0.3, 0.05, -0.1, 0, 0.2, 0.1, -0.3, 0.15, 0.02, 0.3, 0.2, 0.1, 0, -0.1, -0.2};
  return constants;
}

const Batch batch{.sequence = 9, .microbatch_size = 2, .global_batch = 2};

}  // namespace

TEST_CASE("gradients of layers with sigmoid scores and of latent attention are the loss's derivatives") {
  llama_run::check_derivatives(mixture(), batch, sigmoids());
  Transformer groups = mixture();
  groups.expert_groups = 3;
  groups.groups_per_token = 2;
  llama_run::check_derivatives(groups, batch, sigmoids());
  llama_run::check_derivatives(latent(7, 4), batch, sigmoids());
  llama_run::check_derivatives(latent(0, 8), batch, sigmoids());
  DecoderConstants no_sum = sigmoids();
  no_sum.router.sum_to_one = false;
  llama_run::check_derivatives(latent(7, 4), batch, no_sum);
}

TEST_CASE("gradients of a softmax over all experts, and of the loss that balances them") {
  DecoderConstants constants;
  constants.router.sum_to_one = false;
  llama_run::check_derivatives(mixture(), batch, constants);
  constants.router.balance = 0.3;
  llama_run::check_derivatives(mixture(), batch, constants);
  constants.router.sum_to_one = true;
  llama_run::check_derivatives(mixture(), batch, constants);
}

TEST_CASE("first dense layers and latent attention give one result for every cut, split and recomputation") {
  llama_run::check_same_bits(mixture(), batch, sigmoids());
  llama_run::check_same_bits(latent(7, 4), batch, sigmoids());
  llama_run::check_same_bits(latent(0, 8), batch, sigmoids());
  DecoderConstants constants;
  constants.router.sum_to_one = false;
  llama_run::check_same_bits(mixture(), batch, constants);
}

TEST_CASE("groups of experts close from the worst on, of equal ones the last") {
  const double none = -std::numeric_limits<double>::infinity();
  std::vector<double> scores{1, 5, 0, 3, 3, 2, 4, 0};  // 6, 3, 5, 4
  tawpipe::layers::host::close_groups(scores.data(), 4, 2, 2);
  CHECK(scores == std::vector<double>{1, 5, none, none, 3, 2, none, none});
  std::vector<double> equal{2, 1, 1, 2, -3, -4};
  tawpipe::layers::host::close_groups(equal.data(), 3, 2, 1);
  CHECK(equal == std::vector<double>{2, 1, none, none, none, none});
  std::vector<double> single{2, 3, 1};
  tawpipe::layers::host::close_groups(single.data(), 3, 1, 2);
  CHECK(single == std::vector<double>{2, 3, none});
  std::vector<double> three{5, 0, 4, 4, 3, 3};  // the sum of the two largest of three
  tawpipe::layers::host::close_groups(three.data(), 2, 3, 1);
  CHECK(three == std::vector<double>{5, 0, 4, none, none, none});
}

}  // namespace mixture_kinds_test
