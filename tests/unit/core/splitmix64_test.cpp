// Tests of core/splitmix64.hpp against the published generator's first numbers.
// Not: what is drawn with it.
#include "tawpipe/core/splitmix64.hpp"

#include <doctest/doctest.h>

TEST_CASE("a state of 0 begins the sequence of the published generator") {
  // Vigna's splitmix64.c with x = 0.
  static_assert(tawpipe::splitmix64(0) == 0xe220a8397b1dcdafU);
  static_assert(tawpipe::splitmix64(tawpipe::splitmix64_step) == 0x6e789e6aa1b965f4U);
  static_assert(tawpipe::splitmix64(2 * tawpipe::splitmix64_step) == 0x06c45d188009454fU);
  std::uint64_t state = 1234567;
  CHECK(tawpipe::splitmix64(state) == 6457827717110365317U);
  state += tawpipe::splitmix64_step;
  CHECK(tawpipe::splitmix64(state) == 3203168211198807973U);
}
