// Numbers from text: what is one, and what messages say of what is not one.
#include "tawpipe/core/parse_number.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>

#include "tawpipe/core/error.hpp"

using tawpipe::InputError;
using tawpipe::to_number;

TEST_CASE("a text is a number as a whole or not at all") {
  CHECK(to_number<int>("42") == 42);
  CHECK(to_number<int>("-42") == -42);
  CHECK(to_number<double>("2.5e3") == 2500);
  for (const char* wrong : {"", " 1", "1 ", "+1", "1x", "0x10", "99999999999999999999", "one", "1.5"}) {
    CAPTURE(wrong);
    CHECK_FALSE(to_number<std::int64_t>(wrong).has_value());
  }
  for (const char* wrong : {"", "inf", "-inf", "nan", "infinity", "1e999", "1,5", ".", "1e"}) {
    CAPTURE(wrong);
    CHECK_FALSE(to_number<double>(wrong).has_value());
  }
}

TEST_CASE("a number may be taken from the front of a text") {
  std::string_view text = "12GiB";
  CHECK(tawpipe::take_number<int>(text) == 12);
  CHECK(text == "GiB");
  CHECK_FALSE(tawpipe::take_number<int>(text).has_value());
  CHECK(text == "GiB");
}

TEST_CASE("a message says what was given and what would be right") {
  CHECK(tawpipe::parse_whole("8", "--ranks", 1, 8) == 8);
  for (const char* wrong : {"0", "9", "x", ""}) {
    const std::string expected = tawpipe::concat("--ranks must be a whole number from 1 to 8, not '", wrong, "'");
    CHECK_THROWS_WITH_AS(tawpipe::parse_whole(wrong, "--ranks", 1, 8), expected.c_str(), InputError);
  }
  CHECK(tawpipe::parse_fraction("0.5", "--part") == 0.5);
  CHECK(tawpipe::parse_fraction("1", "--part") == 1);
  for (const char* wrong : {"0", "1.01", "nan", "50%"}) {
    const std::string expected =
        tawpipe::concat("--part must be a fraction above 0 and at most 1, such as 0.45, not '", wrong, "'");
    CHECK_THROWS_WITH_AS(tawpipe::parse_fraction(wrong, "--part"), expected.c_str(), InputError);
  }
}
