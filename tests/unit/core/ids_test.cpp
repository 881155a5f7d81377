// Tests of core/ids.hpp and core/id_vector.hpp.
// Not: what the ids name.
#include "tawpipe/core/ids.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "tawpipe/core/id_vector.hpp"

using tawpipe::IdVector;
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

TEST_CASE("a vector takes its own kind of id and hands out the next") {
  IdVector<Rank, int> numbers(2, 5);
  CHECK(numbers[Rank{1}] == 5);
  CHECK(numbers.push_back(6) == Rank{2});
  numbers[Rank{0}] = 4;
  CHECK(numbers.items() == std::vector{4, 5, 6});
  CHECK(numbers.size() == 3);
  int sum = 0;
  for (const int value : numbers) sum += value;
  CHECK(sum == 15);
  numbers.resize(5, 1);
  CHECK(numbers[Rank{4}] == 1);
  const IdVector<Rank, int> same{std::vector{4, 5, 6, 1, 1}};
  CHECK(same == numbers);
  CHECK(same[Rank{2}] == 6);
  CHECK(IdVector<TaskId, int>{}.empty());
}
