// Random numbers that are the same with every standard library.
// Not: good ones; SplitMix64, enough to choose small graphs.
#pragma once

#include <cstdint>

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

}  // namespace support
