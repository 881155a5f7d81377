// Every schedule on 40 random draws of cluster, model, batch, options and layout: valid by
// validate(), and by a slow checker that shares nothing with it (TAWPIPE_DRAWS=1000 for more).
// Not: faults that validate() must find (mutation_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/brute_force.hpp"
#include "support/clusters.hpp"
#include "support/draft.hpp"
#include "support/random.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/verify/check_memory.hpp"
#include "tawpipe/verify/validate.hpp"

namespace random_draws_test {

using namespace tawpipe;
using support::BruteForce;
using support::CopyMap;
using support::Random;

namespace {

/// One problem as the command would have it.
struct Draw {
  std::vector<std::int32_t> nodes;
  Mesh mesh;
  std::optional<Transformer> model;
  std::int64_t sequence = 0;
  std::int64_t microbatch_size = 1;
  std::int64_t microbatches = 0;  ///< of each replica
  Recompute recompute = Recompute::none;
  Offload offload = {};
  ScheduleOptions options;
  Bytes device_memory;

  int ranks() const { return std::accumulate(nodes.begin(), nodes.end(), 0); }
  int devices() const { return ranks() / mesh.copies(); }

  Workload workload(int replicas) const {
    if (!model) return Workload::abstract(devices(), microbatches * replicas);
    Workload work{*model, {sequence, microbatch_size, microbatches * replicas * microbatch_size}, recompute};
    work.over_devices(devices());
    return work;
  }

  std::string text() const {
    std::string out;
    for (const auto size : nodes) out += concat(out.empty() ? "" : "+", size);
    out += model ? concat(", ", model->layers, " layers", model->tied ? ", tied" : "") : std::string{", abstract"};
    out += concat(", ", microbatches, " microbatches, recompute ", name(recompute), ", offload ", name(offload));
    if (!mesh.is_plain()) {
      out +=
          concat(", tensor ", mesh.tensor, ", context ", mesh.context, ", data ", mesh.data, ", ", mesh_order_text(mesh.order));
    }
    for (const auto& [key, value] : options) out += concat(", ", key, "=", value);
    return out;
  }
};

/// A value as the list of schedules describes it, such as "eager|paper" or "N|SIZE|all|auto".
std::string draw_value(Random& random, const OptionInfo& info) {
  std::vector<std::string> kinds{""};
  for (const char c : info.values) {
    if (c == '|') {
      kinds.emplace_back();
    } else {
      kinds.back() += c;
    }
  }
  const std::string& kind = one_of(random, kinds);
  if (kind == "N") return std::to_string(random.between(0, 5));
  if (kind == "Np") return concat(random.between(1, 3), "p");
  if (kind == "N+N") return concat(random.between(1, 3), "+", random.between(1, 3));
  if (kind == "SIZE") return concat(random.between(1, 2000), "KiB");
  if (kind == "0..1") return one_of<std::string>(random, {"0", "0.25", "0.5", "1"});
  if (kind == "F:B:W:C") {
    return concat(random.between(1, 9), ":", random.between(1, 9), ":", random.between(1, 9), ":", random.between(0, 3));
  }
  return kind;
}

std::optional<Transformer> draw_model(Random& random) {
  if (random.between(0, 3) == 0) return std::nullopt;
  const int heads = one_of<int>(random, {2, 4, 6});
  Transformer model{.name = "drawn",
                    .layers = random.between(1, 13),
                    .hidden = heads * 4 * random.between(1, 2),
                    .heads = heads,
                    .kv_heads = random.between(0, 1) == 0 ? heads : heads / 2,
                    .intermediate = random.between(10, 40),
                    .vocab = random.between(13, 40),
                    .tied = random.between(0, 1) == 0};
  return model;
}

/// Sizes, a model and options for a schedule, which may refuse them.
Draw draw(Random& random, const ScheduleInfo& info) {
  static const std::vector<std::vector<std::int32_t>> clusters{
      {1},    {2},    {3},    {4},    {6},       {8},       {1, 1},    {2, 2},    {4, 4},       {3, 3},
      {2, 1}, {1, 3}, {4, 2}, {3, 2}, {3, 2, 1}, {4, 4, 2}, {2, 2, 2}, {1, 2, 1}, {2, 2, 2, 2}, {1, 1, 4, 1}};
  static const std::vector<std::vector<std::int32_t>> composed_clusters{{2}, {4},    {8},    {4, 4},    {6, 6},      {2, 2},
                                                                        {6}, {4, 2}, {8, 4}, {4, 4, 4}, {2, 2, 2, 2}};
  Draw drawn;
  const bool composed = random.between(0, 2) == 0;
  drawn.nodes = one_of(random, composed ? composed_clusters : clusters);
  if (composed) {
    drawn.mesh = {random.between(1, 2), random.between(1, 2), random.between(1, 3)};
    for (std::size_t i = 3; i > 0; --i) {  // any order of the axes
      std::swap(drawn.mesh.order[i], drawn.mesh.order[static_cast<std::size_t>(random.between(0, static_cast<int>(i)))]);
    }
    if (random.between(0, 1) == 0) drawn.mesh.order = Mesh{}.order;
  }
  drawn.model = draw_model(random);
  drawn.sequence = random.between(4, 9);
  drawn.microbatch_size = random.between(1, 2);
  drawn.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::selective, Recompute::full});
  const int logical = std::max(1, drawn.ranks() / (drawn.mesh.copies()));
  // Some schedules ask for twice as many microbatches as ranks, or a multiple of them: meet that
  // half of the time.
  drawn.microbatches = random.between(0, 1) == 0 ? random.between(1, 12) : logical * random.between(1, logical > 4 ? 2 : 3);
  for (const OptionInfo& option : info.options) {
    if (random.between(0, 2) == 0) drawn.options[option.name] = draw_value(random, option);
  }
  const auto can_search = [](const OptionInfo& option) { return option.values == "paper|searched"; };
  if (std::any_of(info.options.begin(), info.options.end(), can_search)) {
    auto& options = drawn.options;  // what only a search takes asks for one; few moves, for speed
    if (options.count("moves") > 0 || (info.name != "zb-auto" && options.count("memory-limit") + options.count("times") > 0)) {
      options["order"] = "searched";
    }
    if (options.count("order") > 0 && options["order"] == "searched") options.try_emplace("moves", "40");
  }
  if (const std::int64_t pick = drawn.sequence + drawn.microbatches + drawn.ranks(); pick % 3 == 0) {
    drawn.offload = {.activations = pick % 2 == 0, .optimizer = pick % 5 > 1, .ahead = static_cast<int>(1 + pick % 4)};
  }
  drawn.device_memory = Bytes{random.between(0, 1) == 0 ? 0 : random.between(1, 64) * 16384};
  return drawn;
}

