// Tensors of a layer lie apart, within the bytes that the model says. Not: what is in them.
#include "tawpipe/layers/layer_tensors.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/layer_bytes.hpp"
#include "tawpipe/model/parameters.hpp"

using tawpipe::Batch;
using tawpipe::Recompute;
using tawpipe::Transformer;
using tawpipe::layers::Cursor;
using tawpipe::layers::LayerMatrices;
using tawpipe::layers::LayerTensors;
using tawpipe::layers::TokenWidths;

namespace {

constexpr int six_tokens = 6;
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

/// Two of five experts of width 14 and a shared one of width 6.
Transformer uneven_mixture() {
  Transformer model = uneven_model();
  model.experts = 5;
  model.experts_per_token = 2;
  model.shared_width = 6;
  return model;
}

/// With a vector beside every matrix, and norms of heads.
Transformer with_vectors() {
  Transformer model = uneven_model();
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  model.qk_norm = tawpipe::QkNorm::head;
  return model;
}

/// Begin and end, in bytes, of every tensor but the norms' gradients, sorted.
/// @param inner  14, or of a mixture 2 x 14 + 6. @param routing  0, or of a mixture 2 x 10
std::vector<std::pair<const float*, const float*>> places(const LayerTensors<float>& x, int inner, int routing) {
  std::vector<std::pair<const float*, const float*>> places;
  // hidden 10, Q 16, K 8
  for (const auto& [begin, width] : {std::pair{x.input, 10},
                                     {x.attention_norm, 10},
                                     {x.qkv, 32},
                                     {x.attention, 16},
                                     {x.middle, 10},
                                     {x.ffn_norm, 10},
                                     {x.gate, inner},
                                     {x.sigmoid, inner},
                                     {x.up, inner},
                                     {x.product, inner},
                                     {x.routing, routing}}) {
    places.emplace_back(begin, begin + six_tokens * width);
  }
  std::ranges::sort(places);
  return places;
}

}  // namespace

TEST_CASE("what a policy keeps fits the model's bytes, and the rest its workspace") {
  const Batch batch{.sequence = six_tokens, .microbatch_size = 1, .global_batch = 1};
  for (const Transformer& model : {uneven_model(), uneven_mixture(), with_vectors()}) {
    const TokenWidths width{model};
    for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      CAPTURE(name(recompute));
      const auto bytes = support::layer_bytes(model, batch, recompute);
      CHECK(six_tokens * element * width.kept(recompute) <= bytes.saved);
      CHECK(six_tokens * element * (width.all() - width.kept(recompute) + 2 * width.hidden) <= bytes.forward_workspace);
      std::vector<float> saved(static_cast<std::size_t>(six_tokens * width.kept(recompute)));
      std::vector<float> others(static_cast<std::size_t>(six_tokens * (width.all() - width.kept(recompute))));
      Cursor<float> scratch{reinterpret_cast<std::byte*>(others.data())};
      const LayerTensors<float> x{width,   six_tokens, recompute, Cursor<float>{reinterpret_cast<std::byte*>(saved.data())},
                                  scratch, scratch};
      // All of `saved` and all of the rest are taken, and nothing lies over another.
      CHECK(scratch.take(0) == others.data() + others.size());
      std::int64_t covered = 0;
      auto all = model.is_routed() ? places(x, 34, 20) : places(x, 14, 0);
      all.emplace_back(x.unnormed, x.unnormed + six_tokens * model.qk_normed_width());
      std::ranges::sort(all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        covered += all[i].second - all[i].first;
        if (i > 0) CHECK(all[i - 1].second <= all[i].first);
      }
      CHECK(covered == std::ssize(saved) + std::ssize(others));
      CHECK(x.norm_gradients == x.sigmoid);
    }
  }
}

TEST_CASE("biases and norms of heads lie as the order of parameters says") {
  const Transformer model = with_vectors();
  std::vector<float> parameters(static_cast<std::size_t>(model.layer_parameters()));
  const LayerMatrices<float> m{parameters.data(), model, TokenWidths{model}};
  const tawpipe::ParameterOrder order{model};
  const auto at = [&](const std::string& tensor) -> const float* {
    for (const auto& t : order.tensors()) {
      if (t.name == "decoders.0." + tensor) return parameters.data() + (t.range.begin - order.embedding().end);
    }
    return nullptr;
  };
  CHECK(m.qkv_bias == at("attention.wq.bias"));
  CHECK(m.qkv_bias + 16 == at("attention.wk.bias"));
  CHECK(m.qkv_bias + 24 == at("attention.wv.bias"));
  CHECK(m.output_bias == at("attention.wo.bias"));
  CHECK(m.gate_bias == at("feed_forward.w1.bias"));
  CHECK(m.down_bias == at("feed_forward.w2.bias"));
  CHECK(m.up_bias == at("feed_forward.w3.bias"));
  CHECK(m.query_norm == at("attention.q_norm.weight"));
  CHECK(m.key_norm == at("attention.k_norm.weight"));
  CHECK(m.attention_norm == at("attention_norm.weight"));
  CHECK(m.ffn_norm == at("ffn_norm.weight"));
  CHECK(order.layers(0, 1).count() == model.layer_parameters());
  CHECK(order.tensors().back().range.end == model.parameters());
}

TEST_CASE("matrices of a mixture lie as the order of parameters says") {
  const Transformer model = uneven_mixture();
  std::vector<float> parameters(static_cast<std::size_t>(model.layer_parameters()));
  const LayerMatrices<float> m{parameters.data(), model, TokenWidths{model}};
  const tawpipe::ParameterOrder order{model};
  const auto at = [&](const std::string& tensor) {
    for (const auto& t : order.tensors()) {
      if (t.name == "decoders.0." + tensor + ".weight") return parameters.data() + (t.range.begin - order.embedding().end);
    }
    return parameters.data() + parameters.size();
  };
  CHECK(m.qkv == at("attention.wq"));
  CHECK(m.output == at("attention.wo"));
  CHECK(m.router == at("feed_forward.gate"));
  CHECK(m.experts == at("feed_forward.experts.0.w1"));
  CHECK(m.experts + 14 * 10 == at("feed_forward.experts.0.w2"));
  CHECK(m.experts + 3 * 4 * 14 * 10 == at("feed_forward.experts.4.w1"));
  CHECK(m.gate == at("feed_forward.shared_experts.w1"));
  CHECK(m.down == at("feed_forward.shared_experts.w2"));
  CHECK(m.up == at("feed_forward.shared_experts.w3"));
  CHECK(m.attention_norm == at("attention_norm"));
  CHECK(m.ffn_norm == at("ffn_norm"));
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
