// Tests of simulate/held_sms.hpp: computations overlapping communications that hold SMs, in closed
// form, and what analysis/held_time.hpp says of them.
// Not: random graphs (oracle/held_sms_test.cpp).
#include "tawpipe/simulate/held_sms.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/hand_built.hpp"
#include "support/random.hpp"
#include "tawpipe/analysis/held_time.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

/// Forwards take 1 s, the input half of a backward 2 s and its other half 4 s, messages 1 s.
FixedCost cost(int ctas, int sms = 132) {
  return {.forward = 1_s,
          .backward_input = 2_s,
          .backward_weight = 4_s,
          .transfer = 1_s,
          .held_sms = {.pair_ctas = ctas, .collective_ctas = ctas, .sms = sms}};
}

ScheduleBuilder lanes(int ranks) {
  ScheduleBuilder builder{"test", Workload::abstract(1, 1), ranks, {"compute", "one", "two"}};
  builder.stages(Workload::abstract(1, 1).split(1));
  return builder;
}

Task compute(int rank, Op op) { return {.op = op, .rank = Rank{rank}, .stage = StageId{0}, .microbatch = 0}; }

Task pass(int from, int to, int lane = 1) {
  Task task = support::pass(from, to, 1_MB);
  task.lane = task.peer_lane = LaneId{static_cast<std::uint8_t>(lane)};
  return task;
}

/// Rank 1 computes for 4 s beside a receive of 1 s from rank 0, which computes for 2 s first.
Schedule early_receive() {
  auto b = lanes(2);
  b.add(compute(1, Op::backward_weight), {});
  const std::vector sent{b.add(compute(0, Op::backward_input), {})};
  b.add(pass(0, 1), {}, sent);
  return b.build();
}

}  // namespace

