// Tests of schedule/schedules/detail/shard_layout.hpp: slices, shards and rails of equal and unequal nodes.
// Not: what travels along the rails (properties/sharded_test.cpp).
#include "tawpipe/schedule/schedules/detail/shard_layout.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using tawpipe::DeviceGroups;
using tawpipe::Rank;
using tawpipe::schedules::detail::Fraction;
using tawpipe::schedules::detail::ShardLayout;

namespace {

bool same(const Fraction& a, std::int64_t part, std::int64_t whole) { return a.part * whole == part * a.whole; }

/// Ranks as numbers.
std::vector<int> members(const tawpipe::schedules::detail::Rail& rail) {
  std::vector<int> ranks;
  for (const Rank rank : rail.members) ranks.push_back(number(rank));
  return ranks;
}

/// Of 5040 parameters, which all the sizes below divide.
std::int64_t sum_of_rails(const ShardLayout& layout) {
  std::int64_t sum = 0;
  for (const auto& rail : layout.rails()) sum += rail.share.floor_of(5040);
  return sum;
}

}  // namespace

TEST_CASE("a fraction rounds down and up") {
  CHECK(Fraction{1, 3}.floor_of(10) == 3);
  CHECK(Fraction{1, 3}.ceil_of(10) == 4);
  CHECK(Fraction{2, 3}.ceil_of(9) == 6);
}

TEST_CASE("nodes of one size: slices of 1/G, shards of 1/P, G rails, whichever way") {
  const DeviceGroups nodes = DeviceGroups::even(6, 2);
  for (const ShardLayout& layout : {ShardLayout::by_place(nodes), ShardLayout::by_slice(nodes)}) {
    REQUIRE(layout.rails().size() == 3);
    for (int place = 0; place < 3; ++place) {
      const auto& rail = layout.rails()[static_cast<std::size_t>(place)];
      CHECK(members(rail) == std::vector<int>{place, 3 + place});
      CHECK(same(rail.share, 1, 3));
      CHECK(rail.keeps == std::vector<char>{1, 1});
    }
    for (int r = 0; r < 6; ++r) {
      CHECK(same(layout.slice(r), 1, 3));
      CHECK(same(layout.shard(r), 1, 6));
    }
  }
}

TEST_CASE("8+8+4 by place: shards of 1/20; a rank of the node of 4 stands for two places") {
  const ShardLayout layout = ShardLayout::by_place(DeviceGroups{{8, 8, 4}});
  REQUIRE(layout.rails().size() == 8);
  CHECK(members(layout.rails()[1]) == std::vector<int>{1, 9, 17});
  CHECK(members(layout.rails()[5]) == std::vector<int>{5, 13, 17});
  CHECK(layout.rails()[5].keeps == std::vector<char>{1, 1, 0});
  CHECK(same(layout.rails()[1].share, 3, 20));
  CHECK(same(layout.rails()[5].share, 2, 20));
  CHECK(same(layout.slice(1), 3, 20));
  CHECK(same(layout.slice(13), 2, 20));
  CHECK(same(layout.slice(17), 5, 20));
  CHECK(same(layout.shard(17), 1, 20));
  CHECK(sum_of_rails(layout) == 5040);
}

TEST_CASE("8+8+4 by slice: slices of 1/8 and 1/4; each node holds a third of the shards") {
  const ShardLayout layout = ShardLayout::by_slice(DeviceGroups{{8, 8, 4}});
  REQUIRE(layout.rails().size() == 8);
  CHECK(members(layout.rails()[2]) == std::vector<int>{2, 10, 17});
  CHECK(members(layout.rails()[3]) == std::vector<int>{3, 11, 17});
  CHECK(same(layout.slice(3), 1, 8));
  CHECK(same(layout.slice(17), 1, 4));
  CHECK(same(layout.shard(3), 1, 24));
  CHECK(same(layout.shard(17), 1, 12));
  CHECK(sum_of_rails(layout) == 5040);
}

TEST_CASE("sizes that do not divide each other are cut where any of them cuts") {
  // 3+2: cuts at 1/3, 1/2, 2/3
  const ShardLayout layout = ShardLayout::by_slice(DeviceGroups{{3, 2}});
  REQUIRE(layout.rails().size() == 4);
  CHECK(same(layout.rails()[0].share, 1, 3));
  CHECK(same(layout.rails()[1].share, 1, 6));
  CHECK(members(layout.rails()[1]) == std::vector<int>{1, 3});
  CHECK(members(layout.rails()[2]) == std::vector<int>{1, 4});
  CHECK(sum_of_rails(layout) == 5040);
}
