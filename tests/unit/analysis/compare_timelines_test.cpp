// Tests of analysis/compare_timelines.hpp: the whole, each kind of task, the order on each lane.
// Not: predictions of real runs.
#include "tawpipe/analysis/compare_timelines.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

using doctest::Approx;
using tawpipe::compare_timelines;
using tawpipe::Op;
using tawpipe::Payload;
using tawpipe::Rank;
using tawpipe::Task;
using tawpipe::TaskId;
using tawpipe::Timeline;
using tawpipe::TimelineComparison;

namespace {

/// Two forwards and two backwards on rank 0, a pass from it on lane 1.
std::vector<Task> tasks() {
  const Task forward{.op = Op::forward, .rank = Rank{0}};
  const Task backward{.op = Op::backward, .rank = Rank{0}};
  const Task pass{.op = Op::pass, .payload = Payload::activations, .lane = tawpipe::LaneId{1}, .rank = Rank{0}, .peer = Rank{1}};
  return {forward, forward, backward, backward, pass};
}

/// Of starts and ends in seconds.
Timeline timeline(const std::vector<std::pair<double, double>>& times) {
  Timeline made;
  for (const auto& [start, end] : times) {
    made.start.push_back(tawpipe::TimePoint{tawpipe::seconds(start)});
    made.end.push_back(tawpipe::TimePoint{tawpipe::seconds(end)});
  }
  return made;
}

const Timeline predicted = timeline({{0, 1}, {1, 2}, {2, 4}, {4, 6}, {1, 1.5}});

}  // namespace

TEST_CASE("a timeline does not differ from itself") {
  const TimelineComparison same = compare_timelines(tasks(), predicted, predicted);
  CHECK(same.error == 0);
  CHECK(same.predicted == tawpipe::seconds(6));
  CHECK(same.measured == same.predicted);
  CHECK(same.order.empty());
  REQUIRE(same.kinds.size() == 3);
  for (const auto& kind : same.kinds) CHECK(kind.error == 0);
}

TEST_CASE("errors are relative to what was measured, over the means of each kind") {
  // Measured from 1 s to 9 s: 8 s against 6. Forwards 1 and 2 s, backwards 2 and 3 s, the pass 0.25
  // s.
  const TimelineComparison found = compare_timelines(tasks(), predicted, timeline({{1, 2}, {2, 4}, {4, 6}, {6, 9}, {2, 2.25}}));
  CHECK(found.measured == tawpipe::seconds(8));
  CHECK(found.error == Approx(6.0 / 8 - 1));
  REQUIRE(found.kinds.size() == 3);
  CHECK(found.kinds[0].op == Op::forward);
  CHECK(found.kinds[0].tasks == 2);
  CHECK(found.kinds[0].predicted == Approx(1));
  CHECK(found.kinds[0].measured == Approx(1.5));
  CHECK(found.kinds[0].error == Approx(1 / 1.5 - 1));
  CHECK(found.kinds[1].error == Approx(2 / 2.5 - 1));
  CHECK(found.kinds[2].op == Op::pass);
  CHECK(found.kinds[2].payload == Payload::activations);
  CHECK(found.kinds[2].error == Approx(1));
  CHECK(found.order.empty());
}

TEST_CASE("tasks that changed places on a lane are found") {
  // Tasks 1 and 2 in turn; the pass has its own lane.
  const TimelineComparison found = compare_timelines(tasks(), predicted, timeline({{0, 1}, {3, 4}, {1, 3}, {4, 6}, {1, 1.5}}));
  CHECK(found.error == 0);
  REQUIRE(found.order.size() == 1);
  CHECK(found.order[0].rank == Rank{0});
  CHECK(found.order[0].lane == 0);
  CHECK(found.order[0].tasks == 4);
  CHECK(found.order[0].displaced == 2);
  CHECK(found.order[0].place == 1);
  CHECK(found.order[0].predicted == TaskId{1});
  CHECK(found.order[0].measured == TaskId{2});
}

TEST_CASE("no time, and tasks that do not match") {
  const TimelineComparison nothing = compare_timelines({}, {}, {});
  CHECK(nothing.error == 0);
  CHECK(nothing.kinds.empty());
  const Timeline still = timeline({{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}});
  CHECK(std::isinf(compare_timelines(tasks(), predicted, still).error));
  CHECK_THROWS_AS(compare_timelines(tasks(), predicted, {}), tawpipe::InputError);
}
