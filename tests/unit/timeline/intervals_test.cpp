// Tests of timeline/intervals.hpp.
#include "tawpipe/timeline/intervals.hpp"

#include <doctest/doctest.h>

namespace detail = tawpipe::detail;

TEST_CASE("overlapping intervals are united and intersected") {
  detail::Intervals intervals{{5, 8}, {0, 2}, {1, 3}, {8, 9}};
  detail::unite(intervals);
  CHECK(intervals == detail::Intervals{{0, 3}, {5, 9}});
  CHECK(detail::length(intervals) == 7);
  CHECK(detail::overlap(intervals, {{2, 6}}) == 2);  // 2 .. 3 and 5 .. 6
}
