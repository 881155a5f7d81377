// Tests of core/function_ref.hpp.
#include "tawpipe/core/function_ref.hpp"

#include <doctest/doctest.h>

#include <type_traits>

namespace {

int sum_of(tawpipe::FunctionRef<int(int)> of) { return of(1) + of(2); }

}  // namespace

TEST_CASE("a function reference calls what it refers to, and does not copy it") {
  int calls = 0;
  const auto twice = [&](int x) {
    ++calls;
    return 2 * x;
  };
  CHECK(sum_of(twice) == 6);
  CHECK(calls == 2);
  auto count = [state = 0](int x) mutable { return state += x; };
  CHECK(sum_of(count) == 1 + 3);
  CHECK(count(0) == 3);
  tawpipe::FunctionRef<int(int)> one = twice;
  const tawpipe::FunctionRef<int(int)> other = one;
  one = tawpipe::FunctionRef<int(int)>{count};
  CHECK(other(4) == 8);
  CHECK(one(1) == 4);
}

TEST_CASE("only what fits the signature is taken") {
  const auto text = [](const char*) { return 1; };
  static_assert(!std::is_convertible_v<decltype(text)&, tawpipe::FunctionRef<int(int)>>);
  const auto nothing = [](int) {};
  static_assert(!std::is_convertible_v<decltype(nothing)&, tawpipe::FunctionRef<int(int)>>);
  static_assert(std::is_convertible_v<decltype(nothing)&, tawpipe::FunctionRef<void(int)>>);
}
