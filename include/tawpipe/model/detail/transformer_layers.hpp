// A decoder's layers by kinds and operators, from its sizes and back: bodies of Transformer's functions.
// Not: the sizes themselves (model/transformer.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE LayerKind Transformer::layer_kind() const {
  if (has_kinds()) return kinds.front();
  const Attention attention{.heads = heads,
                            .kv_heads = kv_heads,
                            .head_dim = static_cast<int>(head_size()),
                            .value_dim = value_size,
                            .turned = is_latent() ? rope_width : -1,
                            .window = window,
                            .qkv_bias = qkv_bias,
                            .output_bias = output_bias,
                            .qk_norm = qk_norm,
                            .query_rank = query_rank,
                            .key_value_rank = key_value_rank};
  const MlpFunction function = gated ? MlpFunction::gated : MlpFunction::plain;
  if (!is_routed()) return {.sublayers = {attention, Mlp{.width = intermediate, .function = function, .bias = mlp_bias}}};
  return {.sublayers = {attention, Mixture{.experts = experts,
                                           .per_token = experts_per_token,
                                           .width = intermediate,
                                           .shared_width = shared_width,
                                           .function = function,
                                           .shared_gate = shared_gate}}};
}

TAWPIPE_INLINE Model Transformer::decoder() const {
  Model model{.name = name,
              .hidden = hidden,
              .vocab = vocab,
              .tied = tied,
              .positions = positions,
              .final_norm_bias = norm_bias,
              .kinds = has_kinds() ? kinds : std::vector{layer_kind()},
              .pattern = pattern,
              .mtp = mtp};
  if (has_kinds()) return model;
  model.pattern.assign(static_cast<std::size_t>(layers), 0);
  if (dense_layers > 0) {
    model.kinds.push_back(of_dense_layers().layer_kind());
    std::fill_n(model.pattern.begin(), dense_layers, std::uint8_t{1});
  }
  return model;
}

TAWPIPE_INLINE Transformer Transformer::of(const Model& model) {
  model.check();
  Transformer decoder{.name = model.name,
                      .layers = static_cast<int>(model.pattern.size()),
                      .hidden = static_cast<int>(model.hidden),
                      .heads = 1,
                      .kv_heads = 1,
                      .intermediate = 1,
                      .vocab = static_cast<int>(model.vocab),
                      .tied = model.tied,
                      .kinds = model.kinds,
                      .pattern = model.pattern,
                      .mtp = model.mtp,
                      .positions = static_cast<int>(model.positions),
                      .norm_bias = model.final_norm_bias};
  for (const LayerKind& kind : model.kinds) {
    for (const LayerKind::Sublayer& sublayer : kind.sublayers) {
      if (const auto* const attention = std::get_if<Attention>(&sublayer); attention != nullptr && !decoder.head_dim) {
        decoder.heads = attention->heads;
        decoder.kv_heads = std::max(1, attention->kv_heads);
        decoder.head_dim = attention->head_dim;
        decoder.window = attention->window;
        decoder.key_value_rank = attention->key_value_rank;
        decoder.query_rank = attention->query_rank;
        if (attention->key_value_rank > 0) decoder.rope_width = std::max(0, attention->turned);
        if (attention->key_value_rank > 0) decoder.value_size = attention->value_dim;
      }
      const auto* const mixture = std::get_if<Mixture>(&sublayer);
      if (mixture != nullptr && mixture->experts > decoder.experts) {
        decoder.experts = mixture->experts;
        decoder.experts_per_token = mixture->per_token;
        decoder.intermediate = mixture->width;
        decoder.shared_width = mixture->shared_width;
      }
      const auto* const mlp = std::get_if<Mlp>(&sublayer);
      if (mlp != nullptr && decoder.experts == 0) decoder.intermediate = std::max(decoder.intermediate, mlp->width);
    }
  }
  return decoder;
}

}  // namespace tawpipe
