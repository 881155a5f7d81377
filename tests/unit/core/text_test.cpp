// Tests of core/text.hpp and core/error.hpp.
// Not: the wording of any one message.
#include "tawpipe/core/text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"

using tawpipe::concat;
using tawpipe::edit_distance;
using tawpipe::nearest;
using tawpipe::unknown_name;

TEST_CASE("text and numbers are joined") {
  CHECK(concat("rank ", 3, " of ", 8L) == "rank 3 of 8");
  CHECK(concat(std::string{"a"}, std::string_view{"b"}, 'c') == "abc");
  CHECK(concat() == "");
  CHECK(concat(-1) == "-1");
  CHECK(tawpipe::quote("x y") == "'x y'");
  CHECK(tawpipe::join({}, ", ") == "");
  CHECK(tawpipe::join({"a", "b", "c"}, ", ") == "a, b, c");
}

TEST_CASE("a message stays on one line whatever it quotes") {
  CHECK(tawpipe::one_line("a\nb\tc\x1b[0m") == "a?b?c?[0m");
  CHECK(tawpipe::one_line("plain, with umlauts: \xc3\xa4") == "plain, with umlauts: \xc3\xa4");
}

TEST_CASE("edit distance counts insertions, deletions and substitutions") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("gpipe", "pipe") == 1);
}

TEST_CASE("the nearest name is offered only where it is near") {
  CHECK(nearest("tawpip", {"tawpipe", "weipipe", "fsdp"}) == "tawpipe");
  CHECK(nearest("wiepipe", {"tawpipe", "weipipe", "fsdp"}) == "weipipe");
  CHECK(nearest("zzzzzzzzzz", {"tawpipe", "fsdp"}) == "");
  CHECK(nearest("x", {}) == "");
}

TEST_CASE("an unknown name says what is wrong, what may be meant, and what exists") {
  CHECK(unknown_name("schedule", "tawpip", {"tawpipe", "fsdp"}) ==
        "unknown schedule 'tawpip'; did you mean 'tawpipe'? Known: tawpipe, fsdp");
  CHECK(unknown_name("schedule", "zzzzzzzzzzzz", {"tawpipe", "fsdp"}) == "unknown schedule 'zzzzzzzzzzzz'; known: tawpipe, fsdp");
  std::vector<std::string> many;
  for (int i = 100; i < 131; ++i) many.push_back("n" + std::to_string(i));
  CHECK(
      unknown_name("model", "n11", many) ==
      "unknown model 'n11'; did you mean 'n101'? Known: n101, n110, n111, n112, n113, n114, n115, n116, n117, n118 and 21 more");
}

TEST_CASE("every error is one of ours and of the standard library") {
  CHECK_THROWS_AS(throw tawpipe::InputError("x"), tawpipe::Error);
  CHECK_THROWS_AS(throw tawpipe::ScheduleError("x"), tawpipe::Error);
  CHECK_THROWS_AS(throw tawpipe::DeviceError("x"), std::runtime_error);
  CHECK(std::string{tawpipe::InputError("what is wrong").what()} == "what is wrong");
}
