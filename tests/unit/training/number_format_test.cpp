// Tests of training/number_format.hpp: 16-bit floats bit by bit, and what does not convert.
// Not: files (safetensors_test.cpp).
#include "tawpipe/training/number_format.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "support/random.hpp"

using tawpipe::InputError;
using tawpipe::training::decode;
using tawpipe::training::encode;
using tawpipe::training::NumberFormat;

namespace {

std::uint16_t bits_of(NumberFormat format, double value) {
  std::uint16_t bits = 0;
  encode<double>(format, std::span{&value, 1}, std::as_writable_bytes(std::span{&bits, 1}));
  return bits;
}
double value_of(NumberFormat format, std::uint16_t bits) {
  double value = 0;
  decode<double>(format, std::as_bytes(std::span{&bits, 1}), std::span{&value, 1});
  return value;
}

/// Rounds |value| below infinity by definition: to a multiple of the spacing at its exponent, ties
/// to even.
double rounded(double value, int fraction_bits, int min_exponent) {
  int exponent = 0;
  std::frexp(value, &exponent);  // value = m 2^exponent with 1/2 <= m < 1
  const double spacing = std::ldexp(1.0, std::max(exponent - 1, min_exponent) - fraction_bits);
  return std::nearbyint(value / spacing) * spacing;
}

}  // namespace

TEST_CASE("16-bit floats have the values of their definition") {
  // binary16: 0x3c00 = 1, 0x3555 = 2^-2 (1 + 341/1024), 0x0001 = 2^-24, 0x7bff = 2^15 (2 - 2^-10),
  // 0xfc00 = -infinity
  CHECK(value_of(NumberFormat::f16, 0x3c00) == 1);
  CHECK(value_of(NumberFormat::f16, 0x3555) == 0.25 * (1 + 341.0 / 1024));
  CHECK(value_of(NumberFormat::f16, 0x8001) == -0x1p-24);
  CHECK(value_of(NumberFormat::f16, 0x7bff) == 65504);
  CHECK(value_of(NumberFormat::f16, 0xfc00) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(value_of(NumberFormat::f16, 0x7e00)));
  // bfloat16: the upper half of a float; 0x3f80 = 1, 0x4049 = 2 (1 + 73/128)
  CHECK(value_of(NumberFormat::bf16, 0x3f80) == 1);
  CHECK(value_of(NumberFormat::bf16, 0x4049) == 2 * (1 + 73.0 / 128));
}

TEST_CASE("all 65536 patterns of both 16-bit floats survive a double") {
  for (const NumberFormat format : {NumberFormat::f16, NumberFormat::bf16}) {
    int wrong = 0;
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const double value = value_of(format, bits);
      if (std::isnan(value) ? !std::isnan(value_of(format, bits_of(format, value))) : bits_of(format, value) != bits) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("doubles round to the nearest 16-bit float, ties to even, at once") {
  support::Random random{3};
  int wrong = 0;
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::ldexp(random.real(1, 2), random.between(-28, 14)) * (i % 2 == 0 ? 1 : -1);
    wrong += value_of(NumberFormat::f16, bits_of(NumberFormat::f16, value)) != rounded(value, 10, -14);
    wrong += value_of(NumberFormat::bf16, bits_of(NumberFormat::bf16, value)) != rounded(value, 7, -126);
  }
  CHECK(wrong == 0);
  // 1 + 2^-11 lies halfway between 1 and 1 + 2^-10: even is 1; a trace more rounds up, and must not
  // be lost in a float first
  CHECK(bits_of(NumberFormat::f16, 1 + 0x1p-11) == 0x3c00);
  CHECK(bits_of(NumberFormat::f16, 1 + 0x1p-11 + 0x1p-40) == 0x3c01);
  CHECK(bits_of(NumberFormat::bf16, 1 + 0x1p-8 + 0x1p-40) == 0x3f81);
  CHECK(bits_of(NumberFormat::f16, 65519.99) == 0x7bff);
  CHECK(bits_of(NumberFormat::f16, 65520) == 0x7c00);
  CHECK(bits_of(NumberFormat::f16, -1e300) == 0xfc00);
  CHECK(bits_of(NumberFormat::bf16, 3.4e38) == 0x7f80);
}

TEST_CASE("whole numbers convert where they fit") {
  const std::vector<std::uint16_t> tokens{0, 65535};
  std::vector<std::int32_t> wide(2);
  decode<std::int32_t>(NumberFormat::u16, std::as_bytes(std::span{tokens}), wide);
  CHECK(wide == std::vector<std::int32_t>{0, 65535});
  std::vector<std::int16_t> narrow(2);
  CHECK_THROWS_WITH_AS(decode<std::int16_t>(NumberFormat::u16, std::as_bytes(std::span{tokens}), narrow),
                       "it holds 65535, which is out of range here", InputError);
  std::vector<float> numbers(1);
  CHECK_THROWS_WITH_AS(decode<float>(NumberFormat::f8_e4m3, std::as_bytes(std::span{tokens}), numbers),
                       doctest::Contains("8-bit floats are not converted"), InputError);
}
