// The schedule as a graph: exact text of a small one, the limit, and quoting.
// Not: what Graphviz makes of it.
#include "tawpipe/report/dot.hpp"

#include <doctest/doctest.h>

#include <string>

#include "schedules.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe;

namespace {

/// A forward, its pass to rank 1, and a sum of both ranks.
Schedule small_schedule(const std::string& name = "small") {
  ScheduleBuilder builder{name, Workload::abstract(2, 1), 2, {"compute", "com\"m"}};
  builder.stages(builder.workload().split(2));
  const TaskId forward = builder.add({.op = Op::forward, .rank = Rank{0}, .stage = StageId{0}, .microbatch = 0}, {});
  const TaskId pass = builder.add({.op = Op::pass,
                                   .payload = Payload::activations,
                                   .lane = LaneId{1},
                                   .peer_lane = LaneId{1},
                                   .rank = Rank{0},
                                   .peer = Rank{1},
                                   .microbatch = 0},
                                  {}, std::span<const TaskId>{&forward, 1});
  builder.add({.op = Op::all_reduce,
               .payload = Payload::gradients,
               .lane = LaneId{1},
               .rank = Rank{0},
               .group = builder.group({Rank{0}, Rank{1}})},
              {}, std::span<const TaskId>{&pass, 1});
  return builder.build();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a frame a rank and a lane, a box an end, edges for order and dependencies") {
  CHECK(schedule_dot(small_schedule()) == R"(digraph "small" {
  rankdir=LR;
  compound=true;
  node [shape=box, style=filled, fontname="Helvetica", fontsize=10];
  edge [arrowsize=0.6];
  subgraph "cluster_0" {
    label="rank 0";
    subgraph "cluster_0_0" {
      label="compute";
      style=dotted;
      t0r0 [label="0: forward\nstage 0, microbatch 0", fillcolor="#8ecae6"];
    }
    subgraph "cluster_0_1" {
      label="com\"m";
      style=dotted;
      t1r0 [label="1: pass\nactivations\nmicrobatch 0", fillcolor="#ffb703"];
      t2r0 [label="2: all_reduce\ngradients", fillcolor="#ff6b6b"];
      t1r0 -> t2r0 [style=dashed, color=gray60];
    }
  }
  subgraph "cluster_1" {
    label="rank 1";
    subgraph "cluster_1_1" {
      label="com\"m";
      style=dotted;
      t1r1 [label="1: pass\nactivations\nmicrobatch 0", fillcolor="#ffb703"];
      t2r1 [label="2: all_reduce\ngradients", fillcolor="#ff6b6b"];
      t1r1 -> t2r1 [style=dashed, color=gray60];
    }
  }
  t1r0 -> t1r1 [dir=forward, penwidth=2, color="#ffb703", constraint=false];
  t0r0 -> t1r0;
  t2r0 -> t2r1 [dir=none, penwidth=2, color="#ff6b6b", constraint=false];
  t1r0 -> t2r0;
}
)");
}

TEST_CASE("the order of lanes can be left out") {
  CHECK(count(schedule_dot(small_schedule(), {.program_order = false}), "dashed") == 0);
}

TEST_CASE("names are quoted") {
  CHECK(schedule_dot(small_schedule("a \"b\" \\\n")).starts_with("digraph \"a \\\"b\\\" \\\\?\" {\n"));
}

TEST_CASE("a schedule too large to look at is refused") {
  CHECK_THROWS_WITH_AS(schedule_dot(small_schedule(), {.max_tasks = 2}),
                       "the schedule has 3 tasks, and a graph of more than 2 cannot be looked at; choose fewer microbatches or "
                       "ranks, or raise the limit",
                       InputError);
  CHECK_NOTHROW(schedule_dot(small_schedule(), {.max_tasks = 3}));
}

TEST_CASE("every schedule of the catalogue has one box an end, and balanced braces") {
  for (const auto& info : shipped().schedules()) {
    CAPTURE(info.name);
    const Schedule schedule = build_schedule(info.name, {Workload::abstract(4, 8), DeviceGroups::even(4, 2), {}});
    const std::string text = schedule_dot(schedule, {.max_tasks = 5000});
    CHECK(count(text, "fillcolor") == schedule.parts().program.items().size());
    CHECK(count(text, "{") == count(text, "}"));
  }
}
