// Tests of timeline/timeline.hpp.
// Not: what a timeline means for a schedule (unit/analysis).
#include "tawpipe/timeline/timeline.hpp"

#include <doctest/doctest.h>

using namespace tawpipe::literals;
using tawpipe::TaskId;
using tawpipe::Timeline;
using tawpipe::TimePoint;

TEST_CASE("the makespan is the latest end, whichever task's") {
  const Timeline timeline{.start = {TimePoint{0_s}, TimePoint{1_s}, TimePoint{2_s}},
                          .end = {TimePoint{1_s}, TimePoint{7_s}, TimePoint{3_s}}};
  CHECK(timeline.makespan() == 7_s);
  CHECK(timeline.start_of(TaskId{1}) == TimePoint{1_s});
  CHECK(timeline.end_of(TaskId{2}) == TimePoint{3_s});
  CHECK(timeline.duration_of(TaskId{1}) == 6_s);
}

TEST_CASE("nothing takes no time") { CHECK(Timeline{}.makespan() == 0_s); }

TEST_CASE("timelines compare by every time") {
  const Timeline a{.start = {TimePoint{0_s}}, .end = {TimePoint{1_s}}};
  Timeline b = a;
  CHECK(a == b);
  b.end[0] = TimePoint{1_s + 1_ps};
  CHECK(a != b);
}
