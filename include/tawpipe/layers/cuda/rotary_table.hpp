// Cosine and sine of rotary embedding by position.
// Not: the rotation (decoder_bodies.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace tawpipe::inline v0::layers::cuda {

/// [sequence, size]: cosine and sine of the angle of each pair at each position, computed in
/// double.
/// Source: Su et al. 2021, RoFormer, arXiv:2104.09864, equation 34.
inline std::vector<float> rotary_table(std::int64_t sequence, std::int64_t size, double theta) {
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(sequence * size));
  for (std::int64_t s = 0; s < sequence; ++s) {
    for (std::int64_t j = 0; j < size; j += 2) {
      const double angle = static_cast<double>(s) * std::pow(theta, -static_cast<double>(j) / static_cast<double>(size));
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace tawpipe::layers::cuda
