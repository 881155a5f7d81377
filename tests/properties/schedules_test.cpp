// What every schedule must do, on many sizes: order, hazards, and that every number is where it is
// needed.
// Not: how long it takes (unit/schedule/) nor how much is sent (traffic_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/graph_order.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"
#include "tawpipe/verify/validate.hpp"

using support::describe;
using tawpipe::Access;
using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::TaskId;
using tawpipe::Workload;
using tawpipe::schedules::Order;

namespace {

/// Messages of one check; the first few are enough.
using Findings = std::vector<std::string>;

void find(Findings& findings, const std::string& what) {
  if (findings.size() < 10) findings.push_back(what);
}

/// Each task stands, once, on each lane where it has an end and nowhere else; ids grow along every
/// lane and dependency.
Findings check_structure(const Schedule& schedule) {
  Findings findings;
  const std::size_t count = schedule.tasks().size();
  std::map<std::pair<std::size_t, int>, int> ends;  // (task, rank) -> lane
  const auto expect_end = [&](std::size_t task, tawpipe::Rank rank, int lane) {
    if (!ends.try_emplace({task, number(rank)}, lane).second)
      find(findings, describe(schedule, task) + " has two ends on a rank");
  };
  for (std::size_t t = 0; t < count; ++t) {
    const auto& task = schedule.tasks()[t];
    if (tawpipe::is_collective(task.op)) {
      const auto members = schedule.group(task.group);
      for (const auto rank : members) expect_end(t, rank, number(task.lane));
      if (std::ranges::find(members, task.rank) == members.end()) find(findings, describe(schedule, t) + " has an outside root");
    } else {
      expect_end(t, task.rank, number(task.lane));
      if (tawpipe::is_point_to_point(task.op)) expect_end(t, task.peer, number(task.peer_lane));
      if (tawpipe::is_compute(task.op) && task.lane != tawpipe::LaneId{})
        find(findings, describe(schedule, t) + " computes beside lane 0");
    }
    for (const TaskId earlier : schedule.dependencies(tawpipe::id<TaskId>(t))) {
      if (tawpipe::index(earlier) >= t) find(findings, describe(schedule, t) + " depends on a later task");
    }
  }
  std::size_t queued = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      const auto program = schedule.program(tawpipe::Rank{rank}, lane);
      for (std::size_t i = 0; i < program.size(); ++i) {
        const auto end = ends.find({tawpipe::index(program[i]), rank});
        if (end == ends.end() || end->second != lane)
          find(findings, describe(schedule, tawpipe::index(program[i])) + " is astray");
        if (i > 0 && program[i] <= program[i - 1]) find(findings, "ids fall along a lane");
        if (schedule.lane_on(program[i], tawpipe::Rank{rank}) != lane) find(findings, "lane_on() says another lane");
      }
      queued += program.size();
    }
  }
  if (queued != ends.size()) find(findings, "some ends stand on no lane");
  return findings;
}

/// Each microbatch meets each stage once forward and once backward, in order. A backward may be
/// split: its first part is what others wait for.
Findings check_microbatches(const Schedule& schedule, const support::Ancestors& ancestors) {
  Findings findings;
  const std::size_t stages = schedule.stages().size();
  const auto microbatches = static_cast<std::size_t>(schedule.workload().microbatches());
  constexpr auto missing = static_cast<std::size_t>(-1);
  std::vector<std::size_t> forward(stages * microbatches, missing);
  std::vector<std::size_t> backward = forward;
  std::vector<std::size_t> of_weights = forward;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const auto& task = schedule.tasks()[t];
    if (!tawpipe::is_work(task.op) || task.op == Op::update) continue;
    auto& kind = task.op == Op::forward ? forward : task.op == Op::backward_weight ? of_weights : backward;
    auto& known = kind[static_cast<std::size_t>(task.microbatch) * stages + index(task.stage)];
    if (known != missing) find(findings, describe(schedule, t) + " comes twice");
    known = t;
  }
  const auto expect_before = [&](std::size_t earlier, std::size_t later) {
    if (earlier == missing || later == missing) {
      find(findings, "a computation is missing");
    } else if (!ancestors.precedes(earlier, later)) {
      find(findings, describe(schedule, earlier) + " need not come before " + describe(schedule, later));
    }
  };
  for (std::size_t m = 0; m < microbatches; ++m) {
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t here = m * stages + s;
      expect_before(forward[here], backward[here]);
      const bool split = backward[here] != missing && schedule.tasks()[backward[here]].op == Op::backward_input;
      if (split) expect_before(backward[here], of_weights[here]);
      if (s == 0) continue;
      expect_before(forward[here - 1], forward[here]);
      expect_before(backward[here], backward[here - 1]);
    }
  }
  return findings;
}

