// Sharded data parallelism, parameter by parameter: which of them each buffer holds and each
// collective carries.
// Not: bytes on links and memory against closed forms (properties/sharded_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedules/sharded.hpp"
#include "tawpipe/verify/validate.hpp"

using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::ParameterRange;
using tawpipe::Payload;
using tawpipe::PiecesId;
using tawpipe::Recompute;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Scope;
using tawpipe::schedules::ShardingPlan;

namespace {

/// Sizes that few numbers of ranks divide: a layer has 4*8*8 + 3*8*4 + 2*8 = 368 parameters, the
/// embedding 88, the norm 8.
Workload small_model(std::int64_t microbatches, bool tied, Recompute recompute = Recompute::none) {
  const tawpipe::Transformer model{
      .name = "small", .layers = 3, .hidden = 8, .heads = 2, .kv_heads = 2, .intermediate = 4, .vocab = 11, .tied = tied};
  return {model, tawpipe::Batch{.sequence = 4, .microbatch_size = 1, .global_batch = microbatches}, recompute};
}

const std::vector<DeviceGroups>& all_nodes() {
  static const std::vector<DeviceGroups> nodes{DeviceGroups{{2}},       DeviceGroups{{2, 2}}, DeviceGroups{{2, 2, 2}},
                                               DeviceGroups{{1, 1, 1}}, DeviceGroups{{2, 1}}, DeviceGroups{{3, 2}},
                                               DeviceGroups{{4, 2}},    DeviceGroups{{1}},    DeviceGroups{{8, 8, 4}}};
  return nodes;
}

std::string text(const DeviceGroups& nodes) {
  std::string text;
  for (int g = 0; g < nodes.count(); ++g) text += tawpipe::concat(g == 0 ? "" : "+", nodes.size(g));
  return text;
}

/// How often the updates of all ranks, of a node's, or of one must have each parameter: once.
void check_updates(const std::vector<std::vector<int>>& updates, const DeviceGroups& nodes, Scope scope) {
  for (std::size_t p = 0; p < updates[0].size(); ++p) {
    int all = 0;
    for (int g = 0; g < nodes.count(); ++g) {
      int node = 0;
      for (const auto rank : nodes.members(g)) {
        node += updates[index(rank)][p];
        if (scope == Scope::replicated) REQUIRE(updates[index(rank)][p] == 1);
      }
      if (scope == Scope::node) REQUIRE(node == 1);
      all += node;
    }
    if (scope == Scope::all) REQUIRE(all == 1);
  }
}

/// [rank][parameter] how often a rank's updates have it: by the optimizer states that they name.
std::vector<std::vector<int>> updates_of(const Schedule& schedule) {
  std::vector<std::vector<int>> updates(static_cast<std::size_t>(schedule.ranks()));
  for (auto& of_rank : updates) of_rank.assign(static_cast<std::size_t>(schedule.workload().model().parameters()), 0);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    if (schedule.tasks()[t].op != Op::update) continue;
    for (const auto& use : schedule.uses(tawpipe::id<tawpipe::TaskId>(t))) {
      const auto& buffer = schedule.buffer(use.buffer);
      if (buffer.content.kind() != tawpipe::ContentKind::optimizer_state) continue;
      for (const ParameterRange& range : schedule.pieces(buffer.content.parameters())) {
        if (schedule.is_padding(range)) continue;
        for (std::int64_t p = range.begin; p < range.end; ++p) ++updates[index(buffer.rank)][static_cast<std::size_t>(p)];
      }
    }
  }
  return updates;
}

void check(const Schedule& schedule, const DeviceGroups& nodes, Scope optimizer) {
  const tawpipe::Diagnostics found = tawpipe::validate(schedule);
  CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text(2));
  check_updates(updates_of(schedule), nodes, optimizer);
}

