// Angles of rotary embedding between neighbouring positions.
// Not: the rotation (layers/host/attention.hpp, layers/cuda/rotary_table.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "tawpipe/model/decoder_constants.hpp"

namespace tawpipe::inline v0::layers {

/// The angle of each pair of a head's coordinates, in numbers of type T. Scaled as llama3, pairs of
/// fewer turns over the original positions than low_freq_factor are slowed, of more than
/// high_freq_factor kept, and those between are a mean of both.
/// Source: transformers, modeling_rope_utils.py.
/// @pre the scaling is none, linear or llama3
template <class T>
std::vector<T> rotary_frequencies(const DecoderConstants& constants, std::int64_t head_size) {
  const RotaryScaling& scaling = constants.scaling;
  const auto factor = static_cast<T>(scaling.factor);
  const auto low = static_cast<T>(scaling.low_freq_factor);
  const auto high = static_cast<T>(scaling.high_freq_factor);
  std::vector<T> frequencies;
  frequencies.reserve(static_cast<std::size_t>(head_size / 2));
  for (std::int64_t j = 0; j < head_size / 2; ++j) {
    T frequency = T{1} / std::pow(static_cast<T>(constants.rope_theta), static_cast<T>(2 * j) / static_cast<T>(head_size));
    if (scaling.kind == RotaryScaling::Kind::linear) frequency /= factor;
    if (scaling.kind == RotaryScaling::Kind::llama3) {
      const T turns = static_cast<T>(scaling.original_positions) * frequency / (2 * std::numbers::pi_v<T>);
      const T kept = std::clamp((turns - low) / (high - low), T{0}, T{1});
      frequency = (1 - kept) * frequency / factor + kept * frequency;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace tawpipe::layers
