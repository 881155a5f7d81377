// Tests of schedules/detail/shard_layout.hpp: slices, shards and rails of equal and unequal nodes.
// Not: what travels along the rails (properties/sharded_test.cpp).
#include "tawpipe/schedules/detail/shard_layout.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using tawpipe::DeviceGroups;
using tawpipe::ParameterRange;
using tawpipe::Rank;
using tawpipe::schedules::detail::Fraction;
using tawpipe::schedules::detail::Run;
using tawpipe::schedules::detail::ShardLayout;

namespace {

/// How many of 5040 parameters in a row, which all the sizes below divide.
std::int64_t in_rail(const tawpipe::schedules::detail::Rail& rail) { return rail.of(5040).count(); }
std::int64_t in_slice(const ShardLayout& layout, int rank) { return parameters_in(layout.slice(rank, {Run{{0, 5040}}})); }
std::int64_t in_shard(const ShardLayout& layout, int rank) { return parameters_in(layout.shard(rank, {Run{{0, 5040}}})); }

/// Ranks as numbers.
std::vector<int> members(const tawpipe::schedules::detail::Rail& rail) {
  std::vector<int> ranks;
  for (const Rank rank : rail.members) ranks.push_back(number(rank));
  return ranks;
}

std::int64_t sum_of_rails(const ShardLayout& layout) {
  std::int64_t sum = 0;
  for (const auto& rail : layout.rails()) sum += in_rail(rail);
  return sum;
}

/// Whether parts of all ranks make up `runs` once; by number of times that each number is in one.
bool once(const std::vector<std::vector<ParameterRange>>& parts, const std::vector<Run>& runs) {
  std::vector<int> times(100, 0);
  for (const auto& part : parts) {
    for (const auto& range : part) {
      for (auto p = range.begin; p < range.end; ++p) ++times[static_cast<std::size_t>(p)];
    }
  }
  std::vector<int> expected(100, 0);
  for (const auto& range : numbers_of(runs)) {
    for (auto p = range.begin; p < range.end; ++p) ++expected[static_cast<std::size_t>(p)];
  }
  return times == expected;
}

}  // namespace

TEST_CASE("a fraction rounds down") {
  CHECK(Fraction{1, 3}.floor_of(10) == 3);
  CHECK(Fraction{2, 3}.floor_of(10) == 6);
}

TEST_CASE("nodes of one size: slices of 1/G, shards of 1/P, G rails, whichever way") {
  const DeviceGroups nodes = DeviceGroups::even(6, 2);
  for (const ShardLayout& layout : {ShardLayout::by_place(nodes), ShardLayout::by_slice(nodes)}) {
    REQUIRE(layout.rails().size() == 3);
    for (int place = 0; place < 3; ++place) {
      const auto& rail = layout.rails()[static_cast<std::size_t>(place)];
      CHECK(members(rail) == std::vector<int>{place, 3 + place});
      CHECK(in_rail(rail) == 1680);
      CHECK(rail.keeps == std::vector<char>{1, 1});
    }
    for (int r = 0; r < 6; ++r) {
      CHECK(in_slice(layout, r) == 1680);  // a third
      CHECK(in_shard(layout, r) == 840);   // a sixth
    }
  }
}

TEST_CASE("8+8+4 by place: shards of 1/20; a rank of the node of 4 stands for two places") {
  const ShardLayout layout = ShardLayout::by_place(DeviceGroups{{8, 8, 4}});
  REQUIRE(layout.rails().size() == 8);
  CHECK(members(layout.rails()[1]) == std::vector<int>{1, 9, 17});
  CHECK(members(layout.rails()[5]) == std::vector<int>{5, 13, 17});
  CHECK(layout.rails()[5].keeps == std::vector<char>{1, 1, 0});
  CHECK(in_rail(layout.rails()[1]) == 756);
  CHECK(in_rail(layout.rails()[5]) == 504);
  CHECK(in_slice(layout, 1) == 756);    // 3/20
  CHECK(in_slice(layout, 13) == 504);   // 2/20
  CHECK(in_slice(layout, 17) == 1260);  // 5/20
  CHECK(in_shard(layout, 17) == 252);   // 1/20
  CHECK(sum_of_rails(layout) == 5040);
}

TEST_CASE("8+8+4 by slice: slices of 1/8 and 1/4; each node holds a third of the shards") {
  const ShardLayout layout = ShardLayout::by_slice(DeviceGroups{{8, 8, 4}});
  REQUIRE(layout.rails().size() == 8);
  CHECK(members(layout.rails()[2]) == std::vector<int>{2, 10, 17});
  CHECK(members(layout.rails()[3]) == std::vector<int>{3, 11, 17});
  CHECK(in_slice(layout, 3) == 630);    // 1/8
  CHECK(in_slice(layout, 17) == 1260);  // 1/4
  CHECK(in_shard(layout, 3) == 210);    // 1/24
  CHECK(in_shard(layout, 17) == 420);   // 1/12
  CHECK(sum_of_rails(layout) == 5040);
}

