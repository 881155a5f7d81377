// Tests of verify/reachability.hpp, against the closure of all edges on random graphs.
// Not: races in schedules (check_codes_test.cpp, properties/mutation_test.cpp).
#include "tawpipe/verify/check_races.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/verify/check_order.hpp"

using namespace tawpipe;

namespace {

/// Computations, transfers and collectives over 3 ranks with 2 lanes, some waiting for earlier
/// ones.
Schedule random_schedule(std::mt19937& random, int tasks) {
  ScheduleBuilder builder{"random", Workload::abstract(3, 1), 3, {"compute", "more"}};
  const auto below = [&](std::uint32_t limit) { return static_cast<int>(random() % limit); };
  for (int t = 0; t < tasks; ++t) {
    Task task{.lane = id<LaneId>(below(2)), .peer_lane = id<LaneId>(below(2)), .rank = Rank{below(3)}};
    const int kind = below(4);
    if (kind == 0) {
      task.op = Op::pass;
      task.peer = Rank{(number(task.rank) + 1 + below(2)) % 3};
    } else if (kind == 1) {
      task.op = Op::all_reduce;
      task.rank = Rank{0};
      task.group = builder.group(below(2) == 0 ? std::vector{Rank{0}, Rank{1}, Rank{2}} : std::vector{Rank{0}, Rank{2}});
    } else {
      task.op = Op::idle;
    }
    std::vector<TaskId> after;
    for (int i = below(3); i > 0 && t > 0; --i) after.push_back(TaskId{below(static_cast<std::uint32_t>(t))});
    builder.add(task, std::span<const Use>{}, after);
  }
  return builder.build();
}

}  // namespace

TEST_CASE("a clock says of each task whether it comes before") {
  std::mt19937 random{3};
  for (int round = 0; round < 30; ++round) {
    const Schedule schedule = random_schedule(random, 40);
    const std::size_t count = schedule.tasks().size();
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
    detail::for_each_wait(schedule, [&](std::size_t from, std::size_t to) { before[to][from] = true; });
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t t = 0; t < count; ++t) {
        for (std::size_t e = 0; before[t][k] && e < count; ++e) before[t][e] = before[t][e] || before[k][e];
      }
    }
    Diagnostics found;
    const auto order = check_cycles(schedule, found);
    REQUIRE(found.errors() + found.warnings() == 0);
    std::size_t visited = 0;
    bool right = true;
    for_each_clock(schedule, order, [&](TaskId t, auto clock) {
      ++visited;
      for (int row = 0; row < 6; ++row) {
        const auto lane = schedule.program(Rank{row / 2}, row % 2);
        for (std::size_t i = 0; i < lane.size(); ++i) {
          const bool expected = lane[i] == t || before[index(t)][index(lane[i])];
          right = right && (clock[static_cast<std::size_t>(row)] > static_cast<std::int32_t>(i)) == expected;
        }
      }
    });
    CHECK(visited == count);
    CHECK(right);
  }
}

TEST_CASE("a clock counts more tasks of a lane than 16 bits do") {
  constexpr int tasks = 32'770;
  ScheduleBuilder builder{"long", Workload::abstract(1, 1), 1};
  for (int t = 0; t < tasks; ++t) builder.add({.op = Op::idle, .rank = Rank{0}}, std::span<const Use>{});
  const Schedule schedule = builder.build();
  Diagnostics found;
  std::int32_t last = 0;
  for_each_clock(schedule, check_cycles(schedule, found), [&](TaskId, auto clock) { last = clock[0]; });
  CHECK(last == tasks);
}

TEST_CASE("reads race with nothing but writes") {
  ScheduleBuilder builder{"reads", Workload::abstract(1, 1), 1, {"compute", "more"}};
  const BufferId weights = builder.persistent(0, Content{ContentKind::weights}, Bytes{8});
  for (const LaneId lane : {LaneId{0}, LaneId{1}})
    builder.add({.op = Op::idle, .lane = lane, .rank = Rank{0}}, {{weights, Access::read}});
  const Schedule schedule = builder.build();
  Diagnostics found;
  check_races(schedule, check_cycles(schedule, found), found);
  CHECK(found.ok());
}
