// Tests of schedule/schedule_builder.hpp and schedule.hpp: dependencies from buffers, lanes,
// groups, what a schedule answers.
// Not: the schedules of the catalogue (schedules/).
#include "tawpipe/schedule/schedule_builder.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace schedule_builder_test {

using tawpipe::Access;
using tawpipe::BufferId;
using tawpipe::Bytes;
using tawpipe::Content;
using tawpipe::ContentKind;
using tawpipe::GroupId;
using tawpipe::Op;
using tawpipe::Rank;
using tawpipe::Schedule;
using tawpipe::ScheduleBuilder;
using tawpipe::StageId;
using tawpipe::Task;
using tawpipe::TaskId;
using tawpipe::Workload;

namespace {

ScheduleBuilder builder(int ranks = 1) { return {"test", Workload::abstract(1, 1), ranks, {"compute", "one", "two", "three"}}; }

/// A computation on rank 0, on any lane: what matters here is only which lane.
Task on(int lane) { return {.op = Op::forward, .lane = tawpipe::id<tawpipe::LaneId>(lane), .rank = Rank{0}}; }

std::vector<int> waits(const Schedule& schedule, TaskId task) {
  std::vector<int> numbers;
  for (const auto earlier : schedule.dependencies(task)) numbers.push_back(number(earlier));
  return numbers;
}

std::vector<int> program(const Schedule& schedule, int rank, int lane) {
  std::vector<int> numbers;
  for (const auto task : schedule.program(Rank{rank}, lane)) numbers.push_back(number(task));
  return numbers;
}

using Numbers = std::vector<int>;

}  // namespace

TEST_CASE("a read waits for the last write, not for those before it") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  b.add(on(0), {{x, Access::write}});
  b.add(on(1), {{x, Access::write}});
  const TaskId read = b.add(on(2), {{x, Access::read}});
  CHECK(waits(b.build(), read) == Numbers{1});
}

TEST_CASE("a write waits for all reads since the last write, and they not for each other") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  b.add(on(0), {{x, Access::write}});
  const TaskId first = b.add(on(1), {{x, Access::read}});
  const TaskId second = b.add(on(2), {{x, Access::read}});
  const TaskId write = b.add(on(3), {{x, Access::write}});
  const Schedule schedule = b.build();
  CHECK(waits(schedule, first) == Numbers{0});
  CHECK(waits(schedule, second) == Numbers{0});
  CHECK(waits(schedule, write) == Numbers{0, 1, 2});  // 0 is implied, and listed
}

TEST_CASE("of several reads on one lane a write waits for the last") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  b.add(on(1), {{x, Access::read}});
  b.add(on(1), {{x, Access::read}});
  b.add(on(2), {{x, Access::read}});
  const TaskId write = b.add(on(0), {{x, Access::write}});
  CHECK(waits(b.build(), write) == Numbers{1, 2});
}

TEST_CASE("changing in place and accumulating order like a read and a write") {
  for (const auto access : {Access::read_write, Access::accumulate}) {
    auto b = builder();
    const BufferId x = b.persistent(0, Content{ContentKind::gradients}, Bytes{1});
    b.add(on(0), {{x, Access::write}});
    const TaskId first = b.add(on(1), {{x, access}});
    const TaskId second = b.add(on(2), {{x, access}});
    const TaskId read = b.add(on(3), {{x, Access::read}});
    const Schedule schedule = b.build();
    CHECK(waits(schedule, first) == Numbers{0});
    CHECK(waits(schedule, second) == Numbers{1});
    CHECK(waits(schedule, read) == Numbers{2});
  }
}

TEST_CASE("what the lane already orders is not listed") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  b.add(on(0), {{x, Access::write}});
  const TaskId read = b.add(on(0), {{x, Access::read}});
  const TaskId write = b.add(on(0), {{x, Access::write}});
  const Schedule schedule = b.build();
  CHECK(waits(schedule, read).empty());
  CHECK(waits(schedule, write).empty());
}