TEST_CASE("sizes that do not divide each other are cut where any of them cuts") {
  // 3+2: cuts at 1/3, 1/2, 2/3
  const ShardLayout layout = ShardLayout::by_slice(DeviceGroups{{3, 2}});
  REQUIRE(layout.rails().size() == 4);
  CHECK(in_rail(layout.rails()[0]) == 1680);
  CHECK(in_rail(layout.rails()[1]) == 840);
  CHECK(members(layout.rails()[1]) == std::vector<int>{1, 3});
  CHECK(members(layout.rails()[2]) == std::vector<int>{1, 4});
  CHECK(sum_of_rails(layout) == 5040);
}

TEST_CASE("whatever the sizes, slices of a node and shards of all ranks make up each run once, however few parameters it has") {
  const std::vector<Run> runs{{{0, 61}, {64, 67}}, {{61, 64}}, {{80, 81}, {70, 79}}, {{90, 97}}};
  for (const DeviceGroups& nodes :
       {DeviceGroups{{8, 8, 4}}, DeviceGroups{{3, 2}}, DeviceGroups{{1, 4, 2}}, DeviceGroups{{5}}, DeviceGroups{{1}}}) {
    for (const ShardLayout& layout :
         {ShardLayout::by_place(nodes), ShardLayout::by_slice(nodes), ShardLayout::by_place(nodes).with_shards_by_rank()}) {
      std::vector<std::vector<ParameterRange>> shards;
      for (int g = 0; g < nodes.count(); ++g) {
        std::vector<std::vector<ParameterRange>> slices;
        for (const Rank rank : nodes.members(g)) {
          slices.push_back(layout.slice(number(rank), runs));
          shards.push_back(layout.shard(number(rank), runs));
        }
        CHECK(once(slices, runs));
      }
      CHECK(once(shards, runs));
    }
  }
}

TEST_CASE("3+2 by place: a rank of the node of 2 has the rails of two places, which lie apart, and keeps one fifth") {
  // of 10 parameters: rails of 2/5, 2/5 and 1/5; rank 3 stands for places 0 and 2, and is the
  // second keeper of rail 0
  const ShardLayout layout = ShardLayout::by_place(DeviceGroups{{3, 2}});
  CHECK(layout.slice(3, {Run{{0, 10}}}) == std::vector<ParameterRange>{{0, 4}, {8, 10}});
  CHECK(layout.shard(3, {Run{{0, 10}}}) == std::vector<ParameterRange>{{2, 4}});
  CHECK(layout.rails()[2].kept(10, 0) == ParameterRange{8, 10});
  CHECK(layout.rails()[2].kept(10, 1).count() == 0);
}

TEST_CASE("shards by rank are consecutive in the order of the ranks") {
  const ShardLayout layout = ShardLayout::by_place(DeviceGroups{{3, 2}}).with_shards_by_rank();
  CHECK(layout.shard(3, {Run{{0, 10}}}) == std::vector<ParameterRange>{{6, 8}});
  CHECK(layout.shard(3, {Run{{0, 10}}, Run{{20, 30}}}) == std::vector<ParameterRange>{{6, 8}, {26, 28}});
}

TEST_CASE("runs are padded so that all shards are equal multiples of 8, the last ones in part or whole padding") {
  const DeviceGroups nodes = DeviceGroups::even(6, 2);
  for (const ShardLayout& layout :
       {ShardLayout::by_place(nodes), ShardLayout::by_slice(nodes), ShardLayout::by_place(nodes).with_shards_by_rank()}) {
    CHECK(layout.padding(103) == 41);  // to 6 shards of 24
    const std::vector<Run> runs{{{100, 203}, {1000, 1041}}};
    for (int r = 0; r < 6; ++r) CHECK(parameters_in(layout.shard(r, runs)) == 24);
    for (int r = 0; r < 6; ++r) CHECK(parameters_in(layout.slice(r, runs)) == 48);
  }
  const ShardLayout by_rank = ShardLayout::by_place(nodes).with_shards_by_rank();
  const std::vector<Run> runs{{{100, 203}, {1000, 1041}}};
  CHECK(by_rank.shard(3, runs) == std::vector<ParameterRange>{{172, 196}});
  CHECK(by_rank.shard(4, runs) == std::vector<ParameterRange>{{196, 203}, {1000, 1017}});
  CHECK(by_rank.shard(5, runs) == std::vector<ParameterRange>{{1017, 1041}});
}

TEST_CASE("nodes of different sizes are padded for all their cuts; one rank, and nodes of very many sizes, not at all") {
  CHECK(ShardLayout::by_slice(DeviceGroups{{3, 2}}).padding(1) == 8 * 2 * 6 - 1);
  CHECK(ShardLayout::by_place(DeviceGroups{{3, 2}}).padding(1) == 8 * 5 - 1);
  CHECK(ShardLayout::by_place(DeviceGroups{{1}}).padding(1) == 0);
  CHECK(ShardLayout::by_slice(DeviceGroups{{2, 3, 5, 7, 11, 13, 17, 19, 23}}).padding(1) == 0);
  CHECK(ShardLayout::by_place(DeviceGroups::even(6, 2)).without_padding().padding(1) == 0);
}
