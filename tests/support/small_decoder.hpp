// A decoder small enough to write to files in a test, and numbers for its parameters that tell each
// of them apart.
// Not: weights that compute anything sensible.
#pragma once

#include <cstdint>

#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"

namespace support {

/// 2 layers, hidden 8, 2 heads of 4, 1 key-value head, intermediate 12, vocabulary 10: 2 (8 (16 +
/// 8 + 36) + 16) + 80 + 8 = 1080 parameters, 80 more where the output matrix is its own.
inline tawpipe::Transformer small_decoder(bool tied = true) {
  return {.name = "small decoder",
          .layers = 2,
          .hidden = 8,
          .heads = 2,
          .kv_heads = 1,
          .intermediate = 12,
          .vocab = 10,
          .tied = tied,
          .dtype = tawpipe::Dtype::f32};
}

/// Exact in every format down to f16 for the first 2048 parameters.
inline double numbered(std::int64_t parameter) { return static_cast<double>(parameter); }

}  // namespace support
