// Tests of model/transformer_work.hpp.
// Not: the cut of a model into stages (workload_test.cpp).
#include "tawpipe/model/transformer_work.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer.hpp"

namespace transformer_work_test {

using tawpipe::Batch;
using tawpipe::Bytes;
using tawpipe::Dtype;
using tawpipe::Recompute;
using tawpipe::StageWork;
using tawpipe::Transformer;
using tawpipe::transformer_work;

namespace {

/// H = 8, Q = 8, K = 4, I = 12, V = 10; a layer's matrices have 480 parameters.
const Transformer tiny{
    .name = "tiny", .layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .dtype = Dtype::f16};
/// 2 sequences of 6 tokens: 12 tokens.
const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};

StageWork whole(const Transformer& model, Recompute recompute) {
  return transformer_work(model, batch, recompute, 0, model.layers, true, true);
}

}  // namespace

TEST_CASE("operations of a whole tiny model") {
  // a layer's matrices: 2 x 480 x 12 tokens = 11520; attention: 4 x 6 x 6 x 8 / 2 = 576 a sequence,
  // 1152 for two head: 2 x 8 x 10 x 12 = 1920
  const auto work = whole(tiny, Recompute::none);
  CHECK(work.forward.value() == 2 * (11520 + 1152) + 1920);
  CHECK(work.backward_input.value() == 2 * (11520 + 2 * 1152) + 1920);
  CHECK(work.backward_weight.value() == 2 * 11520 + 1920);
  CHECK(work.recompute.value() == 0);
}

TEST_CASE("recomputed operations: the attention core, or the layer's whole forward, never the head") {
  CHECK(whole(tiny, Recompute::selective).recompute.value() == 2 * 1152);
  CHECK(whole(tiny, Recompute::full).recompute.value() == 2 * (11520 + 1152));
  CHECK(transformer_work(tiny, batch, Recompute::full, 2, 0, false, true).recompute.value() == 0);
  // model operations stay the same
  CHECK(whole(tiny, Recompute::full).forward == whole(tiny, Recompute::none).forward);
  CHECK(whole(tiny, Recompute::full).backward_input == whole(tiny, Recompute::none).backward_input);
}

TEST_CASE("attention grows with the square of the sequence, matrices with its length") {
  const Batch longer{.sequence = 12, .microbatch_size = 2, .global_batch = 8};
  const auto work = transformer_work(tiny, longer, Recompute::none, 0, 1, false, false);
  CHECK(work.forward.value() == 2 * 11520 + 4 * 1152);
}

TEST_CASE("a wider query widens attention alone") {
  auto model = tiny;
  model.head_dim = 4;  // Q = 16: attention doubles
  const auto work = transformer_work(model, batch, Recompute::selective, 0, 1, false, false);
  CHECK(work.recompute.value() == 2 * 1152);
}

TEST_CASE("a whole real model costs six operations a parameter and token, and half of PaLM's attention") {
  // llama-2-7b at 4096: matrices 32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096 = 6607077376,
  // times 6 = 39642464256 PaLM appendix B: 12 L Q S = 12 x 32 x 4096 x 4096 a token, half of it
  // with a causal mask: 3221225472
  const Batch one{.sequence = 4096, .microbatch_size = 1, .global_batch = 1};
  const auto model = tawpipe::models::named("llama-2-7b");
  const auto work = transformer_work(model, one, Recompute::none, 0, 32, true, true);
  const auto total = work.forward + work.backward_input + work.backward_weight;
  CHECK(total.value() == 4096.0 * (39642464256.0 + 3221225472.0));
}

TEST_CASE("parameters: layers apart from embedding and head") {
  const auto middle = transformer_work(tiny, batch, Recompute::none, 1, 1, false, false);
  CHECK(middle.first_layer == 1);
  CHECK(middle.layers == 1);
  CHECK(middle.parameters == 496);
  CHECK(middle.edge_parameters == 0);
  CHECK(transformer_work(tiny, batch, Recompute::none, 0, 1, true, false).edge_parameters == 80);
  CHECK(transformer_work(tiny, batch, Recompute::none, 1, 1, false, true).edge_parameters == 88);
  CHECK(whole(tiny, Recompute::none).parameters + whole(tiny, Recompute::none).edge_parameters == tiny.parameters());
}

TEST_CASE("a tied matrix is held once where embedding and head meet, and twice where they are apart") {
  auto tied = tiny;
  tied.tied = true;
  CHECK(whole(tied, Recompute::none).edge_parameters == 80 + 8);
  CHECK(transformer_work(tied, batch, Recompute::none, 0, 1, true, false).edge_parameters == 80);
  CHECK(transformer_work(tied, batch, Recompute::none, 1, 1, false, true).edge_parameters == 8 + 80);
  // the product with the output matrix takes place all the same
  CHECK(whole(tied, Recompute::none).forward == whole(tiny, Recompute::none).forward);
}

