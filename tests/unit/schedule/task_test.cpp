// Tests of schedule/task.hpp: defaults and names.
// Not: schedules made of tasks (schedule_builder_test.cpp).
#include "tawpipe/schedule/task.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>

using tawpipe::Access;
using tawpipe::BufferId;
using tawpipe::BufferKind;
using tawpipe::Task;
using tawpipe::Use;

TEST_CASE("an empty task names no rank, group, stage or microbatch") {
  const Task task;
  CHECK(task.rank == tawpipe::none<tawpipe::Rank>);
  CHECK(task.peer == tawpipe::none<tawpipe::Rank>);
  CHECK(task.partner() == -1);
  CHECK(task.group == tawpipe::none<tawpipe::GroupId>);
  CHECK(task.bytes.repeat() == 1);
  CHECK(task.stage == tawpipe::none<tawpipe::StageId>);
  CHECK(task.microbatch == -1);
  CHECK(task.step == -1);
  CHECK(task.bytes == tawpipe::Bytes{0});
}

TEST_CASE("a task stays small: a million of them fit into 40 MB") { CHECK(sizeof(Task) <= 40); }

TEST_CASE("a task has a peer or a group, and its bytes as often as it is repeated") {
  const Task pass{.op = tawpipe::Op::pass, .peer = tawpipe::Rank{3}, .bytes = tawpipe::Bytes{5}};
  const Task sum{.op = tawpipe::Op::all_reduce, .group = tawpipe::GroupId{7}, .bytes = {tawpipe::Bytes{5}, 4}};
  CHECK(pass.partner() == 3);
  CHECK(pass.bytes.total() == tawpipe::Bytes{5});
  CHECK(sum.partner() == 7);
  CHECK(sum.bytes.total() == tawpipe::Bytes{20});
  CHECK(sum.bytes == tawpipe::Bytes{5});  // of one
  CHECK(tawpipe::Messages{tawpipe::Bytes{-5}}.value() == -5);
  CHECK(tawpipe::Messages{tawpipe::Bytes{1LL << 62}}.value() == (1LL << 51) - 1);
  CHECK(sizeof(tawpipe::Messages) == 8);
}

TEST_CASE("a use takes four bytes, and names any buffer that a schedule may hold") {
  CHECK(sizeof(Use) == 4);
  const Use none_yet;
  CHECK(none_yet.buffer == tawpipe::none<BufferId>);
  CHECK(none_yet.access == Access::read);
  for (const auto access : {Access::read, Access::write, Access::read_write, Access::accumulate}) {
    for (const std::size_t buffer : {std::size_t{0}, tawpipe::max_buffers - 1}) {
      const Use use{tawpipe::id<BufferId>(buffer), access};
      CHECK(index(use.buffer) == buffer);
      CHECK(use.access == access);
    }
  }
}

TEST_CASE("kinds of buffers have names that differ") {
  std::set<std::string> names;
  for (int i = 0; i < tawpipe::buffer_kinds; ++i) names.emplace(name(static_cast<BufferKind>(i)));
  CHECK(names.size() == tawpipe::buffer_kinds);
  CHECK(name(BufferKind::weights) == "weights");
  CHECK(name(BufferKind::workspace) == "workspace");
}
