// The location of each rank's GPU, which others it reaches by NVLink, and the device groups that
// follow.
// Not: how that is detected (nvlink.hpp, session.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/host_groups.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::cuda {

/// A rank's GPU.
struct GpuPlace {
  std::string host;  ///< as in Introduction::host
  std::string gpu;   ///< its UUID; empty: unknown
  /// GPUs that it reaches by NVLink, directly or through a switch; not itself
  std::vector<std::string> reaches;

  bool operator==(const GpuPlace&) const = default;
};

namespace detail {

/// [rank] the lowest rank of its island: the ranks of one host that NVLink connects, possibly
/// through others. A host on which it connects no two ranks is one island: the connection that its
/// GPUs use instead is the same for all.
inline std::vector<std::size_t> islands(const std::vector<GpuPlace>& ranks) {
  std::vector<std::size_t> island(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) island[r] = r;
  const auto join = [&](std::size_t a, std::size_t b) {
    const std::size_t low = std::min(island[a], island[b]);
    const std::size_t high = std::max(island[a], island[b]);
    std::replace(island.begin(), island.end(), high, low);
  };
  const auto reaches = [&](std::size_t a, std::size_t b) {
    const auto& all = ranks[a].reaches;
    return !ranks[b].gpu.empty() && std::find(all.begin(), all.end(), ranks[b].gpu) != all.end();
  };
  std::vector<std::string_view> linked;  // hosts
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (ranks[a].host != ranks[b].host || !(reaches(a, b) || reaches(b, a))) continue;
      join(a, b);
      linked.push_back(ranks[a].host);
    }
  }
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool one_host = ranks[a].host == ranks[b].host;
      if (one_host && std::find(linked.begin(), linked.end(), ranks[a].host) == linked.end()) join(a, b);
    }
  }
  return island;
}

/// "ranks 0-2, 5 of a": those of one island.
inline std::string words(const std::vector<GpuPlace>& ranks, const std::vector<std::size_t>& island, std::size_t which) {
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin < ranks.size(); ++begin) {
    if (island[begin] != which) continue;
    std::size_t last = begin;
    while (last + 1 < ranks.size() && island[last + 1] == which) ++last;
    runs.push_back(last == begin ? std::to_string(begin) : concat(begin, "-", last));
    begin = last;
  }
  return concat("ranks ", join(runs, ", "), " of ", one_line(ranks[which].host));
}

}  // namespace detail

/// The locations of ranks, group by group, as text: "ranks 0-3 of a; ranks 4-7 of a".
inline std::string describe(const std::vector<GpuPlace>& ranks) {
  const std::vector<std::size_t> island = detail::islands(ranks);
  std::vector<std::string> all;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (island[r] == r) all.push_back(detail::words(ranks, island, r));
  }
  return join(all, "; ");
}

/// Groups of ranks with fast connections: those of a host that NVLink connects, or all of a host if
/// it connects none.
/// @param ranks   [rank]
/// @param advice  how to make the launcher number ranks host by host
/// @throws InputError  if the ranks of a host, or of a group, are not consecutive, as groups
/// require: lists the locations.
/// Complexity: O(ranks^2 * GPUs of a host).
inline DeviceGroups link_groups(const std::vector<GpuPlace>& ranks, std::string_view advice) {
  std::vector<std::string> hosts;
  for (const GpuPlace& one : ranks) hosts.push_back(one.host);
  check_host_by_host(hosts, advice);
  const std::vector<std::size_t> island = detail::islands(ranks);
  std::vector<std::int32_t> sizes;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (island[r] == r) {
      sizes.push_back(1);
    } else if (island[r] == island[r - 1]) {
      ++sizes.back();
    } else {
      throw InputError(concat("groups are of consecutive ranks, and NVLink connects ", describe(ranks),
                              "; order the GPUs so by CUDA_VISIBLE_DEVICES, or give the groups"));
    }
  }
  return DeviceGroups{std::move(sizes)};
}

}  // namespace tawpipe::cuda
