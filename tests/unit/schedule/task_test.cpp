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
  CHECK(task.group == tawpipe::none<tawpipe::GroupId>);
  CHECK(task.stage == tawpipe::none<tawpipe::StageId>);
  CHECK(task.microbatch == -1);
  CHECK(task.step == -1);
  CHECK(task.bytes == tawpipe::Bytes{0});
}

TEST_CASE("a task stays small: a million of them fit into 40 MB") { CHECK(sizeof(Task) <= 40); }

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
