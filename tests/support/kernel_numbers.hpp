// Random numbers in any format, and comparisons within its rounding.
// Not: the kernels (unit/layers/cuda/).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "support/random.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace support {

/// Numbers that T holds exactly.
template <class T>
std::vector<T> numbers(std::int64_t count, std::uint64_t seed, double most = 1) {
  Random random{seed};
  std::vector<T> numbers(static_cast<std::size_t>(count));
  std::ranges::generate(numbers, [&] { return tawpipe::layers::cuda::narrow<T>(static_cast<float>(random.real(-most, most))); });
  return numbers;
}
template <class T>
std::vector<float> wide(const std::vector<T>& numbers) {
  std::vector<float> wide;
  for (const T x : numbers) wide.push_back(tawpipe::layers::cuda::widen(x));
  return wide;
}
/// Half the distance between neighbours of 1 in T; of float, what the order of sums may change.
template <class T>
constexpr double unit = std::is_same_v<T, float>           ? 0x1p-17
                        : std::is_same_v<T, tawpipe::Half> ? 0x1p-11
                                                           : 0x1p-8;

/// Within T's rounding of the number and of an additional number `scale`.
template <class A, class B>
void check_near(const std::vector<A>& ours, const std::vector<B>& wanted, double scale = 1) {
  REQUIRE(ours.size() == wanted.size());
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double w = static_cast<double>(tawpipe::layers::cuda::widen(wanted[i]));
    const double d = std::abs(static_cast<double>(tawpipe::layers::cuda::widen(ours[i])) - w) / (scale + std::abs(w));
    worst = std::isnan(d) ? 1e300 : std::max(worst, d);
  }
  CHECK(worst < unit<A>);
}

}  // namespace support
