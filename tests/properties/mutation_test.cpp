// Mutants: every change to a schedule that changes what it computes, or lets it hang, must be found
// by validate(). Whether a mutant changes anything is decided without the validator: its tasks are
// run in many orders on hashes, and the final weights are compared with those of the schedule it
// came from.
// Not: what each finding says (tests/unit/analysis/).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/draft.hpp"
#include "support/mutations.hpp"
#include "support/symbolic_run.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedules/data_parallel.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/hybrid_sharded.hpp"
#include "tawpipe/schedules/interleaved_one_f_one_b.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"
#include "tawpipe/verify/check_order.hpp"
#include "tawpipe/verify/check_races.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::test;

namespace {

constexpr unsigned orders = 6;

std::vector<Bytes> bytes_of(const Schedule& schedule) {
  std::vector<Bytes> bytes;
  for (const Task& task : schedule.tasks()) bytes.push_back(task.bytes);
  return bytes;
}

/// Whether some order of the mutant ends in other weights than the schedule it came from, or does
/// not end.
bool changes_behaviour(const Schedule& mutant, const Draft& draft, const std::vector<Bytes>& bytes,
                       const std::vector<std::vector<std::uint64_t>>& expected, Mersenne& random) {
  if (!Interpreter::well_formed(mutant)) return true;
  std::vector<Bytes> known;
  for (const TaskId t : draft.origin) known.push_back(bytes[index(t)]);
  const std::vector<double> parts = parts_of(mutant);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Interpreter interpreter{mutant, known, parts[i]};
    for (unsigned policy = 0; policy < orders; ++policy) {
      if (interpreter.run(policy, random) != expected[i]) return true;
    }
  }
  return false;
}

/// Whether two uses of a buffer, one of them no read, lie in no order: by the closure of all edges.
bool has_race(const Schedule& schedule, const std::vector<TaskId>& order) {
  const std::size_t count = schedule.tasks().size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  std::vector<std::vector<std::size_t>> from(count);
  detail::for_each_wait(schedule, [&](std::size_t a, std::size_t b) { from[b].push_back(a); });
  for (const TaskId t : order) {
    auto& mine = before[index(t)];
    for (const std::size_t earlier : from[index(t)]) {
      mine[earlier] = true;
      for (std::size_t i = 0; i < count; ++i) mine[i] = mine[i] || before[earlier][i];
    }
  }
  std::vector<std::vector<std::pair<std::size_t, bool>>> users(schedule.buffers().size());
  for (std::size_t t = 0; t < count; ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) users[index(use.buffer)].emplace_back(t, use.access != Access::read);
  }
  for (const auto& all : users) {
    for (const auto& [a, a_writes] : all) {
      for (const auto& [b, b_writes] : all) {
        if (a < b && (a_writes || b_writes) && !before[a][b] && !before[b][a]) return true;
      }
    }
  }
  return false;
}

struct MutantCounts {
  int changed = 0;  ///< and all of them found
  int flagged = 0;  ///< found, though no order tried ended otherwise
  int benign = 0;   ///< neither
};
std::array<MutantCounts, std::size(mutations)>& table() {
  static std::array<MutantCounts, std::size(mutations)> counts;
  return counts;
}

