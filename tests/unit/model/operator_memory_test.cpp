// Tests of model/detail/operator_memory.hpp, and of the head's memory.
// Not: their sums over a stage (transformer_work_test.cpp).
#include "tawpipe/model/detail/operator_memory.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "support/layer_bytes.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/edge_work.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace operator_memory_test {

using tawpipe::Batch;
using tawpipe::Bytes;
using tawpipe::Dtype;
using tawpipe::Recompute;
using tawpipe::Transformer;

namespace {

support::LayerBytes head_bytes(const Transformer& model, const Batch& batch) {
  return support::numbers(tawpipe::head_work(model, batch));
}

/// H = 8, Q = 8, K = 4, I = 12, V = 10.
const Transformer tiny{
    .name = "tiny", .layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .dtype = Dtype::f16};
/// 2 sequences of 6 tokens: 12 tokens.
const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};

}  // namespace

TEST_CASE("without recomputation a layer keeps fifteen tensors") {
  // elements a token: 4H = 32 (input, normed, residual sum, normed), 2Q = 16, 2K = 8, 4I = 48: 104;
  // at 2 bytes 208 fp32: two rstd 8, log-sum-exp of 4 heads 16: 232 bytes a token, 12 tokens
  CHECK(support::layer_bytes(tiny, batch, Recompute::none).saved == 232 * 12);
}

TEST_CASE("selective recomputation keeps results of matrix products and residual sums") {
  // 2H = 16, Q = 8, 2K = 8, 2I = 24: 56 elements, 112 bytes a token
  CHECK(support::layer_bytes(tiny, batch, Recompute::selective).saved == 112 * 12);
}

TEST_CASE("a fused SwiGLU keeps no silu(gate)") {
  Transformer fused = tiny;
  fused.fused_swiglu = true;
  CHECK(support::layer_bytes(fused, batch, Recompute::none).saved == (232 - 2 * 12) * 12);  // I at 2 bytes less
}

TEST_CASE("products in 8 bits keep their inputs in 8 bits, and the attention's output in 16 beside it") {
  Transformer narrow = tiny;
  narrow.products = tawpipe::ProductFormat::fp8;
  // Two normed H and the product I at a byte less each; the attention's output Q once more, at a
  // byte: -16 - 12 + 8.
  CHECK(support::layer_bytes(narrow, batch, Recompute::none).saved == (232 - 20) * 12);
}

TEST_CASE("parts that are computed again drop what they make") {
  const auto saved = [](const tawpipe::RecomputeParts& parts, Transformer model = tiny) {
    model.recompute_parts = parts;
    return support::layer_bytes(model, batch, Recompute::selective).saved;
  };
  CHECK(saved({}) == 112 * 12);                                  // selective's own choice
  CHECK(saved({.layernorm = true}) == (232 - 2 * 16 - 8) * 12);  // both normed H, both rstds
  CHECK(saved({.core_attn = true}) == (232 - 16) * 12);          // log-sum-exps
  CHECK(saved({.activation = true}) == (232 - 2 * 24) * 12);     // silu(gate) and the product
  CHECK(saved({.mlp = true}) == (232 - 4 * 24) * 12);            // gate and up too
  CHECK(saved({.mlp = true, .activation = true}) == saved({.mlp = true}));
  CHECK(saved({.mlp = true, .layernorm = true}) == (232 - 4 * 24 - 2 * 16 - 8) * 12);
  Transformer unfused = tiny;
  unfused.fused_attention = false;  // 5 heads S = 120 bytes a token in place of 16, two masks of H
  CHECK(saved({.core_attn = true}, unfused) == saved({}, unfused));
  CHECK(saved({.layernorm = true}, unfused) == (232 - 16 + 120 + 2 * 8 - 2 * 16 - 8) * 12);
  Transformer narrow = tiny;
  narrow.products = tawpipe::ProductFormat::fp8;
  CHECK(saved({.core_attn = true}, narrow) == (212 - 16 - 16) * 12);  // and the output in 16 bits: the product has it in 8
  // What is dropped is in the workspace of the backward.
  Transformer parts = tiny;
  parts.recompute_parts = {.mlp = true};
  const auto some = support::layer_bytes(parts, batch, Recompute::selective);
  const auto none = support::layer_bytes(tiny, batch, Recompute::none);
  CHECK(some.saved + some.backward_workspace == none.saved + none.backward_workspace);
}

