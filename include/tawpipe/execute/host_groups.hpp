// Device groups of consecutive ranks from the host of each rank.
// Not: how hosts are found (execute/mpi/session.hpp, execute/cuda/session.hpp).
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

namespace tawpipe::inline v0 {

/// @param host_of  [rank] any value that is equal on one host
/// @param advice   how to make the launcher number ranks host by host
/// @throws InputError  if ranks are not numbered host by host, as groups require.
template <class Host>
void check_host_by_host(const std::vector<Host>& host_of, std::string_view advice) {
  for (std::size_t r = 1; r < host_of.size(); ++r) {
    const auto first = static_cast<std::size_t>(std::find(host_of.begin(), host_of.end(), host_of[r]) - host_of.begin());
    if (first != r && host_of[r - 1] != host_of[r]) {
      throw InputError(concat("ranks ", first, " and ", r, " are on one host and rank ", r - 1,
                              " is on another; ranks must be numbered host by host: ", advice));
    }
  }
}

/// The hosts as device groups; parameters and errors as for check_host_by_host().
template <class Host>
DeviceGroups host_groups(const std::vector<Host>& host_of, std::string_view advice) {
  check_host_by_host(host_of, advice);
  std::vector<std::int32_t> sizes;
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    if (r == 0 || host_of[r - 1] != host_of[r]) sizes.push_back(0);
    ++sizes.back();
  }
  return DeviceGroups{std::move(sizes)};
}

}  // namespace tawpipe