void mutate(const std::string& what, const Schedule& schedule, int rounds) {
  CAPTURE(what);
  const Diagnostics clean = validate(schedule);
  INFO(clean.text());
  REQUIRE(clean.errors() + clean.warnings() == 0);
  const std::vector<Bytes> bytes = bytes_of(schedule);
  Mersenne random{20240229};
  std::vector<std::vector<std::uint64_t>> expected;
  for (const double part : parts_of(schedule)) {
    for (unsigned policy = 0; policy < 4 * orders; ++policy) {  // the oracle agrees: no order makes a difference
      const auto result = Interpreter{schedule, bytes, part}.run(policy, random);
      REQUIRE(!result.empty());
      if (policy == 0) expected.push_back(result);
      REQUIRE(result == expected.back());
    }
  }
  for (std::size_t kind = 0; kind < std::size(mutations); ++kind) {
    for (int round = 0; round < rounds; ++round) {
      Draft draft{schedule};
      if (!mutations[kind].apply(draft, random)) continue;
      const Schedule mutant = draft.make();
      const Diagnostics found = validate(mutant);
      const bool changed = changes_behaviour(mutant, draft, bytes, expected, random);
      MutantCounts& counts = table()[kind];
      ++(changed ? counts.changed : !found.ok() ? counts.flagged : counts.benign);
      if (!changed || !found.ok()) continue;
      std::string difference;
      for (std::size_t t = 0; t < std::min(mutant.tasks().size(), schedule.tasks().size()); ++t) {
        const auto a = mutant.uses(id<TaskId>(t));
        const auto b = schedule.uses(id<TaskId>(t));
        const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(),
                                     [](const Use& x, const Use& y) { return x.buffer == y.buffer && x.access == y.access; });
        if (!same) difference += " uses of " + detail::describe(mutant, id<TaskId>(t));
        if (mutant.tasks()[t].bytes != schedule.tasks()[t].bytes)
          difference += " bytes of " + detail::describe(mutant, id<TaskId>(t));
        if (difference.size() > 300) break;
      }
      FAIL_CHECK("not found: " << std::string{mutations[kind].name} << " in round " << round << difference);
    }
  }
}

Workload model(int microbatches, bool tied = false, Recompute recompute = Recompute::none) {
  const Transformer transformer{
      .name = "m", .layers = 6, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .tied = tied};
  return {transformer, {.sequence = 6, .microbatch_size = 1, .global_batch = microbatches}, recompute};
}

schedules::TawpipeOptions tawpipe_options(schedules::Order order, bool overlap) {
  schedules::TawpipeOptions options;
  options.order = order;
  options.overlap = overlap;
  return options;
}

/// Mutants that only take order away: check_races must agree with the closure, both ways.
void compare_races(const Schedule& schedule, int count) {
  Mersenne random{7};
  int racing = 0;
  for (int round = 0; round < count; ++round) {
    Draft draft{schedule};
    for (std::size_t i = 0; i <= below(random, 3); ++i) drop_dependency(draft, random);
    if (below(random, 2) == 0) like_buffer(draft, random);
    const Schedule mutant = draft.make();
    Diagnostics found;
    const auto order = check_cycles(mutant, found);
    REQUIRE(order.size() == mutant.tasks().size());
    check_races(mutant, order, found);
    const bool expected = has_race(mutant, order);
    racing += expected ? 1 : 0;
    CHECK((found.has("V401") || found.has("V402")) == expected);
  }
  CHECK(racing > 0);
  CHECK(racing < count);
}

constexpr int rounds = 40;

}  // namespace

using schedules::Order;

