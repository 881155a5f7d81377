// Tests of verify/check_memory.hpp.
// Not: peaks over time (analysis/memory.hpp).
#include "tawpipe/verify/check_memory.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe;

TEST_CASE("the least memory counts what one lane surely holds") {
  ScheduleBuilder builder{"memory", Workload::abstract(1, 1), 2, {"compute", "more"}};
  builder.persistent(0, Content{ContentKind::weights}, Bytes{1000});
  const BufferId a = builder.transient(0, Content{ContentKind::activation}, Bytes{10});
  const BufferId b = builder.transient(0, Content{ContentKind::activation}, Bytes{20});
  const BufferId c = builder.transient(0, Content{ContentKind::activation}, Bytes{40});
  const Task compute{.op = Op::idle, .rank = Rank{0}};
  const Task beside{.op = Op::idle, .lane = LaneId{1}, .rank = Rank{0}};
  builder.add(compute, {{a, Access::write}});                    // 10
  builder.add(compute, {{b, Access::write}});                    // 30
  builder.add(compute, {{a, Access::read}});                     // 30, then a goes
  builder.add(compute, {{b, Access::read}, {b, Access::read}});  // 20
  builder.add(beside, {{c, Access::write}, {a, Access::read}});  // 50 on the other lane
  const std::vector<Bytes> least = min_memory(builder.build());
  CHECK(least == std::vector{Bytes{1050}, Bytes{0}});
}
