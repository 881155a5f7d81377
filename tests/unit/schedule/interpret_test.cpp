// Tests of schedule/interpret.hpp: room in buffers, and who gives and takes what in messages.
// Not: places in memory (unit/execute/).
#include "tawpipe/schedule/interpret.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe;

namespace {

/// Two ranks and a stage of 1,000,000 parameters without a model, halves of it by number.
struct Halves {
  ScheduleBuilder builder{"test", Workload::abstract(1, 1), 2, {"compute", "network"}};
  PiecesId first = builder.pieces({{0, 400'000}});
  PiecesId second = builder.pieces({{400'000, 1'000'000}});
  GroupId both = builder.group({Rank{0}, Rank{1}});

  Task task(Op op, std::vector<PiecesId> sets) {
    return {.op = op, .lane = LaneId{1}, .peer_lane = LaneId{1}, .rank = Rank{0}, .group = both, .split = builder.split(sets)};
  }
};

}  // namespace

TEST_CASE("a slot has room for what tasks bring, from the first write on for all that comes until the next") {
  Halves halves;
  ScheduleBuilder& builder = halves.builder;
  const BufferId own = builder.persistent(0, {ContentKind::weights, StageId{0}, halves.first}, Bytes{400'000});
  const BufferId slot = builder.persistent_copy(1, Content{ContentKind::weights}, Bytes{1'000'000});
  const BufferId other = builder.persistent_copy(0, Content{ContentKind::weights}, Bytes{1'000'000});
  Task pass = halves.task(Op::pass, {halves.first});
  pass.group = none<GroupId>;
  pass.peer = Rank{1};
  const TaskId brought = builder.add(pass, {{own, Access::read}, {slot, Access::write}});
  const TaskId gather = builder.add(halves.task(Op::all_gather, {halves.first, halves.second}),
                                    {{own, Access::read}, {other, Access::write}, {slot, Access::read_write}});
  const TaskId again = builder.add(pass, {{own, Access::read}, {slot, Access::write}});
  const Schedule schedule = builder.build();

  Rooms rooms{schedule};
  CHECK(rooms[own].count() == 400'000);
  CHECK(rooms[slot].empty());
  rooms.run(brought);
  CHECK(rooms[slot].find({0, 1'000'000}) == 0);  // the gather is still to come
  rooms.run(gather);
  CHECK(rooms[other].count() == 1'000'000);
  rooms.run(again);
  CHECK(rooms[slot].count() == 400'000);
}

TEST_CASE("each op's ends give and take what its table says") {
  Halves halves;
  ScheduleBuilder& builder = halves.builder;
  std::vector<BufferId> buffers;
  for (int r = 0; r < 2; ++r) buffers.push_back(builder.persistent_copy(r, Content{ContentKind::gradients}, Bytes{1'000'000}));
  const auto add = [&](Op op, std::vector<PiecesId> sets, Access one, Access other) {
    return builder.add(halves.task(op, std::move(sets)), {{buffers[0], one}, {buffers[1], other}});
  };
  const TaskId gather = add(Op::all_gather, {halves.first, halves.second}, Access::read_write, Access::read_write);
  const TaskId scatter = add(Op::reduce_scatter, {halves.first, halves.second}, Access::read_write, Access::write);
  const TaskId broadcast = add(Op::broadcast, {halves.first}, Access::read, Access::write);
  const TaskId reduce = add(Op::reduce, {halves.first}, Access::read_write, Access::read);
  const Schedule schedule = builder.build();

  MessageReader gathered_reader{schedule};
  const ParameterMessage& gathered = gathered_reader.read(gather);
  CHECK(gathered.by_member());
  CHECK((gathered.gives(0, 0) && !gathered.gives(0, 1) && gathered.takes(0, 0) && gathered.takes(0, 1)));
  CHECK(gathered.in_place(0, 0, Access::read_write));
  CHECK_FALSE(gathered.in_place(0, 1, Access::read_write));

  MessageReader scattered_reader{schedule};
  const ParameterMessage& scattered = scattered_reader.read(scatter);
  CHECK(scattered.by_member());
  CHECK((scattered.gives(1, 0) && !scattered.gives(1, 1)));  // rank 1 reads nothing: it adds zeros
  CHECK((scattered.takes(1, 1) && !scattered.takes(1, 0)));
  CHECK_FALSE(scattered.in_place(0, 0, Access::read_write));

  MessageReader sent_reader{schedule};
  const ParameterMessage& sent = sent_reader.read(broadcast);
  CHECK_FALSE(sent.by_member());
  CHECK((sent.gives(0, 0) && !sent.gives(0, 1) && !sent.takes(0, 0) && sent.takes(0, 1)));

  MessageReader reduced_reader{schedule};
  const ParameterMessage& reduced = reduced_reader.read(reduce);
  CHECK((reduced.gives(0, 0) && reduced.gives(0, 1) && reduced.takes(0, 0) && !reduced.takes(0, 1)));
}
