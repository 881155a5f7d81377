// Tests of schedule/arrivals.hpp: the ends of communications and what each waits for.
// Not: when that is (unit/simulate/held_sms_test.cpp).
#include "tawpipe/schedule/arrivals.hpp"

#include <doctest/doctest.h>

#include <set>
#include <utility>
#include <vector>

#include "support/hand_built.hpp"

using namespace tawpipe;

namespace {

std::set<std::pair<int, std::size_t>> predecessors(const Arrivals& arrivals) {
  std::set<std::pair<int, std::size_t>> found;
  arrivals.for_each_predecessor([&](TaskId task, std::size_t arrival) { found.insert({number(task), arrival}); });
  return found;
}

}  // namespace

TEST_CASE("each end waits for the task before it in its lane and for dependencies of its rank") {
  auto b = support::two_lanes(4);
  const GroupId group = b.group({Rank{2}, Rank{0}, Rank{1}});
  const auto compute = [&](int rank) {
    return b.add({.op = Op::forward, .rank = Rank{rank}, .stage = StageId{0}, .microbatch = 0}, {});
  };
  const TaskId of_0 = compute(0);
  const TaskId of_2 = compute(2);
  const TaskId of_3 = compute(3);
  const TaskId pass = b.add(support::pass(0, 1, Bytes{1}), {}, std::vector{of_0});
  const TaskId all = b.add({.op = Op::all_reduce, .lane = LaneId{1}, .rank = Rank{2}, .group = group, .bytes = Bytes{1}}, {},
                           std::vector{of_2, of_3});
  const Schedule schedule = b.build();
  const Arrivals arrivals{schedule, [](const Task&) { return true; }};
  CHECK(arrivals.size() == 5);
  CHECK(arrivals.begin(of_0) == arrivals.end(of_0));
  CHECK(arrivals.begin(pass) == 0);
  CHECK(arrivals.end(pass) == 2);
  CHECK(arrivals.end(all) == 5);
  const std::vector<Rank> ranks{Rank{0}, Rank{1}, Rank{2}, Rank{0}, Rank{1}};
  for (std::size_t a = 0; a < 5; ++a) CHECK(arrivals.rank(a) == ranks[a]);
  // Of the pass only its source waits; the all-reduce has it before itself on ranks 0 and 1, and
  // rank 2 is told of rank 3's task.
  CHECK(predecessors(arrivals) == std::set<std::pair<int, std::size_t>>{{0, 0}, {1, 2}, {2, 2}, {3, 3}, {3, 4}});
}

TEST_CASE("only communications that are wanted have arrivals") {
  auto b = support::two_lanes(2);
  b.add(support::pass(0, 1, Bytes{1}), {});
  const TaskId large = b.add(support::pass(0, 1, Bytes{9}), {});
  const Schedule schedule = b.build();
  const Arrivals arrivals{schedule, [](const Task& task) { return task.bytes > Bytes{5}; }};
  CHECK(arrivals.size() == 2);
  CHECK(arrivals.begin(large) == 0);
  CHECK(predecessors(arrivals) == std::set<std::pair<int, std::size_t>>{{0, 0}, {0, 1}});
}