TEST_CASE("a buffer used twice by one task makes it wait for others only") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  const TaskId both = b.add(on(0), {{x, Access::read}, {x, Access::write}});
  const TaskId next = b.add(on(1), {{x, Access::read}});
  const Schedule schedule = b.build();
  CHECK(waits(schedule, both).empty());
  CHECK(waits(schedule, next) == Numbers{0});
}

TEST_CASE("other buffers do not matter") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  const BufferId y = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  b.add(on(0), {{x, Access::write}});
  const TaskId other = b.add(on(1), {{y, Access::write}});
  CHECK(waits(b.build(), other).empty());
}

TEST_CASE("wanted waits join those of the buffers, each once, none for an id of no task") {
  auto b = builder();
  const BufferId x = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  const TaskId first = b.add(on(0), {{x, Access::write}});
  const TaskId second = b.add(on(1), {});
  const std::vector<TaskId> after{second, tawpipe::none<TaskId>, first};
  const TaskId last = b.add(on(2), {{x, Access::read}}, after);
  CHECK(waits(b.build(), last) == Numbers{0, 1});
}

TEST_CASE("a transfer stands on both ends' lanes, and each end's buffers follow that end's lane") {
  auto b = builder(2);
  const BufferId source = b.persistent(0, Content{ContentKind::weights}, Bytes{1});
  const BufferId target = b.persistent_copy(1, Content{ContentKind::weights}, Bytes{1});
  const TaskId pass = b.add({.op = Op::pass,
                             .lane = tawpipe::LaneId{1},
                             .peer_lane = tawpipe::LaneId{2},
                             .rank = Rank{0},
                             .peer = Rank{1},
                             .bytes = Bytes{1}},
                            {{source, Access::read}, {target, Access::write}});
  const TaskId on_lane_two = b.add({.op = Op::forward, .lane = tawpipe::LaneId{2}, .rank = Rank{1}}, {{target, Access::read}});
  const TaskId on_lane_one = b.add({.op = Op::forward, .lane = tawpipe::LaneId{1}, .rank = Rank{1}}, {{target, Access::read}});
  const TaskId back = b.add({.op = Op::forward, .lane = tawpipe::LaneId{1}, .rank = Rank{0}}, {{source, Access::write}});
  const Schedule schedule = b.build();
  CHECK(program(schedule, 0, 1) == Numbers{0, 3});
  CHECK(program(schedule, 1, 2) == Numbers{0, 1});
  CHECK(program(schedule, 0, 2).empty());
  CHECK(schedule.lane_on(pass, Rank{0}) == 1);
  CHECK(schedule.lane_on(pass, Rank{1}) == 2);
  CHECK(waits(schedule, on_lane_two).empty());
  CHECK(waits(schedule, on_lane_one) == Numbers{0});
  CHECK(waits(schedule, back).empty());
}

TEST_CASE("a collective stands on one lane of every member") {
  auto b = builder(3);
  const GroupId group = b.group({Rank{0}, Rank{2}});
  const TaskId task = b.add({.op = Op::all_reduce, .lane = tawpipe::LaneId{3}, .rank = Rank{0}, .group = group}, {});
  const Schedule schedule = b.build();
  CHECK(program(schedule, 0, 3) == Numbers{0});
  CHECK(program(schedule, 1, 3).empty());
  CHECK(program(schedule, 2, 3) == Numbers{0});
  std::vector<std::pair<int, int>> ends;
  for_each_end(schedule, task, [&](Rank rank, int lane) { ends.emplace_back(number(rank), lane); });
  CHECK(ends == std::vector<std::pair<int, int>>{{0, 3}, {2, 3}});
}

