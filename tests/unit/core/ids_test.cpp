// Tests of core/ids.hpp.
// Not: what the ids name.
#include "tawpipe/core/ids.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>

using tawpipe::NodeId;
using tawpipe::Rank;
using tawpipe::TaskId;

TEST_CASE("an id is no number and no other id") {
  static_assert(!std::is_convertible_v<int, Rank>);
  static_assert(!std::is_convertible_v<Rank, int>);
  static_assert(!std::is_convertible_v<Rank, NodeId>);
  static_assert(tawpipe::IdType<Rank>);
  static_assert(!tawpipe::IdType<int>);
  static_assert(sizeof(TaskId) == 4);
  CHECK(tawpipe::id<Rank>(std::size_t{7}) == Rank{7});
  CHECK(index(Rank{7}) == 7);
  CHECK(number(Rank{7}) == 7);
  CHECK(Rank{3} < Rank{4});
}

TEST_CASE("the id of nothing is below all others") {
  CHECK(tawpipe::none<Rank> < Rank{0});
  CHECK(number(tawpipe::none<TaskId>) == -1);
}