/// Builds as the command does: a logical schedule, then its copies.
Schedule build(const Draw& drawn, const std::string& name) {
  const Mesh mesh = drawn.mesh.over(drawn.ranks());
  const DeviceGroups nodes{drawn.nodes};
  const Schedule logical = build_schedule(name, {.workload = drawn.workload(1),
                                                 .nodes = drawn.mesh.is_plain() ? nodes : mesh.pipeline_nodes(nodes),
                                                 .options = drawn.options,
                                                 .device_memory = drawn.device_memory,
                                                 .offload = drawn.offload});
  if (drawn.mesh.is_plain()) return logical;
  return compose(logical, drawn.workload(drawn.mesh.data), mesh);
}

struct Counts {
  int accepted = 0;
  int refused = 0;
  int composed = 0;
  int unequal = 0;
};

void check(const Draw& drawn, const Schedule& schedule, std::uint64_t seed) {
  const std::string what = drawn.text();
  CAPTURE(what);
  const Diagnostics found = validate(schedule, support::nodes_of(drawn.nodes));
  CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text());
  const CopyMap map{drawn.mesh, drawn.ranks()};
  BruteForce brute{schedule, map};
  for (const std::string& finding : brute.run(seed, 3)) FAIL_CHECK(finding);
  const std::vector<Bytes> least = min_memory(schedule);
  for (std::size_t r = 0; r < brute.min_peaks().size(); ++r) CHECK(least[r].value() <= brute.min_peaks()[r]);
}

Counts check_draws(const ScheduleInfo& info, std::uint64_t seed) {
  Random random{seed};
  Counts counts;
  while (counts.accepted < support::draws(40) && counts.refused < 100 * support::draws(40)) {
    const Draw drawn = draw(random, info);
    try {
      const Schedule schedule = build(drawn, info.name);
      check(drawn, schedule, random.next());
    } catch (const InputError&) {
      ++counts.refused;
      continue;
    }
    ++counts.accepted;
    counts.composed += drawn.mesh.is_plain() ? 0 : 1;
    const bool unequal = std::adjacent_find(drawn.nodes.begin(), drawn.nodes.end(), std::not_equal_to<>{}) != drawn.nodes.end();
    counts.unequal += unequal ? 1 : 0;
  }
  CHECK(counts.accepted == support::draws(40));
  CHECK(counts.composed > 0);
  return counts;
}

}  // namespace

