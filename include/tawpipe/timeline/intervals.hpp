// Lists of intervals of time: their union, its length and what two of them share.
// Not: of what (analysis/communication.hpp, simulate/noise.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tawpipe::inline v0 {

namespace detail {

/// [from, to) each.
using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Sorts and joins overlapping intervals.
inline void unite(Intervals& intervals) {
  if (!std::is_sorted(intervals.begin(), intervals.end())) std::sort(intervals.begin(), intervals.end());  // most are
  std::size_t kept = 0;
  for (const auto& interval : intervals) {
    if (kept > 0 && interval.first <= intervals[kept - 1].second) {
      intervals[kept - 1].second = std::max(intervals[kept - 1].second, interval.second);
    } else {
      intervals[kept++] = interval;
    }
  }
  intervals.resize(kept);
}

inline std::int64_t length(const Intervals& united) {
  std::int64_t sum = 0;
  for (const auto& [from, to] : united) sum += to - from;
  return sum;
}

/// Length of the intersection of two joined lists.
inline std::int64_t overlap(const Intervals& a, const Intervals& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max<std::int64_t>(0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    if (a[i].second < b[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

}  // namespace detail

}  // namespace tawpipe
