// Random numbers that are the same with every standard library.
// Not: good ones; SplitMix64, enough to choose small graphs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tawpipe/core/splitmix64.hpp"

namespace support {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed} {}

  std::uint64_t next() {
    const std::uint64_t number = tawpipe::splitmix64(state_);
    state_ += tawpipe::splitmix64_step;
    return number;
  }
  /// One of low .. high.
  int between(int low, int high) { return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1)); }
  /// From low up to high.
  double real(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

template <class T>
const T& one_of(Random& random, const std::vector<T>& values) {
  return values[static_cast<std::size_t>(random.between(0, static_cast<int>(values.size()) - 1))];
}

/// How many random problems to draw: what TAWPIPE_DRAWS says, else `otherwise`.
inline int draws(int otherwise) {
  const char* const given = std::getenv("TAWPIPE_DRAWS");
  return given == nullptr ? otherwise : std::max(1, std::atoi(given));
}

}  // namespace support
