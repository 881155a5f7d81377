// Buffers that share memory are never needed at one time, and the plan is as small as the simulated
// peak.
#include "tawpipe/execute/buffer_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace support;
using namespace tawpipe;

namespace {

/// Which of the rank's buffers share bytes.
bool overlap(const Schedule& schedule, const BufferPlan& plan, std::size_t a, std::size_t b) {
  const std::int64_t end_a = plan.offset[a] + schedule.buffers()[a].bytes.value();
  const std::int64_t end_b = plan.offset[b] + schedule.buffers()[b].bytes.value();
  return plan.offset[a] < end_b && plan.offset[b] < end_a;
}

/// No two buffers share bytes while both are in use.
void check_apart(const Schedule& schedule, const BufferPlan& plan, const Timeline& timeline) {
  struct Life {
    TimePoint from = TimePoint{Duration{std::int64_t{1} << 62}};
    TimePoint to;
  };
  std::vector<Life> lives(schedule.buffers().size());
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      Life& life = lives[index(use.buffer)];
      life.from = std::min(life.from, timeline.start[t]);
      life.to = std::max(life.to, timeline.end[t]);
    }
  }
  for (std::size_t a = 0; a < lives.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (plan.offset[a] < 0 || plan.offset[b] < 0 || !overlap(schedule, plan, a, b)) continue;
      const bool in_turn = lives[a].to <= lives[b].from || lives[b].to <= lives[a].from;
      CHECK(in_turn);
    }
  }
}

}  // namespace

TEST_CASE("persistent buffers share nothing, and plans hold every buffer") {
  const Workload work = toy_work(toy_model(6, true), 6);
  for (const auto& info : shipped().schedules()) {
    CAPTURE(std::string{info.name});
    const ScheduleRequest request{.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}};
    try {
      const Schedule schedule = build_schedule(info.name, request);
      const Lowering lowering{schedule};
      for (int r = 0; r < schedule.ranks(); ++r) {
        Program program = lowering.lower(Rank{r});
        const BufferPlan plan = plan_buffers(schedule, program, Rank{r});
        for (std::size_t b = 0; b < schedule.buffers().size(); ++b) {
          const Buffer& buffer = schedule.buffers()[b];
          if (buffer.rank != Rank{r}) continue;
          if (plan.offset[b] < 0) continue;  // nothing uses it
          CHECK(plan.offset[b] % 64 == 0);
          CHECK(plan.offset[b] + buffer.bytes.value() <= plan.bytes.value());
          if (!buffer.persistent) continue;
          for (std::size_t other = 0; other < schedule.buffers().size(); ++other) {
            if (other == b || schedule.buffers()[other].rank != Rank{r} || plan.offset[other] < 0) continue;
            if (buffer.bytes > Bytes{} && schedule.buffers()[other].bytes > Bytes{}) CHECK(!overlap(schedule, plan, b, other));
          }
        }
      }
    } catch (const InputError&) {
    }
  }
}

TEST_CASE("without alignment the plan takes the simulated peak, or little more, and what is in use at one time is apart") {
  const Workload work = toy_work(toy_model(8, true), 16);
  const Cluster cluster = nodes_of({2, 2});
  const std::set<std::string> exact{"chimera", "gpipe", "looped-bfs", "tawpipe",      "v-half",
                                    "zb-auto", "zb-h1", "zb-h2",      "weipipe-naive"};
  for (const auto& info : shipped().schedules()) {
    const std::string name{info.name};
    CAPTURE(name);
    std::optional<Schedule> built;
    try {
      built = build_schedule(name, {.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}});
    } catch (const InputError&) {
      continue;
    }
    const Schedule& schedule = *built;
    const Timeline expected = simulate(schedule, cluster, RooflineCost{});
    const auto peaks = peak_memory(schedule, expected);
    const Lowering lowering{schedule};
    for (int r = 0; r < schedule.ranks(); ++r) {
      CAPTURE(r);
      Program program = lowering.lower(Rank{r});
      const std::int64_t peak = peaks[static_cast<std::size_t>(r)].total.value();
      const BufferPlan always = plan_buffers(schedule, program, Rank{r}, 1);
      CHECK(always.bytes.value() >= peak);
      CHECK(always.bytes.value() <= peak * 3 / 2);
      CHECK(always.waits.empty());
      const BufferPlan plan = plan_buffers(schedule, program, Rank{r}, 1, &expected);
      CHECK(plan.bytes.value() >= peak);
      CHECK(plan.bytes.value() <= (exact.contains(name) ? peak : peak * 109 / 100));  // sizes differ: gaps
      check_apart(schedule, plan, expected);
      for (const ReuseWait& wait : plan.waits) CHECK(expected.end_of(wait.earlier) <= expected.start_of(wait.waiting));
    }
  }
}
