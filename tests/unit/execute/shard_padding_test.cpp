// Tests of the padding of shards, for sizes that neither 8 nor the ranks divide: collectives have
// even parts, updates begin where a kernel loads 16 bytes at once, and no number is another.
// Not: the cuts (schedules/detail/shard_layout_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/toy_training.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/message.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace support;

namespace {

struct Named {
  std::string name;
  Schedule schedule;
};

/// All ways to share states out over ranks in nodes.
std::vector<Named> sharded(const std::vector<std::int32_t>& nodes, bool tied) {
  const DeviceGroups groups{nodes};
  const std::int64_t microbatches = 2 * std::int64_t{groups.ranks()};
  const Workload work = toy_work(toy_model(2, tied), microbatches);
  std::vector<Named> all;
  for (const std::string name : {"fsdp", "hpz", "zero1", "zero2", "hsdp", "hfsdp"}) {
    all.push_back({name, build_schedule(name, {.workload = work, .nodes = groups, .options = {}})});
  }
  all.push_back(
      {"fsdp two-level", build_schedule("fsdp", {.workload = work, .nodes = groups, .options = {{"collectives", "two-level"}}})});
  all.push_back({"zero1 two-level",
                 build_schedule("zero1", {.workload = work, .nodes = groups, .options = {{"collectives", "two-level"}}})});
  return all;
}

/// All-gathers and reduce-scatters whose members have parts of different sizes.
int uneven(const Schedule& schedule, const Dataflow& flow) {
  int count = 0;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId task = id<TaskId>(t);
    if (!has_own_parts(schedule.task(task).op)) continue;
    const std::vector<std::int64_t>& begin = flow.transfer(task).member_begin;
    bool even = true;
    for (std::size_t m = 0; m + 1 < begin.size(); ++m) even = even && begin[m + 1] - begin[m] == begin[1];
    count += even ? 0 : 1;
  }
  return count;
}

/// Pieces of updates, and of these those whose numbers of 2 bytes all begin at a multiple of 16.
std::pair<int, int> in_packs(const Schedule& schedule, const Dataflow& flow) {
  std::pair<int, int> found{0, 0};
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    if (schedule.tasks()[t].op != Op::update) continue;
    for (const UpdatePiece& piece : flow.update(id<TaskId>(t))) {
      ++found.first;
      const auto at = {piece.weights.offset, piece.gradients.offset, piece.optimizer.offset, piece.optimizer_parameters};
      found.second += std::all_of(at.begin(), at.end(), [](std::int64_t place) { return place % 8 == 0; }) ? 1 : 0;
    }
  }
  return found;
}

/// Numbers that ranks copy in the collective, beside those that they add to what they keep.
std::int64_t copied(const Schedule& schedule, const Dataflow& flow) {
  std::int64_t count = 0;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId task = id<TaskId>(t);
    if (!has_own_parts(schedule.task(task).op)) continue;
    for (const TransferEnd& end : flow.transfer(task).ends) {
      const MessagePlan plan = message_plan(schedule, task, flow.transfer(task), end.rank);
      for (const auto* moves : {&plan.before, &plan.after}) {
        for (const Move& move : *moves) count += move.kind == Move::Kind::copy ? move.count : 0;
      }
    }
  }
  return count;
}

}  // namespace

TEST_CASE("on 3, 6 and 24 ranks every gather is even, and every update takes packs") {
  for (const std::vector<std::int32_t>& nodes : std::vector<std::vector<std::int32_t>>{{3}, {3, 3}, {8, 8, 8}}) {
    for (const bool tied : {false, true}) {
      for (const auto& [name, schedule] : sharded(nodes, tied)) {
        CAPTURE(name);
        CAPTURE(schedule.ranks());
        CAPTURE(tied);
        const Dataflow flow = resolve_dataflow(schedule);
        CHECK(uneven(schedule, flow) == 0);
        const auto [pieces, packs] = in_packs(schedule, flow);
        CHECK(packs == pieces);
        CHECK(pieces > 0);
        const Diagnostics diagnostics = validate(schedule);
        CHECK_MESSAGE(diagnostics.errors() + diagnostics.warnings() == 0, diagnostics.text(2));
      }
    }
  }
}

TEST_CASE("padding is gathered where it lies: nothing is copied for it") {
  const Workload work = toy_work(toy_model(2, false), 3);
  for (const std::string name : {"fsdp", "zero1", "zero2", "hpz"}) {
    CAPTURE(name);
    const Schedule schedule = build_schedule(name, {.workload = work, .nodes = DeviceGroups{{3}}, .options = {}});
    CHECK(copied(schedule, resolve_dataflow(schedule)) == 0);
  }
}

TEST_CASE("padding changes no number of training") {
  for (const std::vector<std::int32_t>& nodes : std::vector<std::vector<std::int32_t>>{{3}, {3, 3}, {8, 8, 8}}) {
    for (const bool tied : {false, true}) {
      const ToyOutcome alone = train_by_threads(toy_alone(toy_work(toy_model(2, tied), 2 * DeviceGroups{nodes}.ranks())), 2);
      for (const auto& [name, schedule] : sharded(nodes, tied)) {
        CAPTURE(name);
        CAPTURE(schedule.ranks());
        CAPTURE(tied);
        const ToyOutcome ranks = train_by_threads(schedule, 2);
        CHECK(largest_difference(ranks.losses, alone.losses) < 1e-12);
        CHECK(largest_difference(ranks.weights, alone.weights) < 1e-12);
        CHECK(ranks.copies_differ == 0);
      }
    }
  }
}