TEST_CASE("experts read copies in their products' format, and the router its input in the model's") {
  // k = 2, I = 12, J = 6: kI + J = 30, kH = 16, E = 4. In 8 bits a byte less of: the first normed H, the
  // copies, the products 30; and one more of the second normed H for the shared expert, and of attention's
  // result Q = 8.
  Transformer mixture = tiny;
  mixture.experts = 4;
  mixture.experts_per_token = 2;
  mixture.shared_width = 6;
  const auto saved = [&](Recompute recompute) { return support::layer_bytes(mixture, batch, recompute).saved; };
  const std::int64_t wide = saved(Recompute::none);
  const std::int64_t chosen = saved(Recompute::selective);
  mixture.products = tawpipe::ProductFormat::fp8;
  CHECK(saved(Recompute::none) == wide - (8 + 16 + 30 - 8 - 8) * 12);
  CHECK(saved(Recompute::selective) == chosen - 16 * 12);
  // The MLP's own recomputation keeps its input as it is, in 16 bits, which the router reads too.
  mixture.recompute_parts.mlp = true;
  CHECK(saved(Recompute::selective) == (232 - 4 * 24 - 8 + 8) * 12);
  Transformer dense = tiny;
  dense.products = tawpipe::ProductFormat::fp8;
  dense.recompute_parts.mlp = true;
  CHECK(support::layer_bytes(dense, batch, Recompute::selective).saved == (232 - 4 * 24 - 8 + 8) * 12);
}

TEST_CASE("a rank holds gathered keys and sent copies beside its layer, and not beside the head's logits") {
  using tawpipe::detail::OperatorMemory;
  using tawpipe::detail::OperatorReading;
  Transformer mixture = tiny;
  mixture.experts = 4;
  mixture.experts_per_token = 2;
  const auto forward = [&](const Transformer& model, const tawpipe::Sharing& sharing) {
    const OperatorReading reading{model.layer_kind().operators(model.hidden), model, batch, Recompute::none};
    tawpipe::StageWork work;
    OperatorMemory{reading, sharing}.add_to(work);
    return work.forward_workspace.value();
  };
  // Two tensors of H = 8 at 2 bytes, 12 tokens on 2 ranks; keys and values of K = 4 of all tokens; the
  // copies, 2H, of one rank's tokens.
  CHECK(forward(tiny, {.expert = 2}) == 2 * 16 * 6);
  CHECK(forward(tiny, {.context = 2}) == 2 * 16 * 6 + 16 * 12);
  CHECK(forward(tiny, {.context = 2, .exchange = tawpipe::ContextExchange::ring}) == 2 * 16 * 6);
  CHECK(forward(mixture, {.expert = 2, .whole_experts = true}) == 2 * 16 * 6 + 32 * 6);
}

TEST_CASE("full recomputation keeps a layer's input alone") {
  CHECK(support::layer_bytes(tiny, batch, Recompute::full).saved == 16 * 12);  // H = 8 at 2 bytes
}

TEST_CASE("a backward in two parts leaves what its second part needs and no saved activation has room for") {
  // Of the 104 elements a token as above all but the sigmoid, 92. Selective keeps all but the inputs
  // of products, 2H + Q + I = 36; full keeps H = 8. 12 tokens, 3 layers, each with two rows of H of
  // norms' gradients in float32 for each of 2 sequences; and the embedding's gradient, H.
  CHECK(support::stash_bytes(tiny, batch, Recompute::none, 3, true) == 0);
  CHECK(support::stash_bytes(tiny, batch, Recompute::selective, 3, true) == 3 * (2 * 36 * 12 + 128) + 16 * 12);
  CHECK(support::stash_bytes(tiny, batch, Recompute::full, 3, false) == 3 * (2 * 84 * 12 + 128));
  tawpipe::Transformer parts = tiny;  // H = 8, I = 12
  const auto of = [&](const char* again) {
    parts.recompute_parts = tawpipe::parse_recompute_parts(again);
    return support::stash_bytes(parts, batch, Recompute::selective, 1, false);
  };
  CHECK(of("core_attn") == 0);
  CHECK(of("layernorm") == 2 * 2 * parts.hidden * 12);
  CHECK(of("activation") == 2 * parts.intermediate * 12);
  // The product, and the gradients of gate and up, whose tensors are not kept.
  CHECK(of("layernorm,mlp") == 2 * (2 * parts.hidden + 3 * parts.intermediate) * 12);
  // torchtitan's choice keeps H twice, query, value, attention's output and the gate: 2H + 2Q + K + I
  tawpipe::Transformer titan = tiny;
  titan.code = tawpipe::LayerCode::torchtitan;
  // And beside them the logarithms of 4 heads' sums, which attention's kernel gives with its result.
  CHECK(support::layer_bytes(titan, batch, Recompute::selective).saved == (2 * (16 + 16 + 4 + 12) + 16) * 12);
  CHECK(support::stash_bytes(titan, batch, Recompute::selective, 1, false) == 2 * (92 - 16 - 16 - 4 - 12) * 12 + 128);
  // Unfused attention runs only its scores again, which no second part needs.
  tawpipe::Transformer unfused = tiny;
  unfused.fused_attention = false;
  CHECK(support::stash_bytes(unfused, batch, Recompute::selective, 1, false) == 0);
}

