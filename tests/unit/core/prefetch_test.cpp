// Tests of core/prefetch.hpp.
#include "tawpipe/core/prefetch.hpp"

#include <doctest/doctest.h>

TEST_CASE("loading ahead changes nothing, and an address that cannot be read does no harm") {
  const int number = 7;
  tawpipe::detail::prefetch(&number);
  tawpipe::detail::prefetch(nullptr);
  CHECK(number == 7);
}
