// What a user is told where fused attention does not take a model.
// Not: which models it takes (fused_attention.hpp) nor the kernels that run instead
// (plain_attention.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// The least slowdown is the ratio of peak rates: dense products of 16 bits on tensor cores, and
/// float32 on CUDA cores.
/// Source: NVIDIA's data sheets: A100 312 and 19.5 TFLOP/s (16), H100 SXM 989 and 67 (15), B200 2250
/// and 75 (30).
inline std::string attention_notice(std::int64_t head_size, std::int64_t sequence) {
  return concat("cuDNN's fused attention does not take this model (heads of ", head_size, ", sequences of ", sequence,
                "); plain kernels do, in float32 without tensor cores, so attention takes at least 15 times as long "
                "(docs/layers.md)");
}

}  // namespace tawpipe::layers::cuda
