// Tensors of a layer lie apart, within the bytes that the model says. Not: what is in them.
#include "tawpipe/layers/layer_tensors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tawpipe/model/activation.hpp"

using tawpipe::Batch;
using tawpipe::Recompute;
using tawpipe::Transformer;
using tawpipe::layers::Cursor;
using tawpipe::layers::LayerTensors;
using tawpipe::layers::TokenWidths;

namespace {

constexpr std::int64_t six_tokens = 6;
constexpr std::int64_t element = 4;

Transformer uneven_model() {
  return {.layers = 2,
          .hidden = 10,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = 14,
          .vocab = 10,
          .dtype = tawpipe::Dtype::f32,
          .head_dim = 4};
}

/// Begin and end, in bytes, of every tensor but the norms' gradients, sorted.
std::vector<std::pair<const float*, const float*>> places(const LayerTensors<float>& x) {
  std::vector<std::pair<const float*, const float*>> places;
  // hidden 10, Q 16, K 8, intermediate 14
  for (const auto& [begin, width] : {std::pair{x.input, 10},
                                     {x.attention_norm, 10},
                                     {x.qkv, 32},
                                     {x.attention, 16},
                                     {x.middle, 10},
                                     {x.ffn_norm, 10},
                                     {x.gate, 14},
                                     {x.sigmoid, 14},
                                     {x.up, 14},
                                     {x.product, 14}}) {
    places.emplace_back(begin, begin + six_tokens * width);
  }
  std::ranges::sort(places);
  return places;
}

}  // namespace

TEST_CASE("what a policy keeps fits the model's bytes, and the rest its workspace") {
  const Batch batch{.sequence = six_tokens, .microbatch_size = 1, .global_batch = 1};
  const TokenWidths width{uneven_model()};
  for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    CAPTURE(name(recompute));
    const auto bytes = layer_activations(uneven_model(), batch, recompute);
    CHECK(six_tokens * element * width.kept(recompute) <= bytes.saved);
    std::vector<float> saved(static_cast<std::size_t>(six_tokens * width.kept(recompute)));
    std::vector<float> others(static_cast<std::size_t>(six_tokens * (width.all() - width.kept(recompute))));
    Cursor<float> scratch{reinterpret_cast<std::byte*>(others.data())};
    const LayerTensors<float> x{width,   six_tokens, recompute, Cursor<float>{reinterpret_cast<std::byte*>(saved.data())},
                                scratch, scratch};
    // All of `saved` and all of the rest are taken, and nothing lies over another.
    CHECK(scratch.take(0) == others.data() + others.size());
    std::int64_t covered = 0;
    const auto all = places(x);
    for (std::size_t i = 0; i < all.size(); ++i) {
      covered += all[i].second - all[i].first;
      if (i > 0) CHECK(all[i - 1].second <= all[i].first);
    }
    CHECK(covered == std::ssize(saved) + std::ssize(others));
    CHECK(x.norm_gradients == x.sigmoid);
  }
}

TEST_CASE("a stash holds what backward_weight needs and not the sigmoid") {
  const TokenWidths width{uneven_model()};
  std::vector<float> saved(static_cast<std::size_t>(six_tokens * width.hidden));
  std::vector<float> stash(static_cast<std::size_t>(six_tokens * width.all()));
  std::vector<float> workspace(static_cast<std::size_t>(six_tokens * 14));
  Cursor<float> rest{reinterpret_cast<std::byte*>(stash.data())};
  Cursor<float> passing{reinterpret_cast<std::byte*>(workspace.data())};
  const LayerTensors<float> x{width, six_tokens, Recompute::full, Cursor<float>{reinterpret_cast<std::byte*>(saved.data())},
                              rest,  passing};
  CHECK(x.sigmoid == workspace.data());
  CHECK(x.input == saved.data());
  // 3 x 10 + 2 x 16 + 2 x 8 + 3 x 14 = 120 numbers a token, then both norms' gradients.
  CHECK(x.norm_gradients == stash.data() + six_tokens * 120);
  CHECK(x.behind_gradients == x.norm_gradients + 20);
}
