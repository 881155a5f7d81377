// From which host each rank is on to groups of consecutive ranks.
// Not: how that is found out (execute/mpi/session.hpp, execute/cuda/session.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe {

/// The hosts as device groups. @param host_of  [rank] anything that is equal on one host
/// @param advice  how the launcher is told to number ranks host by host
/// @throws InputError  if ranks are not numbered host by host, as groups need it.
template <class Host>
DeviceGroups host_groups(const std::vector<Host>& host_of, std::string_view advice) {
  std::vector<std::int32_t> sizes;
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    const auto first = static_cast<std::size_t>(std::find(host_of.begin(), host_of.end(), host_of[r]) - host_of.begin());
    if (first == r) {
      sizes.push_back(1);
    } else if (host_of[r - 1] == host_of[r]) {
      ++sizes.back();
    } else {
      throw InputError(concat("ranks ", first, " and ", r, " are on one host and rank ", r - 1,
                              " is on another; ranks must be numbered host by host: ", advice));
    }
  }
  return DeviceGroups{std::move(sizes)};
}

}  // namespace tawpipe