TEST_CASE("every schedule is valid on 40 random draws, by the validator and by brute force") {
  std::string text = "accepted  refused  composed  unequal  schedule\n";
  std::uint64_t seed = 1;
  for (const ScheduleInfo& info : shipped().schedules()) {
    CAPTURE(info.name);
    const Counts counts = check_draws(info, seed++);
    text += concat(counts.accepted, "\t", counts.refused, "\t", counts.composed, "\t", counts.unequal, "\t", info.name, "\n");
  }
  MESSAGE(text);
}

TEST_CASE("brute force finds every communication that is left out, and every computation") {
  const auto faults = [](const Schedule& schedule, const Mesh& layout) {
    const CopyMap map{layout, schedule.ranks()};
    REQUIRE(BruteForce(schedule, map).run(1, 1).empty());
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      if (schedule.tasks()[t].op == Op::idle) continue;
      test::Draft draft{schedule};
      draft.remove(id<TaskId>(t));
      const Schedule mutant = draft.make();
      const std::string removed = support::describe(schedule, t);
      CAPTURE(removed);
      const bool found = !BruteForce(mutant, map).run(1, 1).empty();
      CHECK(found == !validate(mutant).ok());
      // With so few shards a slot may still hold the one that arrives: its message makes no
      // difference.
      const bool weights = schedule.tasks()[t].payload == Payload::weights && schedule.tasks()[t].op != Op::all_gather;
      CHECK((found || weights));
    }
  };
  Draw drawn{
      .nodes = {2, 1},
      .mesh = {},
      .model = Transformer{.name = "m", .layers = 3, .hidden = 8, .heads = 2, .kv_heads = 2, .intermediate = 12, .vocab = 13},
      .sequence = 4,
      .microbatch_size = 1,
      .microbatches = 3,
      .recompute = Recompute::full,
      .options = {},
      .device_memory = {}};
  for (const char* name : {"tawpipe", "weipipe", "weipipe-naive", "weipipe-zb2", "fsdp", "hpz", "hsdp", "hfsdp", "zero1", "ddp",
                           "1f1b", "zb-h1", "dualpipe-v"}) {
    CAPTURE(std::string{name});
    faults(build(drawn, name), drawn.mesh);
  }
  drawn.options = {{"collectives", "two-level"}};
  for (const char* name : {"fsdp", "zero1", "zero2", "ddp"}) faults(build(drawn, name), drawn.mesh);
  drawn.options.clear();
  drawn.nodes = {8};
  drawn.mesh = {.tensor = 2, .context = 2, .data = 1};
  faults(build(drawn, "1f1b"), drawn.mesh);
  drawn.mesh = {.tensor = 2, .context = 1, .data = 2};
  faults(build(drawn, "tawpipe"), drawn.mesh);
  drawn.nodes = {4, 4};
  drawn.mesh = {.tensor = 2, .context = 1, .data = 1};
  drawn.options = {{"stripe", "on"}};
  faults(build(drawn, "tawpipe"), drawn.mesh);
}

TEST_CASE("brute force finds dependencies that are left out, lanes out of order, and tasks that wait for each other") {
  Draw drawn{.nodes = {2, 2},
             .mesh = {},
             .model = std::nullopt,
             .sequence = 4,
             .microbatch_size = 1,
             .microbatches = 4,
             .recompute = Recompute::none,
             .options = {},
             .device_memory = {}};
  const Schedule schedule = build(drawn, "1f1b");
  const CopyMap map{drawn.mesh, 4};
  const auto faulty = [&](const test::Draft& draft) { return !BruteForce(draft.make(), map).run(1, 2).empty(); };
  int unneeded = 0;  // dependencies that others imply
  int needed = 0;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (std::size_t d = 0; d < schedule.dependencies(id<TaskId>(t)).size(); ++d) {
      test::Draft draft{schedule};
      draft.dependencies[t].erase(draft.dependencies[t].begin() + static_cast<std::ptrdiff_t>(d));
      const Diagnostics found = validate(draft.make());
      CHECK(faulty(draft) == !found.ok());
      ++(found.ok() ? unneeded : needed);
    }
  }
  CHECK(needed > unneeded);
  for (std::size_t row = 0; row < schedule.parts().program.size(); ++row) {
    test::Draft draft{schedule};
    if (draft.program[row].size() < 3) continue;
    std::swap(draft.program[row].front(), draft.program[row].back());
    CHECK(faulty(draft));
  }
  test::Draft waiting{schedule};
  waiting.dependencies[0].push_back(id<TaskId>(schedule.tasks().size() - 1));
  CHECK(faulty(waiting));
}

}  // namespace random_draws_test