/// Every plan that is one, with what else changes what travels.
std::vector<ShardingPlan> plans() {
  const std::vector<Scope> scopes{Scope::replicated, Scope::node, Scope::all};
  std::vector<ShardingPlan> plans;
  for (const bool two_level : {false, true}) {
    for (const Scope weights : scopes) {
      for (const Scope gradients : scopes) {
        for (const Scope optimizer : scopes) {
          if (weights > gradients || gradients > optimizer) continue;
          const ShardingPlan plan{
              .weights = weights, .gradients = gradients, .optimizer = optimizer, .two_level = two_level, .prefetch = 1};
          plans.push_back(plan);
          if (weights != Scope::replicated) {
            plans.push_back(plan);
            plans.back().reshard = false;
          }
          if (weights == Scope::all) {
            plans.push_back(plan);
            plans.back().node_copy = true;
          }
          if (gradients == Scope::node && optimizer == Scope::node) {
            plans.push_back(plan);
            plans.back().reduce_each = true;
          }
        }
      }
    }
  }
  return plans;
}

}  // namespace

TEST_CASE("under every plan each computation finds its parameters and each is updated once by the sum of all microbatches") {
  for (const DeviceGroups& nodes : all_nodes()) {
    CAPTURE(text(nodes));
    for (const bool tied : {false, true}) {
      CAPTURE(tied);
      for (const ShardingPlan& plan : plans()) {
        CAPTURE(static_cast<int>(plan.weights));
        CAPTURE(static_cast<int>(plan.gradients));
        CAPTURE(static_cast<int>(plan.optimizer));
        CAPTURE(plan.two_level);
        CAPTURE(plan.node_copy);
        CAPTURE(plan.reduce_each);
        CAPTURE(plan.reshard);
        // two rounds; in the last one some ranks, and where there are more than two nodes a whole
        // node, have nothing to do
        const std::int64_t microbatches = nodes.ranks() + nodes.ranks() / 2 + 1;
        check(tawpipe::schedules::sharded(small_model(microbatches, tied), nodes, plan), nodes, plan.optimizer);
      }
    }
  }
}

TEST_CASE("every sharded strategy of the catalogue, flat and on two levels, with and without recomputation") {
  struct Strategy {
    const char* name;
    Scope optimizer;
    bool levels;  ///< can be told which
  };
  for (const Strategy& strategy :
       {Strategy{"ddp", Scope::replicated, true}, Strategy{"zero1", Scope::all, true}, Strategy{"zero2", Scope::all, true},
        Strategy{"fsdp", Scope::all, true}, Strategy{"hpz", Scope::all, true}, Strategy{"hsdp", Scope::node, false},
        Strategy{"hfsdp", Scope::all, false}}) {
    CAPTURE(strategy.name);
    for (const DeviceGroups& nodes : {DeviceGroups{{3, 2}}, DeviceGroups{{8, 8, 4}}}) {
      CAPTURE(text(nodes));
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        for (const char* collectives : {"flat", "two-level"}) {
          CAPTURE(collectives);
          tawpipe::ScheduleOptions options;
          if (strategy.levels) options["collectives"] = collectives;
          const Workload work = small_model(nodes.ranks(), recompute == Recompute::full, recompute);
          check(tawpipe::build_schedule(strategy.name, {work, nodes, options}), nodes, strategy.optimizer);
        }
      }
    }
  }
}

TEST_CASE("one ring's shards follow the ranks, so that each unit is gathered in the order of its ranks") {
  const DeviceGroups nodes{{4, 2}};
  const Schedule schedule = tawpipe::build_schedule("fsdp", {small_model(6, false), nodes, {}});
  int gathers = 0;
  for (const auto& task : schedule.tasks()) {
    if (task.op != Op::all_gather) continue;
    ++gathers;
    const auto whole = schedule.workload().model().blocks().all_of(schedule.stage(task.stage));
    const std::int64_t begin = whole.front().begin;
    const std::int64_t count = whole.back().end - begin;
    const auto split = schedule.split(task.split);
    REQUIRE(split.size() == 6);
    const std::int64_t each = (count + 47) / 48 * 8;  // padded to 8 on each of 6 ranks
    for (std::int64_t r = 0; r < 6; ++r) {
      const auto ranges = schedule.pieces(split[static_cast<std::size_t>(r)]);
      CHECK(parameters_in(ranges) == each);
      const ParameterRange own{begin + std::min(count, each * r), begin + std::min(count, each * (r + 1))};
      if (own.count() > 0) CHECK(ranges.front() == own);
      if (own.count() < each) CHECK(schedule.is_padding(ranges.back()));
    }
  }
  CHECK(gathers == 2 * 5);
}