TEST_CASE("the boundary is one tensor [microbatch, sequence, hidden]") {
  CHECK(whole(tiny, Recompute::none).boundary == Bytes{2 * 6 * 8 * 2});
  CHECK(whole(tiny, Recompute::full).boundary == Bytes{2 * 6 * 8 * 2});
}

TEST_CASE("saved activations add up over layers and head") {
  // a layer keeps 232, 112 or 16 bytes a token, the head 76 (activation_test.cpp)
  CHECK(whole(tiny, Recompute::none).saved == Bytes{(2 * 232 + 76) * 12});
  CHECK(whole(tiny, Recompute::selective).saved == Bytes{(2 * 112 + 76) * 12});
  CHECK(whole(tiny, Recompute::full).saved == Bytes{(2 * 16 + 76) * 12});
  CHECK(transformer_work(tiny, batch, Recompute::none, 0, 0, true, false).saved == Bytes{0});
}

TEST_CASE("a workspace is the largest of layer and head, not their sum") {
  // forward: layer 248 bytes a token under full recomputation, head 60; backward: layer 304, head
  // 132
  CHECK(whole(tiny, Recompute::full).forward_workspace == Bytes{248 * 12});
  CHECK(whole(tiny, Recompute::full).backward_workspace == Bytes{304 * 12});
  // without recomputation the layer has 32 and 88
  CHECK(whole(tiny, Recompute::none).forward_workspace == Bytes{60 * 12});
  CHECK(whole(tiny, Recompute::none).backward_workspace == Bytes{132 * 12});
  const auto one = transformer_work(tiny, batch, Recompute::full, 0, 1, false, false);
  const auto two = transformer_work(tiny, batch, Recompute::full, 0, 2, false, false);
  CHECK(one.backward_workspace == two.backward_workspace);
}

TEST_CASE("traffic of a layer, the embedding and the head") {
  // forward: norms 32, residual 48, rotary 2 x (8 + 4) = 24, SwiGLU 36: 140 elements, 280 bytes a
  // token
  const auto layer = transformer_work(tiny, batch, Recompute::none, 0, 1, false, false);
  CHECK(layer.forward_traffic == Bytes{280 * 12});
  // backward: norms 48, residual 48, rotary 24, SwiGLU 60: 180 elements, 360 bytes
  CHECK(layer.backward_traffic == Bytes{360 * 12});
  // computed again: all 140, or norms and SwiGLU 68
  CHECK(transformer_work(tiny, batch, Recompute::full, 0, 1, false, false).backward_traffic == Bytes{640 * 12});
  CHECK(transformer_work(tiny, batch, Recompute::selective, 0, 1, false, false).backward_traffic == Bytes{496 * 12});
  // stopped early: without the last residual sum, 24
  Transformer stopped = tiny;
  stopped.early_stop = true;
  CHECK(transformer_work(stopped, batch, Recompute::full, 0, 1, false, false).backward_traffic == Bytes{592 * 12});
  // embedding: rows of 16 bytes, 2 and 3 times
  const auto embedding = transformer_work(tiny, batch, Recompute::none, 0, 0, true, false);
  CHECK(embedding.forward_traffic == Bytes{32 * 12});
  CHECK(embedding.backward_traffic == Bytes{48 * 12});
  // head: norm 2 x 16; cast 2 + 4, log-softmax 4 + 4 for 10 entries
  const auto head = transformer_work(tiny, batch, Recompute::none, 2, 0, false, true);
  CHECK(head.forward_traffic == Bytes{(32 + 140) * 12});
  // norm 3 x 16; 4 x 4 and cast 4 + 2 for 10 entries
  CHECK(head.backward_traffic == Bytes{(48 + 220) * 12});
  // in chunks of 4 entries: the forward's 140 again, and for each further chunk two sums
  auto chunked = tiny;
  chunked.loss_chunk = 4;
  const auto in_chunks = transformer_work(chunked, batch, Recompute::none, 2, 0, false, true);
  CHECK(in_chunks.forward_traffic == head.forward_traffic + Bytes{2 * 16 * 12});
  CHECK(in_chunks.backward_traffic == head.backward_traffic + Bytes{(140 + 2 * 8) * 12});
  // two losses for metrics: each casts 2 + 4, log-softmax 4 + 4
  Transformer metrics = tiny;
  metrics.code = tawpipe::LayerCode::composer;
  const auto with_metrics = transformer_work(metrics, batch, Recompute::none, 2, 0, false, true);
  CHECK(with_metrics.forward_traffic == head.forward_traffic);
  CHECK(with_metrics.backward_traffic == head.backward_traffic + Bytes{2 * 140 * 12});
  // This library's own layers stop early too, and keep silu(gate).
  Transformer own = tiny;
  own.code = tawpipe::LayerCode::tawpipe;
  CHECK(own.stops_early());
  CHECK_FALSE(own.code_fuses_swiglu());
  CHECK(own.fuses_accumulation());
  // Megatron-LM's of 2021: cast 2 + 4; 4 read, 4 + 4, 4 + 4, 4 read, 4 + 4; backward 4 + 4, cast 4 + 2
  Transformer unfused = tiny;
  unfused.fused_attention = false;
  const auto kernels = transformer_work(unfused, batch, Recompute::none, 2, 0, false, true);
  CHECK(kernels.forward_traffic == Bytes{(32 + 380) * 12});
  CHECK(kernels.backward_traffic == Bytes{(48 + 140) * 12});
  const auto all = whole(tiny, Recompute::none);
  CHECK(all.forward_traffic == Bytes{(2 * 280 + 32 + 172) * 12});
  CHECK(all.backward_traffic == Bytes{(2 * 360 + 48 + 268) * 12});
}

