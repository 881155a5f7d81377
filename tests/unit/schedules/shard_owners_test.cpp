// Tests of schedules/shard_owners.hpp: who owns which shard, and who receives it elsewhere.
// Not: how shards travel (schedules/tawpipe_test.cpp).
#include "tawpipe/schedules/shard_owners.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using tawpipe::DeviceGroups;
using tawpipe::placements::interleaved;

namespace {

std::vector<int> owners(int shards, const std::vector<std::int32_t>& groups) {
  const auto placement = interleaved(shards, DeviceGroups{groups});
  CHECK(placement.shards() == shards);
  std::vector<int> all;
  for (int k = 0; k < shards; ++k) all.push_back(placement.owner(k));
  return all;
}

}  // namespace

TEST_CASE("the paper's example: six shards on two groups of three") { CHECK(owners(6, {3, 3}) == std::vector{0, 3, 1, 4, 2, 5}); }

TEST_CASE("in D equal groups of G the owner of shard k is (k mod D) G + k div D") {
  for (int d = 1; d <= 6; ++d) {
    for (int g = 1; g <= 6; ++g) {
      const auto placement = interleaved(d * g, DeviceGroups::even(d * g, d));
      for (int k = 0; k < d * g; ++k) CHECK(placement.owner(k) == k % d * g + k / d);
    }
  }
}

TEST_CASE("a full group drops out of the turn") {
  // groups 0-2, 3-4, 5: first place of each, second where there is one, third of the first
  CHECK(owners(6, {3, 2, 1}) == std::vector{0, 3, 5, 1, 4, 2});
  CHECK(owners(4, {1, 3}) == std::vector{0, 1, 2, 3});
}

TEST_CASE("more shards than devices start a new deal, fewer leave devices empty") {
  CHECK(owners(6, {2, 2}) == std::vector{0, 2, 1, 3, 0, 2});
  CHECK(owners(3, {2, 2}) == std::vector{0, 2, 1});
}

TEST_CASE("a shard is received at its owner's place, wrapped in smaller groups") {
  const auto placement = interleaved(6, DeviceGroups{{3, 2, 1}});
  CHECK(placement.staging(0, 1) == 3);  // owner 0: place 0
  CHECK(placement.staging(3, 1) == 4);  // owner 1: place 1
  CHECK(placement.staging(5, 1) == 3);  // owner 2: place 2, in a group of two place 0
  CHECK(placement.staging(5, 2) == 5);
  CHECK(placement.staging(4, 0) == 1);  // owner 4: place 1 of group 1
}