TEST_CASE("the same members are the same group, another order is another") {
  auto b = builder(3);
  CHECK(b.group({Rank{0}, Rank{1}}) == GroupId{0});
  CHECK(b.group({Rank{1}, Rank{2}}) == GroupId{1});
  CHECK(b.group({Rank{0}, Rank{1}}) == GroupId{0});
  CHECK(b.group({Rank{1}, Rank{0}}) == GroupId{2});
  const Schedule schedule = b.build();
  CHECK(schedule.groups() == 3);
  CHECK(schedule.group(GroupId{1})[1] == Rank{2});
}

TEST_CASE("a schedule answers what it was built from") {
  auto b = builder(2);
  b.option("size", "3");
  b.stages(Workload::abstract(2, 1).split(2));
  const BufferId x = b.transient(1, {ContentKind::saved, StageId{1}, 0}, Bytes{7});
  const TaskId task = b.add({.op = Op::forward, .rank = Rank{1}, .stage = StageId{1}, .microbatch = 4}, {{x, Access::write}});
  CHECK(b.size() == 1);
  const Schedule schedule = b.build();
  CHECK(schedule.name() == "test");
  CHECK(schedule.options() == std::vector<std::pair<std::string, std::string>>{{"size", "3"}});
  CHECK(schedule.ranks() == 2);
  CHECK(schedule.lanes().size() == 4);
  CHECK(schedule.stages().size() == 2);
  CHECK(schedule.stage(StageId{1}).last_edge);
  CHECK(schedule.task(task).microbatch == 4);
  CHECK(schedule.buffers().size() == 1);
  CHECK(schedule.buffer(x).bytes == Bytes{7});
  CHECK_FALSE(schedule.buffer(x).persistent);
  REQUIRE(schedule.uses(task).size() == 1);
  CHECK(schedule.uses(task)[0].access == Access::write);
  CHECK(schedule.memory_bytes() >= sizeof(Task));
}

TEST_CASE("an empty schedule has empty lanes") {
  const Schedule schedule = builder(2).build();
  CHECK(schedule.tasks().empty());
  CHECK(schedule.groups() == 0);
  CHECK(program(schedule, 1, 3).empty());
}

TEST_CASE("rows of varying length stand one after the other") {
  const tawpipe::Rows<int> rows{{0, 2, 2, 3}, {5, 6, 7}};
  CHECK(rows.size() == 3);
  CHECK(rows[0].size() == 2);
  CHECK(rows[0][1] == 6);
  CHECK(rows[1].empty());
  CHECK(rows[2][0] == 7);
  CHECK(tawpipe::Rows<int>{}.size() == 0);
}

TEST_CASE("a lane is there once for each name, in the order of asking, and lane 0 computes") {
  ScheduleBuilder b{"lanes", Workload::abstract(1, 1), 1};
  const auto out = b.lane("out");
  CHECK(tawpipe::number(out) == 1);
  CHECK(tawpipe::number(b.lane("in")) == 2);
  CHECK(b.lane("out") == out);
  CHECK(b.lane("compute") == tawpipe::LaneId{});
  CHECK(b.build().lanes() == std::vector<std::string>{"compute", "out", "in"});
  ScheduleBuilder many{"lanes", Workload::abstract(1, 1), 1};
  for (int i = 0; i < 255; ++i) many.lane(std::to_string(i));
  CHECK_THROWS_WITH_AS(many.lane("one more"), "a schedule holds at most 256 lanes", tawpipe::ScheduleError);
}

TEST_CASE("a builder that goes on from a schedule keeps the numbers of its groups, equal ones too") {
  Schedule::Parts parts = builder(2).build().parts();
  const std::vector<Rank> both{Rank{0}, Rank{1}};
  parts.groups = {std::vector<std::uint32_t>{0, 2, 4}, std::vector<Rank>{Rank{0}, Rank{1}, Rank{0}, Rank{1}}};
  ScheduleBuilder more{Schedule{Workload::abstract(1, 1), std::move(parts)}};
  CHECK(more.group(both) == GroupId{0});
  CHECK(more.group({Rank{1}, Rank{0}}) == GroupId{2});
}

}  // namespace schedule_builder_test