TEST_CASE("every buffer of weights, gradients and optimizer states names its parameters, and every message of them") {
  for (const char* name : {"ddp", "fsdp", "hpz"}) {
    for (const Workload& work : {small_model(4, false), Workload::abstract(4, 4)}) {
      const Schedule schedule = tawpipe::build_schedule(name, {work, DeviceGroups{{2, 2}}, {}});
      for (const auto& buffer : schedule.buffers()) {
        CHECK((buffer.content.parameters() != tawpipe::none<PiecesId>) == is_of_parameters(buffer.content.kind()));
      }
      for (const auto& task : schedule.tasks()) {
        if (!is_compute(task.op)) CHECK(task.split != tawpipe::none<tawpipe::SplitId>);
      }
    }
  }
}

TEST_CASE("data-parallel copies hold and carry the same parameters, summed over the copies; tensor parallelism cuts them") {
  const DeviceGroups nodes{{2, 1}};
  for (const char* name : {"ddp", "zero1", "zero2", "fsdp", "hpz", "hsdp", "hfsdp"}) {
    CAPTURE(name);
    const Schedule logical = tawpipe::build_schedule(name, {small_model(4, true), nodes, {}});
    const tawpipe::Mesh data = tawpipe::Mesh{.data = 2}.over(6);
    const Schedule copies = tawpipe::compose(logical, small_model(8, true), data);
    const tawpipe::Diagnostics found = tawpipe::validate(copies);
    CHECK_MESSAGE(found.ok(), found.text(2));
    CHECK(tawpipe::validate(logical).ok());
    for (std::size_t rank = 0; rank < 6; ++rank) CHECK(updates_of(copies)[rank] == updates_of(logical)[rank % 3]);

    const tawpipe::Mesh tensor = tawpipe::Mesh{.tensor = 2}.over(6);
    const Schedule cut = tawpipe::compose(logical, small_model(4, true), tensor);
    REQUIRE(cut.buffers().size() == 2 * logical.buffers().size());
    for (std::size_t b = 0; b < cut.buffers().size(); ++b) {  // the same sets, of which each rank has its part
      const PiecesId whole = logical.buffers()[b / 2].content.parameters();
      const PiecesId part = cut.buffers()[b].content.parameters();
      REQUIRE((whole == tawpipe::none<PiecesId>) == (part == tawpipe::none<PiecesId>));
      if (whole != tawpipe::none<PiecesId>) CHECK(std::ranges::equal(cut.pieces(part), logical.pieces(whole)));
    }
  }
}

TEST_CASE("the validator finds a wrong set: every split of every strategy, and every set of model states") {
  const DeviceGroups nodes{{2, 1}};
  for (const char* name : {"ddp", "zero1", "zero2", "fsdp", "hpz", "hsdp", "hfsdp"}) {
    CAPTURE(name);
    tawpipe::ScheduleOptions options;
    if (std::string{name} == "ddp") options["collectives"] = "two-level";
    const Schedule right = tawpipe::build_schedule(name, {small_model(3, true), nodes, options});
    int faults = 0;
    for (std::size_t t = 0; t < right.tasks().size(); ++t) {
      if (right.tasks()[t].split == tawpipe::none<tawpipe::SplitId>) continue;
      CAPTURE(t);
      auto parts = right.parts();
      parts.tasks[t].split = tawpipe::none<tawpipe::SplitId>;
      CHECK_FALSE(tawpipe::validate(Schedule{right.workload(), parts}).ok());
      ++faults;
    }
    for (std::size_t b = 0; b < right.buffers().size(); ++b) {
      const auto& buffer = right.buffers()[b];
      const PiecesId set = buffer.content.parameters();
      if (set == tawpipe::none<PiecesId> || buffer.bytes.value() == 0) continue;
      CAPTURE(b);
      auto parts = right.parts();
      std::vector<ParameterRange> shifted = parts.pieces.items();
      const auto row = index(set);
      shifted[parts.pieces.begins()[row]].begin += 1;
      parts.pieces = {parts.pieces.begins(), shifted};
      CHECK_FALSE(tawpipe::validate(Schedule{right.workload(), parts}).ok());
      ++faults;
    }
    CHECK(faults > 0);
  }
}
