// How messages go through memory: in place where they can, and otherwise every number once.
#include "tawpipe/execute/message.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"

using namespace support;
using namespace tawpipe;

namespace {

Segment segment(std::int32_t buffer, std::int64_t offset, std::int64_t packed, std::int64_t count, bool add = false) {
  return {{BufferId{buffer}, offset}, packed, count, add};
}
MessagePlan plan_of(Op op, TransferFlow flow, std::int32_t rank) {
  const Task task{.op = op, .rank = Rank{0}, .peer = Rank{1}};
  const auto at = static_cast<std::size_t>(rank);
  return tawpipe::detail::MessagePlanner{task, flow, flow.ends[at], rank}.plan();
}
Address at(std::int32_t buffer, std::int64_t offset) { return {{BufferId{buffer}, offset}}; }

}  // namespace

TEST_CASE("a pass goes in place; what is cut or added goes by the staging area") {
  TransferFlow flow;
  flow.count = 10;
  flow.ends = {{Rank{0}, {segment(0, 5, 0, 4), segment(0, 9, 4, 6)}, {}}, {Rank{1}, {}, {segment(1, 2, 0, 10)}}};
  CHECK(*plan_of(Op::pass, flow, 0).from == at(0, 5));
  CHECK(*plan_of(Op::pass, flow, 1).to == at(1, 2));
  CHECK(plan_of(Op::pass, flow, 0).staging + plan_of(Op::pass, flow, 1).staging == 0);

  flow.ends[0].gives = {segment(0, 20, 0, 4), segment(0, 0, 4, 6)};
  flow.ends[1].takes = {segment(1, 2, 0, 10, true)};
  const MessagePlan source = plan_of(Op::pass, flow, 0);
  CHECK(source.from->staged());
  CHECK(source.before.size() == 2);
  CHECK(source.staging == 10);
  const MessagePlan destination = plan_of(Op::pass, flow, 1);
  CHECK(destination.to->staged());
  REQUIRE(destination.after.size() == 1);
  CHECK(destination.after[0].kind == Move::Kind::add);
}

TEST_CASE("blocks from all to all go in place, and the own one is copied before") {
  TransferFlow flow;  // member 0 has blocks of 2 and 3 for both, member 1 of 4 and 5
  flow.count = 14;
  flow.member_begin = {0, 2, 5, 9, 14};
  flow.ends = {{Rank{0}, {segment(0, 0, 0, 5)}, {segment(1, 0, 0, 2), segment(1, 2, 5, 4)}},
               {Rank{1}, {segment(2, 0, 5, 9)}, {segment(3, 0, 2, 3), segment(3, 3, 9, 5)}}};
  for (const std::int32_t rank : {0, 1}) {
    const MessagePlan plan = plan_of(Op::all_to_all, flow, rank);
    CHECK(*plan.from == at(2 * rank, 0));
    CHECK(*plan.to == at(2 * rank + 1, 0));
    CHECK(plan.staging == 0);
    CHECK(plan.after.empty());
    REQUIRE(plan.before.size() == 1);
    CHECK(plan.before[0].from == at(2 * rank, rank == 0 ? 0 : 4));
    CHECK(plan.before[0].to == at(2 * rank + 1, rank == 0 ? 0 : 3));
    CHECK(plan.before[0].count == (rank == 0 ? 2 : 5));
  }
}

TEST_CASE("a sum of one that gives nothing is of zeros; a root sums in place where it gives what it takes") {
  TransferFlow flow;
  flow.count = 6;
  flow.ends = {{Rank{0}, {segment(0, 0, 0, 6)}, {segment(0, 0, 0, 6)}}, {Rank{1}, {}, {}}};
  const MessagePlan root = plan_of(Op::reduce, flow, 0);
  CHECK(*root.from == *root.to);
  CHECK(root.staging == 0);
  const MessagePlan other = plan_of(Op::reduce, flow, 1);
  REQUIRE(other.before.size() == 1);
  CHECK(other.before[0].kind == Move::Kind::clear);
  CHECK(!other.to);
}

TEST_CASE("an all-gather goes straight into a whole buffer, its own part in place or not") {
  TransferFlow flow;
  flow.count = 9;
  flow.member_begin = {0, 4, 9};
  flow.ends = {{Rank{0}, {segment(0, 0, 0, 4)}, {segment(2, 0, 0, 9)}},   // from a shard into a buffer
               {Rank{1}, {segment(3, 4, 4, 5)}, {segment(3, 0, 0, 4)}}};  // in place
  const MessagePlan apart = plan_of(Op::all_gather, flow, 0);
  CHECK(*apart.from == at(0, 0));
  CHECK(*apart.to == at(2, 0));
  const MessagePlan in_place = plan_of(Op::all_gather, flow, 1);
  CHECK(*in_place.from == at(3, 4));
  CHECK(*in_place.to == at(3, 0));
  CHECK(apart.staging + in_place.staging == 0);

  flow.ends[1].takes = {segment(4, 0, 0, 4)};  // its own part is not wanted there
  const MessagePlan staged = plan_of(Op::all_gather, flow, 1);
  CHECK(staged.to->staged());
  CHECK(staged.staging == 9);
  REQUIRE(staged.after.size() == 1);
  CHECK(staged.after[0].count == 4);
}

// Tied, a sharded head is gathered through the staging area: its matrix comes before the norm in
// shards, after it in the unit.
TEST_CASE("weights and activations of a model that is not tied are never staged") {
  const Workload work = toy_work_f32(toy_model(12, false), 12);
  for_each_schedule(work, {{2, 2}}, [](const Schedule& schedule) {
    const Dataflow flow = resolve_dataflow(schedule);
    int staged = 0;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (is_compute(task.op) || task.payload == Payload::gradients || task.payload == Payload::edge_gradients) continue;
      for_each_end(schedule, id<TaskId>(t), [&](Rank rank, int) {
        staged += message_plan(schedule, id<TaskId>(t), flow.transfer(id<TaskId>(t)), rank).staging > 0 ? 1 : 0;
      });
    }
    CHECK(staged == 0);
  });
}
