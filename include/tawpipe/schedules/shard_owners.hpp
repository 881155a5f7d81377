// TawPipe's device-bound storage: shards dealt to the groups in turn, with one owner each.
// Not: how shards travel (schedules/tawpipe.hpp).
#pragma once

#include <utility>
#include <vector>

#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::placements {

/// Which rank owns each shard, and its staging rank in another group.
class Interleaved {
 public:
  Interleaved(std::vector<int> owners, DeviceGroups groups) : owners_{std::move(owners)}, groups_{std::move(groups)} {}

  int shards() const { return static_cast<int>(owners_.size()); }
  /// The rank that holds the shard, its gradient and its optimizer state.
  int owner(int shard) const { return owners_[static_cast<std::size_t>(shard)]; }
  /// The rank of `group`, not the owner's, that receives the shard: the one at the owner's index,
  /// wrapped in smaller groups.
  int staging(int shard, int group) const {
    const int home = groups_.group_of(owner(shard));
    const int place = owner(shard) - groups_.first(home);
    return groups_.first(group) + place % groups_.size(group);
  }

 private:
  std::vector<int> owners_;
  DeviceGroups groups_;
};

/// Deals `shards` to the groups in turn: in D equal groups of G the owner of shard k is (k mod D) *
/// G + k div D. A group whose devices all have one is skipped until every device has one; then a
/// new round starts.
/// Source: arXiv:2511.09741, device-bound storage.
inline Interleaved interleaved(int shards, const DeviceGroups& groups) {
  std::vector<int> owners;
  while (static_cast<int>(owners.size()) < shards) {
    for (int place = 0; place < groups.largest(); ++place) {
      for (int g = 0; g < groups.count() && static_cast<int>(owners.size()) < shards; ++g) {
        if (place < groups.size(g)) owners.push_back(groups.first(g) + place);
      }
    }
  }
  return {std::move(owners), groups};
}

}  // namespace tawpipe::placements
