// The collectives of stages that ranks share, where all ranks' memory is in one process.
// Not: messages between processes (execute/mpi/lanes.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::host {

/// to[i] = to[i] combined with from[i]. @pre for Combine::softmax `count` is a multiple of 3
template <class T>
void combine(Combine how, T* to, const T* from, std::int64_t count) {
  if (how == Combine::sum) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
    return;
  }
  for (std::int64_t i = 0; i < count; i += 3) {
    const T most = std::max(to[i], from[i]);
    to[i + 1] = to[i + 1] * std::exp(to[i] - most) + from[i + 1] * std::exp(from[i] - most);
    to[i + 2] += from[i + 2];
    to[i] = most;
  }
}

/// One all_gather, reduce_scatter or all_reduce; sums are formed in the order of the members.
/// @param ends  by member. @param area  memory that is lost
template <class T>
void exchange(Op op, std::span<const ExchangeArgs> ends, std::vector<T>& area) {
  const auto from = [&](std::size_t m) { return reinterpret_cast<const T*>(ends[m].from); };
  const auto to = [&](std::size_t m) { return reinterpret_cast<T*>(ends[m].to); };
  const std::int64_t count = ends.front().count;
  const auto begin = [&](std::size_t m) { return count * static_cast<std::int64_t>(m) / std::ssize(ends); };
  if (!is_sum(op)) {
    for (std::size_t m = 0; m < ends.size(); ++m) {
      for (std::size_t other = 0; other < ends.size(); ++other)
        std::copy_n(from(other), begin(other + 1) - begin(other), to(m) + begin(other));
    }
    return;
  }
  area.resize(std::max(area.size(), static_cast<std::size_t>(count)));
  std::copy_n(from(0), count, area.data());
  for (std::size_t m = 1; m < ends.size(); ++m) combine(ends[m].combine, area.data(), from(m), count);
  for (std::size_t m = 0; m < ends.size(); ++m) {
    const std::int64_t first = scatters(op) ? begin(m) : 0;
    std::copy_n(area.data() + first, scatters(op) ? begin(m + 1) - first : count, to(m));
  }
}

}  // namespace tawpipe::host
