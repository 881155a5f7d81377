// Tests of core/growing_array.hpp: items stay in order over pieces, and the array is empty
// afterwards.
// Not: the memory it saves (bench/scale.cpp).
#include "tawpipe/core/growing_array.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

using tawpipe::GrowingArray;

namespace {

/// Large, so that few fill a piece.
struct Block {
  std::array<int, 1 << 20> numbers{};
};

}  // namespace

TEST_CASE("what was added is taken in order, as a vector of just that size") {
  GrowingArray<int> array;
  CHECK(array.size() == 0);
  CHECK(array.take().empty());
  for (int i = 0; i < 1000; ++i) array.push_back(i);
  CHECK(array.size() == 1000);
  CHECK(array[999] == 999);
  const std::vector<int> taken = array.take();
  REQUIRE(taken.size() == 1000);
  CHECK(taken.capacity() == 1000);
  for (int i = 0; i < 1000; ++i) CHECK(taken[static_cast<std::size_t>(i)] == i);
  CHECK(array.size() == 0);
  array.push_back(7);
  CHECK(array.take() == std::vector<int>{7});
}

TEST_CASE("items of several pieces are found and taken in order") {
  static_assert(GrowingArray<Block>::piece_items == 8);
  GrowingArray<Block> array;
  Block block;
  for (int i = 0; i < 10; ++i) {
    block.numbers[5] = i;
    array.push_back(block);
    CHECK(array.size() == static_cast<std::size_t>(i) + 1);
  }
  for (std::size_t i = 0; i < 10; ++i) CHECK(array[i].numbers[5] == static_cast<int>(i));
  const std::vector<Block> taken = array.take();
  REQUIRE(taken.size() == 10);
  CHECK(taken.capacity() == 10);
  for (std::size_t i = 0; i < 10; ++i) CHECK(taken[i].numbers[5] == static_cast<int>(i));
  CHECK(array.size() == 0);
}

TEST_CASE("room for the items is one piece, and items beyond it follow in others") {
  static const Block none{};  // a stack holds one of these, not five
  GrowingArray<Block> array;
  array.push_back(none);
  array.reserve(10);
  for (int i = 1; i < 10; ++i) array.push_back(none);
  CHECK(array.size() == 10);
  const Block* const first = &array[0];
  for (int i = 10; i < 20; ++i) {
    array.push_back(none);
    array.push_back(none);
  }
  CHECK(array.size() == 30);
  CHECK(&array[9] == first + 9);
  std::vector<Block> taken = array.take();
  CHECK(taken.size() == 30);
  CHECK(taken.capacity() == 30);
  // taken as it is where there is nothing else
  array.reserve(10);
  for (int i = 0; i < 10; ++i) array.push_back(none);
  const Block* const kept = &array[0];
  taken = array.take();
  CHECK(taken.size() == 10);
  CHECK(taken.data() == kept);
}

TEST_CASE("less room than a piece is no limit") {
  GrowingArray<int> array;
  array.reserve(3);
  for (int i = 0; i < 100; ++i) array.push_back(i);
  CHECK(array.size() == 100);
  CHECK(array[99] == 99);
  CHECK(array.take().size() == 100);
}