/// Any two uses of a buffer, one of which changes it, are ordered.
Findings check_hazards(const Schedule& schedule, const support::Ancestors& ancestors) {
  Findings findings;
  struct Touch {
    std::size_t task;
    bool changes;
  };
  std::vector<std::vector<Touch>> touches(schedule.buffers().size());
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const auto& use : schedule.uses(tawpipe::id<TaskId>(t))) {
      touches[tawpipe::index(use.buffer)].push_back({t, use.access != Access::read});
    }
  }
  for (const auto& of_buffer : touches) {
    for (std::size_t j = 0; j < of_buffer.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        if (!of_buffer[i].changes && !of_buffer[j].changes) continue;
        if (of_buffer[i].task == of_buffer[j].task || ancestors.precedes(of_buffer[i].task, of_buffer[j].task)) continue;
        find(findings, describe(schedule, of_buffer[i].task) + " and " + describe(schedule, of_buffer[j].task) + " race");
      }
    }
  }
  return findings;
}

void check_nothing(const Findings& findings) {
  for (const auto& finding : findings) FAIL_CHECK(finding);
}

void check_all(const Schedule& schedule) {
  std::string built = schedule.name();
  for (const auto& [key, value] : schedule.options()) built += tawpipe::concat(" ", key, "=", value);
  CAPTURE(built);
  const Findings structure = check_structure(schedule);
  check_nothing(structure);
  if (!structure.empty()) return;  // ancestors need ids in order
  const support::Ancestors ancestors{support::direct_predecessors(schedule)};
  check_nothing(check_microbatches(schedule, ancestors));
  check_nothing(check_hazards(schedule, ancestors));
  const tawpipe::Diagnostics found = tawpipe::validate(schedule);
  CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text(2));
  CHECK(true);  // counted
}

struct Size {
  std::vector<std::int32_t> groups;
  std::int64_t microbatches;

  int ranks() const { return std::accumulate(groups.begin(), groups.end(), 0); }
};

/// All ways to cut 1 .. 9 ranks evenly, some uneven ones, each with microbatches that do and do not
/// divide.
std::vector<Size> sizes() {
  std::vector<Size> all;
  const auto add = [&](const std::vector<std::int32_t>& groups, std::initializer_list<std::int64_t> counts) {
    for (const auto count : counts) {
      if (count >= 1) all.push_back({groups, count});
    }
  };
  for (std::int32_t p = 1; p <= 9; ++p) {
    for (std::int32_t d = 1; d <= p; ++d) {
      if (p % d != 0) continue;
      const std::vector<std::int32_t> groups(static_cast<std::size_t>(d), p / d);
      add(groups, {1, p - 1, p, p + 1, 2 * p + 1});
    }
  }
  for (const std::vector<std::int32_t>& groups :
       {std::vector<std::int32_t>{3, 2, 1}, {1, 2, 3}, {2, 1}, {1, 3}, {4, 2}, {2, 3, 2}, {3, 3, 1}, {1, 1, 4, 1}}) {
    const std::int64_t p = std::accumulate(groups.begin(), groups.end(), 0);
    add(groups, {1, 2, p, p + 2, 2 * p + 1});
  }
  return all;
}

/// Calls `check(workload, groups)` for each size with an abstract workload, and for some with a
/// small model.
template <class Check>
void for_each_workload(Check&& check) {
  for (const Size& size : sizes()) {
    const DeviceGroups groups{size.groups};
    std::string text;
    for (const auto group : size.groups) text += tawpipe::concat(text.empty() ? "" : "+", group);
    CAPTURE(text);
    CAPTURE(size.microbatches);
    check(Workload::abstract(size.ranks(), size.microbatches), groups);
    if (size.ranks() > 6 && size.microbatches != size.ranks() + 1) continue;
    // layers that do not divide evenly; more ranks than layers from 6 on
    check(support::transformer(5, size.microbatches, size.microbatches % 2 == 0), groups);
  }
}

}  // namespace

TEST_CASE("TawPipe, eager: order, hazards, weights and gradients") {
  for_each_workload(
      [](const Workload& work, const DeviceGroups& groups) { check_all(tawpipe::schedules::tawpipe(work, groups)); });
}

TEST_CASE("TawPipe as the paper draws it, with one buffer, with three, and without overlap") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    if (groups.ranks() > 6) return;
    check_all(tawpipe::schedules::tawpipe(work, groups, {.order = Order::paper}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.buffers = 1}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.buffers = 3}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.overlap = false}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.prefetch = tawpipe::schedules::Prefetch::backward}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.order = Order::paper, .overlap = false, .buffers = 1}));
  });
}

