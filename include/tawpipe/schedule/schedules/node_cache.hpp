// How many foreign shards a node keeps for the rest of an iteration, and which.
// Not: how kept shards change the messages (schedule/schedules/tawpipe.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/placement/interleaved.hpp"

namespace tawpipe::schedules {

/// What a node cache may take.
struct NodeCache {
  enum class Limit : std::uint8_t {
    shards,  ///< `shards` of all shards
    bytes,   ///< as many as take at most `bytes` on each device
    all,     ///< every shard
    fit,     ///< as many as the device's memory holds beside everything else
  };
  Limit limit = Limit::shards;
  int shards = 0;
  Bytes bytes{};
};

}  // namespace tawpipe::schedules

namespace tawpipe::schedules::detail {

/// The shards in the order in which they are cached: those of one group's owners before the next group's, so that the
/// staging ranks of the other groups, which keep the copies, fill evenly.
inline std::vector<int> cache_order(const placements::Interleaved& placement, const DeviceGroups& groups) {
  std::vector<int> order(static_cast<std::size_t>(placement.shards()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return groups.group_of(placement.owner(a)) < groups.group_of(placement.owner(b)); });
  return order;
}

/// How many shards, in cache_order(), can be kept with at most `left[rank]` more bytes on each rank.
/// @param bytes  [shard] of a copy and its gradient
inline int cached_within(const placements::Interleaved& placement, const DeviceGroups& groups, const std::vector<Bytes>& bytes,
                         std::vector<Bytes> left) {
  int count = 0;
  for (const int shard : cache_order(placement, groups)) {
    for (int g = 0; g < groups.count(); ++g) {
      if (g == groups.group_of(placement.owner(shard))) continue;
      Bytes& room = left[static_cast<std::size_t>(placement.staging(shard, g))];
      room -= bytes[static_cast<std::size_t>(shard)];
      if (room < Bytes{}) return count;
    }
    ++count;
  }
  return count;
}

}  // namespace tawpipe::schedules::detail
