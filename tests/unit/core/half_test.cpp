// Rounding to 16 bits: ties to even, the ends of the range, and back.
// Not: files (training/number_format_test.cpp).
#include "tawpipe/core/half.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using tawpipe::Bfloat16;
using tawpipe::Half;

namespace {

float through_half(float x) { return static_cast<float>(Half{x}); }
float through_bfloat16(float x) { return static_cast<float>(Bfloat16{x}); }

}  // namespace

TEST_CASE("every number of 16 bits survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    Bfloat16 brain;
    brain.bits = half.bits;
    if (!std::isnan(static_cast<float>(half))) CHECK(Half{static_cast<float>(half)}.bits == bits);
    if (!std::isnan(static_cast<float>(brain))) CHECK(Bfloat16{static_cast<float>(brain)}.bits == bits);
  }
}

TEST_CASE("rounding is to nearest, ties to even") {
  CHECK(through_half(1 + 0x1p-11F) == 1);                // half way to 1 + 2^-10
  CHECK(through_half(1 + 3 * 0x1p-11F) == 1 + 0x1p-9F);  // half way, the upper is even
  CHECK(through_half(65519.0F) == 65504);                // below half way to 65536
  CHECK(std::isinf(through_half(65520.0F)));             // half way: infinity is even
  CHECK(through_half(0x1p-25F) == 0);                    // half of the least
  CHECK(through_half(0x1.8p-25F) == 0x1p-24F);
  CHECK(through_bfloat16(1 + 0x1p-8F) == 1);
  CHECK(through_bfloat16(1 + 3 * 0x1p-8F) == 1 + 0x1p-6F);
  CHECK(std::isnan(through_half(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(through_bfloat16(std::numeric_limits<float>::quiet_NaN())));
}