TEST_CASE("more recomputation keeps less, computes more and moves more") {
  for (const auto& preset : tawpipe::models::all()) {
    const auto model = preset.make();
    const Batch real{.sequence = 4096, .microbatch_size = 1, .global_batch = 1};
    const auto none = transformer_work(model, real, Recompute::none, 0, 1, false, false);
    const auto selective = transformer_work(model, real, Recompute::selective, 0, 1, false, false);
    const auto full = transformer_work(model, real, Recompute::full, 0, 1, false, false);
    CAPTURE(model.name);
    CHECK(none.saved > selective.saved);
    CHECK(selective.saved > full.saved);
    CHECK(none.recompute < selective.recompute);
    CHECK(selective.recompute < full.recompute);
    CHECK(none.backward_workspace < selective.backward_workspace);
    CHECK(selective.backward_workspace < full.backward_workspace);
    CHECK(none.backward_traffic < selective.backward_traffic);
    CHECK(selective.backward_traffic < full.backward_traffic);
    CHECK(full.saved == full.boundary);
  }
}

TEST_CASE("the largest preset at a long sequence fits 64 bits") {
  // llama-3-405b: 2 x (6 x 16384 + 2 x 1024 + 4 x 53248) + 8 + 4 x 128 = 627208 bytes a token and
  // layer, 126 layers, 131072 tokens; the head: 2 x 2 x 16384 + 4 + 4 x 128256 = 578564 a token
  const Batch one{.sequence = 131072, .microbatch_size = 1, .global_batch = 1};
  const auto work = transformer_work(tawpipe::models::named("llama-3-405b"), one, Recompute::none, 0, 126, true, true);
  CHECK(work.saved == Bytes{(std::int64_t{627208} * 126 + 578564) * 131072});
  CHECK(work.parameters + work.edge_parameters == 405'853'388'800);
}

TEST_CASE("nothing overflows at the limits of every size") {
  Transformer model{.name = "limit",
                    .layers = Transformer::max_layers,
                    .hidden = Transformer::max_hidden,
                    .heads = Transformer::max_hidden,
                    .kv_heads = Transformer::max_hidden,
                    .intermediate = Transformer::max_intermediate,
                    .vocab = Transformer::max_vocab,
                    .dtype = Dtype::f64};
  const Batch most{.sequence = Batch::max_tokens, .microbatch_size = 1, .global_batch = Batch::max_global_batch};
  const double tokens = static_cast<double>(most.sequence);
  const double h = model.hidden;
  const double i = model.intermediate;
  const double v = model.vocab;
  // Q = K = H; the formulas above in floating point, where nothing wraps around
  for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto work = transformer_work(model, most, recompute, 0, model.layers, true, true);
    const double again = recompute == Recompute::full ? 14 * h + 3 * i : recompute == Recompute::selective ? 4 * h + 3 * i : 0;
    const double backward = 8 * model.layers * (16 * h + 5 * i + again) + 3 * 8 * h + 3 * 8 * h + 32 * v;
    CHECK(static_cast<double>(work.backward_traffic.value()) == doctest::Approx(tokens * backward).epsilon(1e-9));
    const double kept = recompute == Recompute::full        ? 8 * h
                        : recompute == Recompute::selective ? 8 * (5 * h + 2 * i)
                                                            : 8 * (8 * h + 4 * i) + 8 + 4 * h;
    const double saved = model.layers * kept + 16 * h + 4 + 8 * v;
    CHECK(static_cast<double>(work.saved.value()) == doctest::Approx(tokens * saved).epsilon(1e-9));
    CHECK(work.backward_workspace > Bytes{0});
    CHECK(work.forward_workspace > Bytes{0});
    CHECK(work.parameters > 0);
  }
}

TEST_CASE("an impossible model or batch is refused") {
  auto model = tiny;
  model.vocab = 0;
  CHECK_THROWS_AS(transformer_work(model, batch, Recompute::none, 0, 1, true, true), tawpipe::InputError);
  CHECK_THROWS_AS(transformer_work(tiny, {.sequence = 0, .global_batch = 1}, Recompute::none, 0, 1, true, true),
                  tawpipe::InputError);
}

}  // namespace transformer_work_test