TEST_CASE("TawPipe with fewer or more shards than ranks, and with shards kept in the nodes") {
  using Limit = tawpipe::schedules::NodeCache::Limit;
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    const int p = groups.ranks();
    if (p > 6) return;
    for (const int shards : {1, p - 1, 2 * p, 2 * p + 1}) {
      if (shards < 1) continue;
      check_all(tawpipe::schedules::tawpipe(work, groups, {.shards = shards}));
      check_all(tawpipe::schedules::tawpipe(work, groups, {.shards = shards, .cache = {.limit = Limit::all}}));
    }
    check_all(tawpipe::schedules::tawpipe(work, groups, {.cache = {.shards = 1}}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.order = Order::paper, .buffers = 1, .cache = {.limit = Limit::all}}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.overlap = false, .buffers = 3, .cache = {.limit = Limit::all}}));
  });
}

TEST_CASE("TawPipe with striped shards: order, hazards, weights and gradients") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    if (groups.count() == 1 || groups.largest() == 1) return;
    check_all(tawpipe::schedules::tawpipe(work, groups, {.stripe = true}));
    if (groups.ranks() > 6) return;
    check_all(tawpipe::schedules::tawpipe(work, groups, {.buffers = 1, .stripe = true}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.shards = 2 * groups.ranks() + 1, .stripe = true}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.order = Order::paper, .overlap = false, .stripe = true}));
  });
}

TEST_CASE("TawPipe on devices of different speeds: order, hazards, weights and gradients") {
  using Limit = tawpipe::schedules::NodeCache::Limit;
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    if (groups.ranks() > 6) return;
    std::vector<double> speeds;
    for (int r = 0; r < groups.ranks(); ++r) speeds.push_back(1 + r * 3 % 4);
    check_all(tawpipe::schedules::tawpipe(work, groups, {.speeds = speeds}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.overlap = false, .stripe = true, .speeds = speeds}));
    check_all(tawpipe::schedules::tawpipe(work, groups, {.buffers = 1, .speeds = speeds, .cache = {.limit = Limit::all}}));
  });
}

TEST_CASE("WeiPipe: order, hazards, weights and gradients") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    if (groups.count() > 1) return;
    for (const auto order : {Order::paper, Order::eager}) {
      for (const bool overlap : {true, false}) {
        check_all(tawpipe::schedules::weipipe(work, groups.ranks(), {.order = order, .overlap = overlap}));
        check_all(tawpipe::schedules::weipipe_naive(work, groups.ranks(), {.order = order, .overlap = overlap}));
      }
    }
  });
}

TEST_CASE("zero-bubble WeiPipe: order, hazards, weights and gradients") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    for (const auto order : {Order::paper, Order::eager}) {
      for (const bool overlap : {true, false}) {
        check_all(tawpipe::schedules::weipipe_zb2(work, groups, {.order = order, .overlap = overlap, .split = true}));
        check_all(tawpipe::schedules::weipipe_zb2(work, groups, {.order = order, .overlap = overlap, .split = false}));
        if (groups.count() > 1) continue;
        check_all(tawpipe::schedules::weipipe_zb1(work, groups.ranks(), {.order = order, .overlap = overlap, .split = true}));
      }
    }
  });
}

TEST_CASE("FSDP, flat: order, hazards, weights and gradients") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    if (groups.count() > 1) return;
    for (const int prefetch : {0, 1, 3}) {
      for (const bool reshard : {true, false}) {
        check_all(tawpipe::schedules::fully_sharded(work, groups, {.prefetch = prefetch, .reshard = reshard}));
      }
    }
    check_all(tawpipe::schedules::fully_sharded(work, groups, {.overlap = false}));
  });
}

TEST_CASE("FSDP on two levels: order, hazards, weights and gradients") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    check_all(tawpipe::schedules::fully_sharded(work, groups, {.two_level = true}));
    if (groups.ranks() > 6) return;
    check_all(tawpipe::schedules::fully_sharded(work, groups, {.two_level = true, .prefetch = 0, .reshard = false}));
    check_all(tawpipe::schedules::fully_sharded(work, groups, {.two_level = true, .overlap = false}));
  });
}

TEST_CASE("GPipe and 1F1B: order, hazards, weights and gradients") {
  for_each_workload([](const Workload& work, const DeviceGroups& groups) {
    if (groups.count() > 1) return;
    for (const bool overlap : {true, false}) {
      check_all(tawpipe::schedules::gpipe(work, groups.ranks(), {.overlap = overlap}));
      check_all(tawpipe::schedules::one_f_one_b(work, groups.ranks(), {.overlap = overlap}));
    }
  });
}

TEST_CASE("the check of hazards finds a schedule in which nothing waits") {
  const DeviceGroups groups = DeviceGroups::even(6, 2);
  const Schedule right = tawpipe::schedules::tawpipe(Workload::abstract(6, 12), groups);
  const auto races = [](const Schedule& schedule) {
    return !check_hazards(schedule, support::Ancestors{support::direct_predecessors(schedule)}).empty();
  };
  CHECK_FALSE(races(right));
  {
    auto parts = right.parts();  // nothing waits but for its lanes
    parts.dependencies = {std::vector<std::uint32_t>(parts.tasks.size() + 1), {}};
    CHECK(races({right.workload(), parts}));
  }
}
