// Small mixtures of experts.
// Not: those that layers compute (unit/layers/host/experts_test.cpp).
#pragma once

#include "tawpipe/model/transformer.hpp"

namespace support {

/// A layer: attention 192, router 8 x 8 = 64, 8 experts of 3 x 8 x 12 = 288 each, a shared one of
/// 3 x 8 x 6 = 144, norms 16: 416 that are not of experts, and 2,304 of experts. Embedding 80, final
/// norm and output 88.
inline const tawpipe::Transformer narrow_mixture{.name = "mixture",
                                                 .layers = 4,
                                                 .hidden = 8,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .intermediate = 12,
                                                 .vocab = 10,
                                                 .experts = 8,
                                                 .experts_per_token = 2,
                                                 .shared_width = 6};

/// 8 experts, of which a token passes 2, and one for all, unless that has no width.
inline tawpipe::Transformer wide_mixture(int shared_width = 64) {
  return {.name = "mixture",
          .layers = 4,
          .hidden = 256,
          .heads = 8,
          .kv_heads = 4,
          .intermediate = 128,
          .vocab = 1000,
          .experts = 8,
          .experts_per_token = 2,
          .shared_width = shared_width};
}

}  // namespace support
