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
