// Tests of cost/fixed.hpp.
// Not: schedules under fixed times (unit/schedule/).
#include "tawpipe/cost/fixed.hpp"

#include <doctest/doctest.h>

#include "support/clusters.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Rank;
using tawpipe::StageId;
using tawpipe::Task;
using tawpipe::TaskId;

namespace {

const FixedCost fixed{.forward = 12_s, .backward_input = 24_s, .backward_weight = 36_s, .transfer = 5_s};

/// A single task in a schedule of `stages` stages for 2 devices.
tawpipe::Schedule only(const Task& task, int stages) {
  tawpipe::ScheduleBuilder builder{"test", tawpipe::Workload::abstract(2, 1), 2, {"compute"}};
  builder.stages(builder.workload().split(stages));
  builder.add(task, {});
  return builder.build();
}

tawpipe::Duration time_of(Op op, int stages) {
  return fixed.compute_time(only({.op = op, .rank = Rank{0}, .stage = StageId{0}}, stages), TaskId{0}, support::cluster(2));
}

}  // namespace

TEST_CASE("with one stage a device each computation takes the time given for its kind") {
  CHECK(time_of(Op::forward, 2) == 12_s);
  CHECK(time_of(Op::backward, 2) == 60_s);
  CHECK(time_of(Op::backward_input, 2) == 24_s);
  CHECK(time_of(Op::backward_weight, 2) == 36_s);
  CHECK(time_of(Op::idle, 2) == 12_s);
  CHECK(time_of(Op::update, 2) == 0_s);
}

TEST_CASE("several stages a device divide its time evenly") {
  CHECK(time_of(Op::forward, 4) == 6_s);
  CHECK(time_of(Op::backward, 6) == 20_s);
  CHECK(time_of(Op::forward, 1) == 24_s);  // one stage for both devices
}

TEST_CASE("every transfer takes one hop's time, whatever its size, and loads nothing") {
  const Task task{.op = Op::pass, .rank = Rank{0}, .peer = Rank{1}, .bytes = 7_GB};
  const auto path = fixed.path(only(task, 2), task, support::cluster(2));
  CHECK(path.latency == 5_s);
  CHECK(path.loads.empty());
  CHECK(path.fraction == 0);
}
