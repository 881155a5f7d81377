// The decoder's own promises: the same bits for every cut, split and recomputation; memory;
// derivatives; refusals.
// Not: what the numbers must be (llama_golden_test.cpp).
#include "tawpipe/layers/host/llama.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "support/llama_outcome.hpp"
#include "support/llama_run.hpp"

namespace llama_test {

namespace {

using llama_run::check_derivatives;
using llama_run::fill;
using llama_run::ids;
using llama_run::outcome;
using llama_run::Piece;
using llama_run::Runner;
using llama_run::whole;
using tawpipe::Batch;
using tawpipe::DecoderConstants;
using tawpipe::Dtype;
using tawpipe::InputError;
using tawpipe::QkNorm;
using tawpipe::Recompute;
using tawpipe::RotaryScaling;
using tawpipe::Transformer;
using tawpipe::layers::host::Llama;

/// Groups of three heads, whose width is not the hidden size's share.
Transformer grouped(bool tied = false) {
  return {.name = "grouped",
          .layers = 4,
          .hidden = 20,
          .heads = 6,
          .kv_heads = 2,
          .intermediate = 28,
          .vocab = 11,
          .tied = tied,
          .dtype = Dtype::f64,
          .head_dim = 6};
}
/// So little between the layers' matrices that `none` keeps no room for the embedding's gradient.
Transformer narrow() {
  Transformer model = grouped(true);
  model.intermediate = 10;
  return model;
}
/// Two heads of four: an attention block has 8 x 1 / 2 = 4 rows (the workspace's room for scores),
/// so 9 positions make three.
Transformer in_blocks() {
  return {.name = "in blocks",
          .layers = 2,
          .hidden = 8,
          .heads = 2,
          .kv_heads = 1,
          .intermediate = 12,
          .vocab = 7,
          .dtype = Dtype::f64,
          .head_dim = 4};
}
/// One head of two: blocks of one row.
Transformer smallest() {
  return {.name = "smallest",
          .layers = 1,
          .hidden = 2,
          .heads = 1,
          .kv_heads = 1,
          .intermediate = 4,
          .vocab = 3,
          .dtype = Dtype::f64};
}
/// With a loss of so many entries of the vocabulary at a time.
Transformer chunked(Transformer model, int entries) {
  model.loss_chunk = entries;
  return model;
}
/// With a vector beside every matrix, norms of queries and keys, and a window that blocks of rows begin
/// within.
Transformer with_details(Transformer model, QkNorm norm = QkNorm::head) {
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  model.qk_norm = norm;
  model.window = 3;
  return model;
}
/// Every constant at another value than its default, and frequencies of all three kinds: in heads of 6
/// 9 positions are 1.4, 0.31 and 0.07 turns.
DecoderConstants other_constants() {
  return {.rope_theta = 100,
          .norm_epsilon = 1e-3,
          .scaling = {.kind = RotaryScaling::Kind::llama3,
                      .factor = 4,
                      .low_freq_factor = 0.1,
                      .high_freq_factor = 1.3,
                      .original_positions = 9}};
}
Batch two_of_nine() { return {.sequence = 9, .microbatch_size = 2, .global_batch = 2}; }
Batch one_of_nine() { return {.sequence = 9, .microbatch_size = 1, .global_batch = 1}; }

}  // namespace

TEST_CASE("every cut, split, recomputation and use of memory gives the same bits, and touches nothing outside its memory") {
  for (const Transformer& model : {grouped(), grouped(true), narrow(), chunked(grouped(true), 3)}) {
    CAPTURE(model.intermediate);
    CAPTURE(model.loss_chunk);
    CAPTURE(model.tied);
    llama_run::check_same_bits(model, two_of_nine());
  }
  llama_run::check_same_bits(with_details(grouped()), two_of_nine(), other_constants());
}

TEST_CASE("gradients are derivatives of the loss, also with attention in several blocks") {
  struct Given {
    Transformer model;
    Batch batch;
  };
  for (const Given& given :
       {Given{grouped(), two_of_nine()}, Given{in_blocks(), one_of_nine()}, Given{smallest(), one_of_nine()}}) {
    CAPTURE(given.model.name);
    check_derivatives(given.model, given.batch);
    for (const QkNorm norm : {QkNorm::head, QkNorm::width})
      check_derivatives(with_details(given.model, norm), given.batch, other_constants());
  }
}

TEST_CASE("a window hides earlier tokens, and one of the whole sequence hides none") {
  Transformer model = in_blocks();
  model.layers = 1;
  const auto outputs = [&](int window, std::int32_t first) {
    model.window = window;
    Runner<double> runner{model, one_of_nine(), {{1, true, false}, {0, false, true}}};
    fill(runner, model);
    auto tokens = ids(model, one_of_nine(), 1);
    tokens[0] = first;
    return runner.run(tokens, ids(model, one_of_nine(), 2), false).boundaries.front();
  };
  CHECK(outputs(9, 0) == outputs(0, 0));
  for (const int window : {1, 2, 4, 8}) {
    const auto one = outputs(window, 0);
    const auto other = outputs(window, 1);
    for (std::int64_t token = 0; token < 9; ++token) {  // the first token is seen by itself and the window - 1 after it
      const bool same = std::equal(one.begin() + token * 8, one.begin() + (token + 1) * 8, other.begin() + token * 8);
      CHECK(same == (token >= window));
    }
  }
}

TEST_CASE("a loss in chunks of the vocabulary is the same loss, in less memory") {
  for (const int entries : {1, 4, 1000}) {
    CAPTURE(entries);
    const Transformer model = chunked(grouped(true), entries);
    const auto wanted = outcome<double>(grouped(true), two_of_nine(), whole(model.layers), {.scale = 0.5});
    const auto found = outcome<double>(model, two_of_nine(), whole(model.layers), {.scale = 0.5});
    for (std::size_t m = 0; m < 2; ++m) CHECK(std::abs(found.losses[m] - wanted.losses[m]) < 1e-13);
    double worst = 0;
    for (std::size_t i = 0; i < wanted.gradients.size(); ++i) {
      worst = std::max(worst, std::abs(found.gradients[i] - wanted.gradients[i]));
    }
    CHECK(worst < 1e-13);
  }
}

TEST_CASE("recomputation and splitting need the stash that they say") {
  // grouped: of a token 4 x 20 + 2 x 36 + 2 x 12 + 3 x 28 = 260 numbers are needed; selective keeps all
  // but 2 x 20 + 36 + 28 = 104, full keeps 20; 18 tokens of 8 bytes, 4 layers with two rows of 20, and
  // the embedding's gradient.
  const Transformer model = grouped();
  const auto bytes = [&](const Transformer& of, Recompute recompute, int layers, bool embedding) {
    const auto stage = tawpipe::transformer_work(of, two_of_nine(), recompute, 0, layers, embedding, false);
    const std::int64_t stash = Llama<double>{of, two_of_nine(), recompute}.stash_bytes(stage);
    CHECK(stage.stash.value() == stash);  // what a schedule sets aside
    return stash;
  };
  CHECK(bytes(model, Recompute::none, 4, true) == 0);
  CHECK(bytes(model, Recompute::selective, 4, true) == 4 * (18 * 8 * 104 + 2 * 2 * 20 * 8) + 18 * 8 * 20);
  CHECK(bytes(model, Recompute::full, 2, false) == 2 * (18 * 8 * 240 + 2 * 2 * 20 * 8));
  // The gradient of the embedding, [18, 20], where no layer's memory takes it.
  CHECK(bytes(model, Recompute::none, 0, true) == 18 * 8 * 20);
  CHECK(bytes(narrow(), Recompute::none, 4, true) == 18 * 8 * 20);
}

TEST_CASE("ranks are threads that compute at the same time") {
  const auto reference = outcome<double>(grouped(), two_of_nine(), whole(4), {});
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < wrong.size(); ++rank) {
    ranks.emplace_back([&wrong, &reference, rank] {
      const Transformer model = grouped();
      Llama<double> llama{model, two_of_nine(), Recompute::none};
      const auto stage = tawpipe::transformer_work(model, two_of_nine(), Recompute::none, 0, 4, true, true);
      const tawpipe::ParameterOrder order{model};
      Runner<double> with_parameters{model, two_of_nine(), {}};
      fill(with_parameters, model);
      const auto parameters = with_parameters.parameters.bytes();
      const auto at = [&](const tawpipe::ParameterRange& range) { return parameters.data() + range.begin * 8; };
      std::vector<std::byte> saved(static_cast<std::size_t>(stage.saved.value()));
      std::vector<std::byte> workspace(static_cast<std::size_t>(stage.forward_workspace.value()));
      const auto tokens = ids(model, two_of_nine(), 0);
      const auto targets = ids(model, two_of_nine(), 1);
      double loss = 0;
      const tawpipe::ForwardArgs args{.stage = &stage,
                                      .weights = {at(order.layers(0, 4)), at(order.first_edge()), at(order.last_edge())},
                                      .input = {},
                                      .output = {},
                                      .saved = saved,
                                      .workspace = workspace,
                                      .tokens = tokens,
                                      .targets = targets,
                                      .loss = &loss};
      for (int i = 0; i < 300; ++i) {
        llama.forward(args);
        if (loss != reference.losses.front()) ++wrong[rank];
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("a token or target outside the vocabulary is named with its position") {
  const Transformer model = in_blocks();
  Runner<double> runner{model, one_of_nine(), whole(model.layers)};
  fill(runner, model);
  auto tokens = ids(model, one_of_nine(), 1);
  auto targets = ids(model, one_of_nine(), 2);
  tokens[5] = 7;
  CHECK_THROWS_WITH_AS(runner.run(tokens, targets),
                       "token 7 at position 5 of the microbatch is not in the vocabulary of 7, which ends at 6", InputError);
  tokens[5] = 6;
  targets[8] = -100;
  CHECK_THROWS_WITH_AS(runner.run(tokens, targets),
                       "target -100 at position 8 of the microbatch is not in the vocabulary of 7, which ends at 6", InputError);
}

TEST_CASE("models that it cannot compute are refused in one sentence") {
  const auto refusal = [](const Transformer& model, const Batch& batch, tawpipe::DecoderConstants options = {}) {
    try {
      Llama<double>{model, batch, Recompute::none, options};
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{"accepted"};
  };
  Transformer model = grouped();
  CHECK(refusal(model, two_of_nine()) == "accepted");
  model.dtype = Dtype::bf16;
  CHECK(refusal(model, two_of_nine()) == "model 'grouped': its numbers are bfloat16, but this code computes in float64");
  model = grouped();
  model.head_dim = 5;
  CHECK(refusal(model, two_of_nine()) ==
        "model 'grouped': a head size of 5 is odd; rotary embedding turns pairs and needs an even one");
  model = grouped();
  model.gated = false;
  CHECK(refusal(model, two_of_nine()) ==
        "model 'grouped': this code computes SwiGLU; a model without its gate can be simulated, but not computed");
  // 1 token x 28 < 2 x 20
  CHECK(
      refusal(grouped(), {.sequence = 1, .microbatch_size = 1, .global_batch = 1}) ==
      "model 'grouped': a microbatch of 1 tokens is too small; tokens x intermediate size must be at least 40, twice the hidden "
      "size");
  // 2 x 36 + 2 x 12 = 96 < 100, 3 x 28 = 84
  model = grouped();
  model.hidden = 100;
  CHECK(refusal(model, two_of_nine()) ==
        "model 'grouped': a hidden size of 100 is too large for an intermediate size of 28; three times the latter, or the "
        "width of query, key, value and output together, must reach it");
  const auto scaled = [&](const RotaryScaling& scaling) { return refusal(grouped(), two_of_nine(), {.scaling = scaling}); };
  CHECK(scaled({.kind = RotaryScaling::Kind::linear, .factor = 0}) ==
        "model 'grouped': rope_parameters: factor must be greater than 0");
  CHECK(scaled({.kind = RotaryScaling::Kind::other}) ==
        "model 'grouped': rope_parameters: scalings other than linear and llama3 are not computed");
  CHECK(scaled({.kind = RotaryScaling::Kind::llama3, .low_freq_factor = 4, .high_freq_factor = 4, .original_positions = 9}) ==
        "model 'grouped': rope_parameters: llama3 needs original positions, and low_freq_factor below high_freq_factor");
  CHECK(refusal(grouped(), two_of_nine(), {.norm_epsilon = 0}) ==
        "model 'grouped': rope_theta and rms_norm_eps must be greater than 0");
}

}  // namespace llama_test
