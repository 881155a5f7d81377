// Tests of schedule/task.hpp: defaults and names.
// Not: schedules made of tasks (schedule_builder_test.cpp).
#include "tawpipe/schedule/task.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using tawpipe::BufferKind;
using tawpipe::Task;

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

TEST_CASE("kinds of buffers have names that differ") {
  std::set<std::string> names;
  for (int i = 0; i < tawpipe::buffer_kinds; ++i) names.emplace(name(static_cast<BufferKind>(i)));
  CHECK(names.size() == tawpipe::buffer_kinds);
  CHECK(name(BufferKind::weights) == "weights");
  CHECK(name(BufferKind::workspace) == "workspace");
}