TEST_CASE("saved activations and what a backward in two parts leaves never exceed those without recomputation") {
  for (int options = 0; options < 64; ++options) {
    tawpipe::Transformer model = tiny;
    model.gated = (options & 1) == 0;
    model.fused_swiglu = model.gated && (options & 2) != 0;
    model.fused_attention = (options & 4) == 0;
    model.products = (options & 8) == 0 ? tawpipe::ProductFormat::bits16 : tawpipe::ProductFormat::fp8;
    model.code = (options & 16) == 0 || !model.gated ? tawpipe::LayerCode::megatron : tawpipe::LayerCode::torchtitan;
    model.intermediate = (options & 32) == 0 ? 12 : 5;
    for (int policy = 0; policy < 18; ++policy) {
      const Recompute recompute = policy == 0 ? Recompute::none : policy == 1 ? Recompute::full : Recompute::selective;
      model.recompute_parts = {};
      const auto of = [&](Recompute one) { return tawpipe::transformer_work(model, batch, one, 0, 2, true, false); };
      const tawpipe::StageWork none = of(Recompute::none);
      if (policy > 1) model.recompute_parts = tawpipe::RecomputeParts::of_bits(policy - 2);
      const tawpipe::StageWork work = of(recompute);
      CAPTURE(options);
      CAPTURE(policy);
      CHECK(work.saved + work.stash <= none.saved + none.stash);
      // The norms' gradients of the layer that runs are the only exception: two rows of H in float32 a sequence.
      const Bytes norms{2 * 2 * model.hidden * 4};
      CHECK(work.saved + work.stash + work.input_workspace() <= none.saved + none.stash + none.input_workspace() + norms);
      CHECK(work.saved + work.forward_workspace <= none.saved + none.backward_workspace);
      CHECK(work.saved + work.backward_workspace <= none.saved + none.backward_workspace);
    }
  }
}

TEST_CASE("an embedding's gradient is left where no layer has room for it") {
  // H = 8 at 2 bytes: 16 a token
  CHECK(support::stash_bytes(tiny, batch, Recompute::none, 0, true) == 16 * 12);
  CHECK(support::stash_bytes(tiny, batch, Recompute::full, 0, true) == 16 * 12);
  CHECK(support::stash_bytes(tiny, batch, Recompute::full, 0, false) == 0);
  // Room for T I numbers; T H and, of the norms' gradients in float32, two rows of 2H: 12 * 10 <
  // 16 * 8 <= 12 * 11
  Transformer narrow = tiny;
  narrow.intermediate = 10;
  CHECK(support::stash_bytes(narrow, batch, Recompute::none, 1, true) == 16 * 12);
  narrow.intermediate = 11;
  CHECK(support::stash_bytes(narrow, batch, Recompute::none, 1, true) == 0);
  // In float32, two rows of H: 12 * 9 < 14 * 8 <= 12 * 10
  narrow.dtype = Dtype::f32;
  narrow.intermediate = 9;
  CHECK(support::stash_bytes(narrow, batch, Recompute::none, 1, true) == 32 * 12);
  narrow.intermediate = 10;
  CHECK(support::stash_bytes(narrow, batch, Recompute::none, 1, true) == 0);
}

TEST_CASE("a layer's workspaces hold what is not kept, and tensors in flight") {
  // forward: what is not kept (0, 232 - 112 = 120, 232 - 16 = 216) and 2H = 32 bytes
  CHECK(support::layer_bytes(tiny, batch, Recompute::none).forward_workspace == 32 * 12);
  CHECK(support::layer_bytes(tiny, batch, Recompute::selective).forward_workspace == 152 * 12);
  CHECK(support::layer_bytes(tiny, batch, Recompute::full).forward_workspace == 248 * 12);
  // backward: the same and gradients of H + max(3I, 2Q + 2K) = 8 + max(36, 24) = 44 elements, 88
  // bytes
  CHECK(support::layer_bytes(tiny, batch, Recompute::none).backward_workspace == 88 * 12);
  CHECK(support::layer_bytes(tiny, batch, Recompute::selective).backward_workspace == 208 * 12);
  CHECK(support::layer_bytes(tiny, batch, Recompute::full).backward_workspace == 304 * 12);
  // with a narrow SwiGLU attention's gradients are wider: 8 + max(3, 24) = 32 elements, 64 bytes
  auto narrow = tiny;
  narrow.intermediate = 1;
  CHECK(support::layer_bytes(narrow, batch, Recompute::none).backward_workspace == 64 * 12);
}