TEST_CASE("a receive that is posted early slows a computation while it waits and while it receives") {
  const Schedule schedule = early_receive();
  const Cluster cluster = support::cluster(2);
  // Rank 1 holds 33 of 132 SMs from 0 to 3 s, of which it waits for 2: by then 2.25 s of its 4 are
  // done, and 1.75 are left.
  const Timeline timeline = simulate(schedule, cluster, cost(33));
  CHECK(timeline.end_of(TaskId{0}) == TimePoint{4'750_ms});
  CHECK(timeline.end_of(TaskId{1}) == TimePoint{2_s});  // its rank came to the message only then
  CHECK(timeline.start_of(TaskId{2}) == TimePoint{2_s});
  CHECK(timeline.end_of(TaskId{2}) == TimePoint{3_s});
  const HeldTime lost = held_time(schedule, cluster, timeline, cost(33).held_sms);
  CHECK(lost.slowed_s == std::vector<double>{0, 0.75});
  CHECK(lost.waiting_s == std::vector<double>{0, 0.5});
  CHECK(lost.task_s == std::vector<double>{0.75, 0, 0});
  CHECK(HeldTime::mean(lost.slowed_s) == 0.375);
}

TEST_CASE("where waiting holds nothing, only what moves slows") {
  const Schedule schedule = early_receive();
  const Cluster cluster = support::cluster(2);
  FixedCost moving = cost(33);
  moving.held_sms.waiting = false;
  // Rank 1 holds 33 of 132 SMs from 2 to 3 s: by then 2.75 s of its 4 are done.
  const Timeline timeline = simulate(schedule, cluster, moving);
  CHECK(timeline.end_of(TaskId{0}) == TimePoint{4'250_ms});
  CHECK(timeline.end_of(TaskId{2}) == TimePoint{3_s});
  const HeldTime lost = held_time(schedule, cluster, timeline, moving.held_sms);
  CHECK(lost.slowed_s == std::vector<double>{0, 0.25});
  CHECK(lost.waiting_s == std::vector<double>{0, 0});
}

TEST_CASE("in the order of calls a receive that is posted early holds nothing before the calls before it have started") {
  auto b = lanes(3);
  const std::vector sent{b.add(compute(0, Op::backward_input), {})};
  b.add(compute(0, Op::backward_weight), {});
  const std::vector late{b.add(compute(2, Op::backward_weight), {})};
  b.add(pass(0, 1, 1), {}, sent);
  b.add(pass(2, 0, 2), {}, late);
  const Schedule schedule = b.build();
  const Cluster cluster = support::cluster(3);
  CHECK(simulate(schedule, cluster, cost(33)).end_of(TaskId{0}) > TimePoint{2'600_ms});
  FixedCost ordered = cost(33);
  ordered.held_sms.launch_order_implicit = true;
  // Rank 0 holds 66 of 132 SMs from 2 to 3 s, and 33 until 5 s.
  Timeline timeline = simulate(schedule, cluster, ordered);
  CHECK(timeline.end_of(TaskId{0}) == TimePoint{2_s});
  CHECK(timeline.end_of(TaskId{1}) == TimePoint{7_s});
  CHECK(timeline.start_of(TaskId{4}) == TimePoint{4_s});
  const std::vector<TaskId> calls = order_of_calls(schedule, cluster, ordered);
  const HeldTime lost = held_time(schedule, cluster, timeline, ordered.held_sms, {}, calls);
  CHECK(lost.slowed_s == std::vector<double>{1, 0, 0});
  CHECK(lost.waiting_s == std::vector<double>{0.5, 0, 0});
  // Only what moves slows: as without an order.
  ordered.held_sms.waiting = false;
  timeline = simulate(schedule, cluster, ordered);
  CHECK(timeline.end_of(TaskId{1}) == TimePoint{6'500_ms});
  ordered.held_sms.launch_order_implicit = false;
  CHECK(simulate(schedule, cluster, ordered) == timeline);
}

TEST_CASE("a communication that is ready waits for an earlier call of its rank on another lane to start") {
  auto b = lanes(3);
  const std::vector sent{b.add(compute(0, Op::backward_input), {})};
  b.add(pass(0, 1, 1), {}, sent);
  b.add(pass(0, 2, 2), {});
  const Schedule schedule = b.build();
  FixedCost none = cost(0);
  none.held_sms.launch_order_implicit = true;
  const std::vector calls{TaskId{0}, TaskId{1}, TaskId{2}};
  CHECK(simulate_in_order(schedule, support::cluster(3), none, calls).start_of(TaskId{2}) == TimePoint{2_s});
  // It would start first, and so is called first.
  CHECK(simulate(schedule, support::cluster(3), none).start_of(TaskId{2}) == TimePoint{});
}

TEST_CASE("what lanes hold adds up") {
  auto b = lanes(2);
  b.add(compute(1, Op::backward_weight), {});
  const std::vector sent{b.add(compute(0, Op::backward_input), {})};
  b.add(pass(0, 1, 1), {}, sent);
  b.add(pass(0, 1, 2), {}, sent);
  // 66 of 132 for 3 s: half speed.
  CHECK(simulate(b.build(), support::cluster(2), cost(33)).end_of(TaskId{0}) == TimePoint{5'500_ms});
}

TEST_CASE("messages of one lane hold one after the other, each from the end of the one before it") {
  auto b = lanes(2);
  b.add(compute(1, Op::backward_weight), {});
  const std::vector sent{b.add(compute(0, Op::backward_input), {})};
  b.add(pass(0, 1), {}, sent);
  b.add(pass(0, 1), {}, sent);
  // 33 of 132 from 0 to 4 s: 3 s are done, and 1 is left.
  CHECK(simulate(b.build(), support::cluster(2), cost(33)).end_of(TaskId{0}) == TimePoint{5_s});
}

TEST_CASE("a member of a collective waits for the last, whoever is the root") {
  auto b = lanes(3);
  const GroupId all = b.group({Rank{2}, Rank{0}, Rank{1}});
  b.add(compute(0, Op::backward_weight), {});
  b.add(compute(1, Op::backward_weight), {});
  const std::vector last{b.add(compute(2, Op::backward_input), {})};
  b.add({.op = Op::broadcast, .lane = LaneId{1}, .rank = Rank{2}, .group = all, .bytes = 1_MB}, {}, last);
  const Schedule schedule = b.build();
  const Cluster cluster = support::cluster(3);
  const Timeline timeline = simulate(schedule, cluster, cost(33));
  CHECK(timeline.end_of(TaskId{0}) == TimePoint{4'750_ms});
  CHECK(timeline.end_of(TaskId{1}) == TimePoint{4'750_ms});
  CHECK(timeline.end_of(TaskId{3}) == TimePoint{3_s});
  const HeldTime lost = held_time(schedule, cluster, timeline, cost(33).held_sms);
  CHECK(lost.waiting_s == std::vector<double>{0.5, 0.5, 0});
  CHECK(held_time(schedule, cluster, timeline, cost(33).held_sms, std::vector{Rank{0}, Rank{0}, Rank{0}}).waiting_s ==
        std::vector<double>{0.5, 0.5, 0.5});
}

TEST_CASE("an end that waits for its own rank's computation holds nothing beside it") {
  auto b = lanes(2);
  const std::vector first{b.add(compute(1, Op::backward_weight), {})};
  const TaskId other = b.add(compute(0, Op::forward), {});
  b.add(compute(0, Op::backward_input), {});
  // Waits for a task in which neither of its ranks takes part but 1; rank 0 comes at once.
  b.add(pass(0, 1), {}, first);
  const Timeline timeline = simulate(b.build(), support::cluster(2), cost(66));
  CHECK(timeline.end_of(TaskId{0}) == TimePoint{4_s});
  // Rank 0 holds half of its SMs from 0 to 5 s.
  CHECK(timeline.end_of(other) == TimePoint{2_s});
  CHECK(timeline.end_of(TaskId{2}) == TimePoint{5'500_ms});
}

TEST_CASE("a wait for ranks that take no part is where the task is told: at its first rank") {
  auto b = lanes(3);
  const std::vector elsewhere{b.add(compute(2, Op::backward_input), {})};
  b.add(compute(0, Op::backward_weight), {});
  b.add(compute(1, Op::backward_weight), {});
  b.add(pass(0, 1), {}, elsewhere);
  const Timeline timeline = simulate(b.build(), support::cluster(3), cost(66));
  CHECK(timeline.end_of(TaskId{1}) == TimePoint{4'500_ms});  // held from 2 to 3 s
  CHECK(timeline.end_of(TaskId{2}) == TimePoint{5'500_ms});  // from 0 to 3 s
}

TEST_CASE("nothing held, nothing changes; drawn bubbles are no computation") {
  auto b = lanes(2);
  b.add(compute(1, Op::idle), {});
  const std::vector sent{b.add(compute(0, Op::backward_input), {})};
  b.add(pass(0, 1), {}, sent);
  const Schedule schedule = b.build();
  const Timeline expected = simulate(schedule, support::cluster(2), cost(0));
  CHECK(simulate(schedule, support::cluster(2), cost(66)) == expected);
  CHECK(expected.end_of(TaskId{0}) == TimePoint{1_s});
}

TEST_CASE("where waiting holds all SMs, the hang and its mend are named") {
  // Rank 1 waits for rank 0, which waits for rank 2, which waits for what rank 1 computes.
  auto b = lanes(3);
  const std::vector needed{b.add(compute(1, Op::backward_weight), {})};
  const std::vector first{b.add(pass(1, 2, 2), {}, needed)};
  const std::vector second{b.add(pass(2, 0, 2), {}, first)};
  b.add(pass(0, 1, 1), {}, second);
  const Schedule schedule = b.build();
  const Cluster cluster = support::cluster(3);
  CHECK(simulate(schedule, cluster, cost(131)).makespan() == 4_s * 132 + 3_s);
  CHECK_THROWS_WITH_AS(simulate(schedule, cluster, cost(132)),
                       "communications that wait hold 132 SMs of rank 1, which are all that it has, so task 0 never ends and the "
                       "iteration hangs; give communications fewer CTAs",
                       ScheduleError);
}

TEST_CASE("a stop that ends costs its length") {
  CHECK(simulate(early_receive(), support::cluster(2), cost(132)).end_of(TaskId{0}) == TimePoint{7_s});
}

TEST_CASE("devices differ in SMs") {
  auto b = lanes(2);
  b.add(compute(0, Op::backward_weight), {});
  b.add(compute(1, Op::backward_weight), {});
  b.add(pass(0, 1), {});
  FixedCost by_device = cost(8, 0);
  const auto device = [](int sms) {
    return DeviceSpec{.name = "d", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps, .sms = sms};
  };
  const Schedule schedule = b.build();
  CHECK_THROWS_AS(simulate(schedule, support::cluster(2), by_device), InputError);
  const Cluster cluster = ClusterBuilder{}.device(device(16)).devices_per_node(2).intra_node({1_GBps, 1_us}).build();
  CHECK(simulate(schedule, cluster, by_device).end_of(TaskId{1}) == TimePoint{4'500_ms});
}

TEST_CASE("changes of speed lose no part of a picosecond") {
  // Tick by tick: computations of two devices of 7 and 5 SMs, and holds that come and go.
  support::Random random{20261122};
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    EngineGraph graph;
    EngineHolds holds;
    const int sizes[] = {7, 5};
    for (int device = 0; device < 2; ++device) {
      holds.tables.push_back(HeldSms{.pair_ctas = 1}.table(sizes[device]));
      holds.table_of.push_back(device);
    }
    // Pairs of tasks: a delay before the hold and the one that ends it; then computations; then
    // holds.
    struct Span {
      int device, sms, begin, end;
    };
    std::vector<Span> spans;
    for (int i = random.between(1, 8); i > 0; --i) {
      const int begin = random.between(0, 40);
      spans.push_back({random.between(0, 1), random.between(1, 3), begin, begin + random.between(1, 30)});
    }
    const auto add = [&](int delay, int device) {
      graph.tasks.push_back({.delay = delay});
      holds.device_of.push_back(device);
      return graph.tasks.size() - 1;
    };
    std::vector<std::pair<std::size_t, std::size_t>> edges;
    std::vector<std::size_t> befores;
    for (const Span& span : spans) {
      befores.push_back(add(span.begin, -1));
      holds.hold_begin.push_back(static_cast<std::uint32_t>(holds.holds.size()));
      add(span.end - span.begin, -1);
      holds.hold_begin.push_back(static_cast<std::uint32_t>(holds.holds.size()));
      holds.holds.push_back({span.device, span.sms});
    }
    const std::size_t first = graph.tasks.size();
    const int works[] = {random.between(1, 90), random.between(1, 90), random.between(1, 90)};
    const int places[] = {0, 1, 0};
    for (int i = 0; i < 3; ++i) {
      add(works[i], places[i]);
      holds.hold_begin.push_back(static_cast<std::uint32_t>(holds.holds.size()));
    }
    holds.hold_begin.push_back(static_cast<std::uint32_t>(holds.holds.size()));
    for (std::size_t i = 0; i < spans.size(); ++i) {
      graph.tasks.push_back({});
      edges.emplace_back(befores[i], graph.tasks.size() - 1);
      edges.emplace_back(graph.tasks.size() - 1, befores[i] + 1);
    }
    graph.connect([&](auto&& visit) {
      for (const auto& [from, to] : edges) visit(from, to);
    });
    const Timeline timeline = detail::EngineRun{graph, detail::SuccessorOrder{graph}, detail::SharedProcessors{holds}}.run();
    for (int i = 0; i < 3; ++i) {
      int left = works[i] * sizes[places[i]];
      int tick = 0;
      for (; left > 0; ++tick) {
        int held = 0;
        for (const Span& span : spans) {
          if (span.device == places[i] && span.begin <= tick && tick < span.end) held += span.sms;
        }
        left -= std::max(0, sizes[places[i]] - held);
      }
      CHECK(timeline.end[first + static_cast<std::size_t>(i)] == TimePoint{Duration{tick}});
    }
  }
}
