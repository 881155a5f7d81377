// Consecutive ranks in groups, equal or not: the nodes of a cluster, or groups that a schedule uses
// instead.
// Not: a communicator of arbitrary ranks (schedule/schedule.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// Ranks 0 .. ranks()-1 cut into consecutive groups. `DeviceGroups{{8, 8, 4}}` are three unequal
/// ones.
class DeviceGroups {
 public:
  /// @param sizes  [group] devices of each. @throws InputError  if empty or a size is below one.
  explicit DeviceGroups(std::vector<std::int32_t> sizes) {
    if (sizes.empty()) throw InputError("device groups need at least one group");
    for (const auto size : sizes) {
      if (size < 1) throw InputError(concat("a device group of ", size, " devices is impossible; each needs at least one"));
      for (std::int32_t i = 0; i < size; ++i) group_of_.push_back(static_cast<std::int32_t>(first_.size()));
      first_.push_back(static_cast<std::int32_t>(group_of_.size()) - size);
    }
  }

  /// `ranks` cut into `groups`, as evenly as possible. @throws InputError  if there are more groups
  /// than ranks.
  static DeviceGroups even(int ranks, int groups) {
    if (groups < 1 || groups > ranks) {
      throw InputError(concat(groups, " groups cannot be cut from ", ranks, " ranks; choose 1 to ", ranks));
    }
    std::vector<std::int32_t> sizes;
    const auto first = [&](std::int64_t group) { return static_cast<std::int32_t>(group * ranks / groups); };
    for (int g = 0; g < groups; ++g) sizes.push_back(first(g + 1) - first(g));
    return DeviceGroups{sizes};
  }

  int ranks() const { return static_cast<int>(group_of_.size()); }
  int count() const { return static_cast<int>(first_.size()); }
  int group_of(int rank) const { return group_of_[static_cast<std::size_t>(rank)]; }
  int first(int group) const { return first_[static_cast<std::size_t>(group)]; }
  int size(int group) const { return (group + 1 < count() ? first(group + 1) : ranks()) - first(group); }
  int largest() const {
    int largest = 0;
    for (int g = 0; g < count(); ++g) largest = std::max(largest, size(g));
    return largest;
  }
  std::vector<Rank> members(int group) const {
    std::vector<Rank> ranks;
    for (int i = 0; i < size(group); ++i) ranks.push_back(Rank{first(group) + i});
    return ranks;
  }

  bool operator==(const DeviceGroups&) const = default;

 private:
  std::vector<std::int32_t> group_of_;
  std::vector<std::int32_t> first_;
};

}  // namespace tawpipe
