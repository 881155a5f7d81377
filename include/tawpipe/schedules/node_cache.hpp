// How many shards of other nodes a node keeps for the rest of an iteration, and which.
// Not: how kept shards change the messages (schedules/tawpipe.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/shard_owners.hpp"

namespace tawpipe::inline v0::schedules {

/// The limit of a node cache.
struct NodeCache {
  enum class Limit : std::uint8_t {
    shards,  ///< `shards` of all shards
    bytes,   ///< as many as fit in `bytes` on each device
    all,     ///< every shard
    fit,     ///< as many as the device's memory holds in addition to everything else
  };
  Limit limit = Limit::shards;
  int shards = 0;
  Bytes bytes{};

  /// Whether no shard is kept.
  bool is_off() const { return limit == Limit::shards && shards == 0; }

  static std::string values() { return "N|SIZE|all|auto"; }
  static std::string expected() { return "a number of shards, a size a device such as 4GiB, all, or auto"; }
  std::string text() const {
    switch (limit) {
      case Limit::shards:
        return std::to_string(shards);
      case Limit::bytes:
        return OptionText<Bytes>::text(bytes);
      case Limit::all:
        return "all";
      case Limit::fit:
        break;
    }
    return "auto";
  }
  static std::optional<NodeCache> parse(std::string_view text) {
    if (text == "all") return NodeCache{.limit = Limit::all};
    if (text == "auto") return NodeCache{.limit = Limit::fit};
    if (const std::optional<int> shards = WholeRange{}.parse(text)) return NodeCache{.shards = *shards};
    if (const std::optional<Bytes> bytes = OptionText<Bytes>::parse(text))
      return NodeCache{.limit = Limit::bytes, .bytes = *bytes};
    return std::nullopt;
  }
};

}  // namespace tawpipe::schedules

namespace tawpipe::inline v0::schedules::detail {

/// The shards in the order in which they are cached: those of one group's owners before the next
/// group's, so that the staging ranks of the other groups, which keep the copies, fill evenly.
inline std::vector<int> cache_order(const placements::Interleaved& placement, const DeviceGroups& groups) {
  std::vector<int> order(static_cast<std::size_t>(placement.shards()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return groups.group_of(placement.owner(a)) < groups.group_of(placement.owner(b)); });
  return order;
}

/// How many shards, in cache_order(), can be kept with at most `left[rank]` additional bytes on
/// each rank.
/// @param bytes  [shard] bytes of a copy and its gradient
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

/// How many shards `cache` allows.
/// @param microbatches   [rank] in flight at a time
/// @param builder        has the stages and all other buffers
/// @param device_memory  of the smallest device; used by Limit::fit only
/// @throws InputError  if there are fewer shards.
inline int cached_shards(const NodeCache& cache, const placements::Interleaved& placement, const DeviceGroups& groups,
                         const std::vector<int>& microbatches, const ScheduleBuilder& builder, Bytes device_memory) {
  const Workload& workload = builder.workload();
  const int shards = placement.shards();
  if (cache.limit == NodeCache::Limit::all) return shards;
  if (cache.limit == NodeCache::Limit::shards) {
    if (cache.shards < 0 || cache.shards > shards) {
      throw InputError(
          concat("tawpipe: node-cache=", cache.shards, " is impossible with ", shards, " shards; choose 0 to ", shards));
    }
    return cache.shards;
  }
  std::vector<Bytes> left(static_cast<std::size_t>(groups.ranks()), cache.bytes);
  if (cache.limit == NodeCache::Limit::fit) {
    if (device_memory <= Bytes{}) return shards;  // fixed costs: no memory is counted
    // In addition to its buffers a rank holds the activations of its microbatches, for all shards
    // between forward and backward.
    Bytes saved;
    for (const StageWork& work : builder.stages()) saved += work.saved;
    for (std::size_t r = 0; r < left.size(); ++r) left[r] = device_memory - saved * microbatches[r];
    for (const Buffer& buffer : builder.buffers()) left[index(buffer.rank)] -= buffer.bytes;
  }
  std::vector<Bytes> bytes;
  for (const StageWork& work : builder.stages()) {
    bytes.push_back(weight_bytes(workload, work.parameters) + gradient_bytes(workload, work.parameters));
  }
  return cached_within(placement, groups, bytes, std::move(left));
}

}  // namespace tawpipe::schedules::detail
