// The two 16-bit floats by their bits, and their rounding from float.
// Not: the number types a model computes in (model/dtype.hpp) nor those of files
// (training/number_format.hpp).
#pragma once

#include <bit>
#include <cstdint>

namespace tawpipe::inline v0 {

/// IEEE binary16 by its bits.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  /// Rounds to nearest, ties to even. @param value  finite or not; a NaN stays one
  explicit Half(float value) {
    constexpr std::uint32_t infinity = 0x7f800000;
    const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
    std::uint32_t magnitude = all & 0x7fffffff;
    const auto sign = static_cast<std::uint16_t>((all >> 16) & 0x8000);
    std::uint32_t half = 0;
    if (magnitude > infinity) {
      half = 0x7e00;
    } else if (magnitude >= 0x477ff000) {  // 65520 and above round to infinity
      half = 0x7c00;
    } else if (magnitude < 0x38800000) {  // below 2^-14: a multiple of 2^-24, which adding 1/2 rounds to
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    } else {
      magnitude += 0xfff + ((magnitude >> 13) & 1);
      half = (magnitude - (112U << 23)) >> 13;  // the exponent's bias goes from 127 to 15
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1f;
    const std::uint32_t fraction = bits & 0x3ff;
    if (exponent == 0) {
      const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return sign == 0 ? magnitude : -magnitude;
    }
    const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
  }
};

/// bfloat16 by its bits: the upper half of a float.
struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  /// Rounds to nearest, ties to even. @param value  finite or not; a NaN stays one
  explicit Bfloat16(float value) {
    const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
    const bool nan = (all & 0x7fffffff) > 0x7f800000;
    bits = static_cast<std::uint16_t>(nan ? (all >> 16) | 0x40 : (all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

}  // namespace tawpipe