TEST_CASE("activations grow with the dtype, statistics in fp32 do not") {
  auto model = tiny;
  model.dtype = Dtype::f32;  // 104 elements at 4 bytes and 24 bytes of statistics
  CHECK(support::layer_bytes(model, batch, Recompute::none).saved == (416 + 24) * 12);
  CHECK(support::layer_bytes(model, batch, Recompute::full).saved == 32 * 12);
  model.dtype = Dtype::f8;
  CHECK(support::layer_bytes(model, batch, Recompute::none).saved == (104 + 24) * 12);
}

TEST_CASE("a large LLaMA layer keeps 37.3 bytes per token and hidden element, comparable to the published 34") {
  // multi-head, I = 8H/3: 2 x (4 + 2 + 2 + 32/3) = 37.33 H; eq. 1 of arXiv:2205.05198 has 34 H in
  // addition to the softmax, with a plain MLP of width 4H and dropout
  const Transformer model{.name = "m",
                          .layers = 1,
                          .hidden = 12288,
                          .heads = 96,
                          .kv_heads = 96,
                          .intermediate = 32768,
                          .vocab = 1,
                          .dtype = Dtype::f16};
  const Batch one{.sequence = 2048, .microbatch_size = 1, .global_batch = 1};
  const double bytes = static_cast<double>(support::layer_bytes(model, one, Recompute::none).saved);
  CHECK(bytes / (2048.0 * 12288.0) == doctest::Approx(37.3333 + 392.0 / 12288).epsilon(1e-5));  // statistics: 8 + 4 x 96
}

TEST_CASE("grouped queries keep fewer keys and values") {
  auto grouped = tiny;
  grouped.kv_heads = 1;  // K = 2 instead of 4: 2K falls by 4 elements, 8 bytes a token
  const auto before = support::layer_bytes(tiny, batch, Recompute::selective).saved;
  CHECK(before - support::layer_bytes(grouped, batch, Recompute::selective).saved == 8 * 12);
}

TEST_CASE("the head of a 16-bit model peaks at 14 bytes per token and vocabulary entry") {
  const auto head = head_bytes(tiny, batch);
  // kept: input and normed 2 x 8 x 2 = 32, rstd 4, log-softmax 4 x 10 = 40
  CHECK(head.saved == 76 * 12);
  // forward: logits 2 and their fp32 copy 4: 60
  CHECK(head.forward_workspace == 60 * 12);
  // backward: two gradients of H 32; logits 2 and two fp32 gradients 8: 100
  CHECK(head.backward_workspace == 132 * 12);
  // 4 kept + 10 in the backward = 14 bytes; the rest is what H costs: 32 + 4 + 32
  CHECK(head.saved + head.backward_workspace == (14 * 10 + 68) * 12);
}

TEST_CASE("a float32 head makes no copy of its logits") {
  auto model = tiny;
  model.dtype = Dtype::f32;
  const auto head = head_bytes(model, batch);
  CHECK(head.saved == (64 + 4 + 40) * 12);
  CHECK(head.forward_workspace == 40 * 12);           // logits
  CHECK(head.backward_workspace == (64 + 120) * 12);  // logits and two gradients
  model.dtype = Dtype::f64;                           // cross entropy stays in f64
  CHECK(head_bytes(model, batch).saved == (128 + 4 + 80) * 12);
}

TEST_CASE("a loss in chunks of the vocabulary holds one chunk of logits, and no more from forward to backward") {
  auto model = tiny;
  model.loss_chunk = 3;
  const auto head = head_bytes(model, batch);
  CHECK(head.saved == (32 + 4) * 12);               // input and normed; the logarithm of the sum
  CHECK(head.forward_workspace == (4 + 6) * 12);    // the target's logit; 3 logits of 2 bytes
  CHECK(head.backward_workspace == (32 + 6) * 12);  // two gradients of H
  // A backward in two parts leaves the gradient of all 10 logits.
  CHECK(support::stash_bytes(model, batch, Recompute::none, 0, false, true) == 20 * 12);
  CHECK(support::stash_bytes(tiny, batch, Recompute::none, 0, false, true) == 0);
  model.loss_chunk = 64;  // more than there are
  CHECK(head_bytes(model, batch).forward_workspace == (4 + 20) * 12);
  model.loss_chunk = -1;
  CHECK_THROWS_AS(model.check(), tawpipe::InputError);
}

TEST_CASE("logits of a real model outweigh its boundary") {
  // llama-2-7b, 4096 tokens: 32000 x 14 bytes x 4096 = 1.835 GB
  const Batch one{.sequence = 4096, .microbatch_size = 1, .global_batch = 1};
  const auto head = head_bytes(tawpipe::models::named("llama-2-7b"), one);
  const std::int64_t hidden_part = (4 * 2 * 4096 + 4) * std::int64_t{4096};
  CHECK(head.saved + head.backward_workspace - hidden_part == 1'835'008'000);
}

}  // namespace operator_memory_test