TEST_CASE("mutants of TawPipe are found") {
  mutate("eager", schedules::tawpipe(model(8), DeviceGroups{{2, 2}}), rounds);
  mutate("paper order", schedules::tawpipe(model(8), DeviceGroups{{2, 2}}, tawpipe_options(Order::paper, true)), rounds);
}
TEST_CASE("mutants of TawPipe without overlap or with unequal groups are found") {
  mutate("no overlap", schedules::tawpipe(model(4), DeviceGroups{{2, 2}}, tawpipe_options(Order::eager, false)), rounds);
  mutate("unequal groups", schedules::tawpipe(model(5), DeviceGroups{{2, 1, 1}}), rounds);
}
TEST_CASE("mutants of striped TawPipe are found") {
  schedules::TawpipeOptions options;
  options.stripe = true;
  mutate("equal groups", schedules::tawpipe(model(8), DeviceGroups{{2, 2}}, options), rounds);
  mutate("unequal groups, a short last round", schedules::tawpipe(model(6), DeviceGroups{{2, 3}}, options), rounds / 2);
  options.buffers = 1;
  options.overlap = false;
  mutate("one buffer, no overlap", schedules::tawpipe(model(4), DeviceGroups{{2, 2}}, options), rounds / 2);
}
TEST_CASE("mutants of TawPipe on devices of different speeds are found") {
  schedules::TawpipeOptions options;
  options.speeds = {2, 2, 1, 1};
  mutate("two groups", schedules::tawpipe(model(7), DeviceGroups{{2, 2}}, options), rounds / 2);
  options.stripe = true;
  mutate("striped", schedules::tawpipe(model(6), DeviceGroups{{2, 2}}, options), rounds / 2);
}
TEST_CASE("mutants of WeiPipe are found") {
  mutate("paper order", schedules::weipipe(model(8), 4), rounds);
  mutate("eager, no overlap", schedules::weipipe(model(6), 3, {.order = Order::eager, .overlap = false}), rounds);
  mutate("naive", schedules::weipipe_naive(model(5), 3), rounds / 2);
}
TEST_CASE("mutants of zero-bubble WeiPipe are found") {
  mutate("one line", schedules::weipipe_zb1(model(5), 3, {.split = true}), rounds);
  mutate("two lines, no overlap", schedules::weipipe_zb2(model(6), DeviceGroups{{2, 1}}, {.overlap = false, .split = true}),
         rounds);
}
TEST_CASE("mutants of FSDP are found") {
  mutate("flat", schedules::fully_sharded(model(5), DeviceGroups{{2, 1}}), rounds);
  mutate("two-level", schedules::fully_sharded(model(8), DeviceGroups{{2, 2}}, {.two_level = true}), rounds);
}
TEST_CASE("mutants of FSDP with unequal groups or without resharding are found") {
  mutate("unequal groups", schedules::fully_sharded(model(5), DeviceGroups{{2, 1}}, {.two_level = true}), rounds);
  mutate("no resharding", schedules::fully_sharded(model(3), DeviceGroups{{3}}, {.reshard = false, .overlap = false}), rounds);
}
TEST_CASE("mutants of GPipe are found") {
  mutate("overlap", schedules::gpipe(model(6), 3, {.overlap = true}), rounds);
  mutate("tied, no overlap", schedules::gpipe(model(4, true), 3, {.overlap = false}), rounds);
}
TEST_CASE("mutants of schedules with activations and optimizer states in host memory are found") {
  const Offload offload{.activations = true, .optimizer = true};
  mutate("GPipe", with_offload(schedules::gpipe(model(6), 2, {.overlap = true}), offload), rounds);
  mutate("FSDP", with_offload(schedules::fully_sharded(model(4), DeviceGroups{{2}}), offload), rounds / 2);
  mutate("TawPipe", with_offload(schedules::tawpipe(model(4), DeviceGroups{{2, 2}}), offload), rounds / 2);
}
TEST_CASE("mutants of 1F1B are found") {
  mutate("overlap", schedules::one_f_one_b(model(6, true), 3, {.overlap = true}), rounds);
  mutate("no overlap", schedules::one_f_one_b(model(6), 3, {.overlap = false}), rounds);
}
TEST_CASE("mutants of zero-bubble and interleaved pipelines are found") {
  mutate("ZB-H1", schedules::zb_h1(model(6), 3), rounds);
  mutate("interleaved", schedules::interleaved_one_f_one_b(model(4, true), 2), rounds);
}
TEST_CASE("mutants of zero bubble with recomputation, whose backwards leave a stash, are found") {
  mutate("ZB-H1", schedules::zb_h1(model(6, false, Recompute::full), 3), rounds);
  mutate("ZB-H2, tied", schedules::zb_h2(model(5, true, Recompute::selective), 3), rounds);
  mutate("WeiPipe", schedules::weipipe_zb1(model(5, false, Recompute::full), 3, {.split = true}), rounds / 2);
}
TEST_CASE("mutants of DDP, ZeRO and HSDP are found") {
  mutate("DDP", schedules::data_parallel(model(4, true), DeviceGroups{{3}}), rounds / 2);
  mutate("ZeRO-1", schedules::zero1(model(4), DeviceGroups{{3}}), rounds / 2);
  mutate("ZeRO-2", schedules::zero2(model(4), DeviceGroups{{3}}), rounds / 2);
  mutate("HSDP", schedules::hybrid_sharded(model(5), DeviceGroups{{2, 2}}), rounds / 2);
}
TEST_CASE("mutants of composed schedules are found") {
  const auto composed = [](const char* name, const Mesh& axes, int logical, int microbatches,
                           Recompute recompute = Recompute::none) {
    const Mesh mesh = axes.over(logical * axes.copies());
    const DeviceGroups nodes = logical % 2 == 0 ? DeviceGroups::even(logical, 2) : DeviceGroups::even(logical, 1);
    const Schedule one = build_schedule(name, {.workload = model(microbatches, false, recompute), .nodes = nodes, .options = {}});
    mutate(concat(name, " in a layout"), compose(one, model(microbatches * axes.data, false, recompute), mesh), rounds / 2);
  };
  composed("1f1b", {.tensor = 2, .data = 2}, 2, 3);
  composed("1f1b", {.tensor = 2, .context = 2}, 2, 3);
  composed("zb-h1", {.context = 2, .data = 2}, 2, 3);
  composed("zb-h1", {.tensor = 2, .data = 2}, 2, 3, Recompute::full);
  composed("tawpipe", {.tensor = 2, .data = 2}, 2, 2);
  composed("fsdp", {.tensor = 2, .data = 2}, 2, 2);
  composed("zero1", {.context = 2, .data = 2}, 2, 2);
}
TEST_CASE("mutants of sharded gradients and parameters with experts on devices of their own are found") {
  Transformer mixture{.name = "m", .layers = 4, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 6, .vocab = 10};
  mixture.experts = 4;
  mixture.experts_per_token = 2;
  const auto composed = [&](const char* name, const Mesh& axes, int logical, StateSharding sharding, Reshard reshard) {
    const auto work = [&](int replicas) {
      return Workload{mixture, {.sequence = 6, .microbatch_size = axes.expert, .global_batch = 2 * replicas * axes.expert}};
    };
    const Schedule one = build_schedule(name, {.workload = work(1), .nodes = DeviceGroups::even(logical, 1), .options = {}});
    mutate(concat(name, " with experts, ", tawpipe::name(sharding)),
           compose(one, work(axes.data), axes.over(logical * axes.copies()), {.sharding = sharding, .reshard = reshard}),
           rounds / 2);
  };
  composed("1f1b", {.data = 2, .expert = 2, .whole_experts = true}, 2, StateSharding::gradients, Reshard::automatic);
  composed("1f1b", {.data = 2, .expert = 2, .whole_experts = true}, 2, StateSharding::parameters, Reshard::step);
  composed("ddp", {.expert = 4, .whole_experts = true}, 1, StateSharding::parameters, Reshard::microbatch);
}
TEST_CASE("races are found exactly where two uses lie in no order") {
  compare_races(schedules::tawpipe(model(4), DeviceGroups{{2, 1}}), 40);
  compare_races(schedules::weipipe(model(4), 3), 40);
  compare_races(schedules::fully_sharded(model(3), DeviceGroups{{2, 1}}, {.two_level = true}), 20);
  compare_races(schedules::one_f_one_b(model(4), 3, {.overlap = true}), 40);
}
TEST_CASE("every mutation has changed something somewhere, and harmless ones are few") {
  std::string text = "\nchanged (all found)  flagged  harmless  mutation\n";
  for (std::size_t kind = 0; kind < std::size(mutations); ++kind) {
    const MutantCounts& counts = table()[kind];
    text += concat(counts.changed, "\t", counts.flagged, "\t", counts.benign, "\t", mutations[kind].name, "\n");
  }
  MESSAGE(text);
  for (std::size_t kind = 0; kind < std::size(mutations); ++kind) {
    CAPTURE(std::string{mutations[kind].name});
    const MutantCounts& counts = table()[kind];
    CHECK((counts.changed > 0 || counts.changed + counts.flagged + counts.benign == 0));
  }
}
