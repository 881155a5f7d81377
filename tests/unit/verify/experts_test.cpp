// Tests of composed schedules of a mixture of experts under the validator: clean as they are, and
// each mistake by its code.
// Not: bytes by hand (unit/schedule/experts_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "schedules.hpp"
#include "support/draft.hpp"
#include "support/findings.hpp"
#include "support/mixtures.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/verify/validate.hpp"

namespace verify_experts_test {

using namespace tawpipe;
using support::check_finds;
using support::narrow_mixture;
using tawpipe::test::Draft;

namespace {

/// That many microbatches, of a sequence for each rank of the expert axis.
Workload work(const Transformer& model, std::int64_t microbatches, const Mesh& mesh) {
  return Workload{
      model, {.sequence = 6, .microbatch_size = mesh.expert, .global_batch = microbatches * mesh.expert}, Recompute::full};
}
/// Two microbatches a replica.
Schedule composed(const char* name, const Mesh& axes, const Composition& with = {}, const Transformer& model = narrow_mixture,
                  int logical_ranks = 2) {
  const Mesh mesh = axes.over(logical_ranks * axes.copies());
  const Schedule logical =
      build_schedule(name, {.workload = work(model, 2, mesh), .nodes = DeviceGroups::even(logical_ranks, 1), .options = {}});
  return compose(logical, work(model, 2 * mesh.data, mesh), mesh, with);
}
/// Ranks by expert, then replica: 0 and 1 share the first stage's layers, and 4 and 5; 0 and 4 have the
/// same experts.
Draft replicas() { return Draft{composed("1f1b", {.data = 2, .expert = 2, .whole_experts = true})}; }

bool has_experts(const Draft& draft, TaskId t) {
  const Task& task = draft.parts.tasks[index(t)];
  if (task.split == none<SplitId>) return false;
  const ParameterBlocks blocks = draft.workload.model().blocks();
  const auto sets = draft.parts.splits[index(task.split)];
  return std::any_of(sets.begin(), sets.end(),
                     [&](PiecesId set) { return !blocks.part_of(draft.parts.pieces[index(set)], true).empty(); });
}
/// The first sum of a stage's gradients of experts, or of the others.
TaskId sum(const Draft& draft, int stage, bool experts) {
  const auto found = draft.select([&](TaskId t, const Task& task) {
    return is_sum(task.op) && task.payload == Payload::gradients && number(task.stage) == stage &&
           has_experts(draft, t) == experts;
  });
  REQUIRE(!found.empty());
  return found[0];
}

void check_clean(const Schedule& schedule) {
  const Diagnostics found = validate(schedule);
  CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text());
}

/// A collective over other ranks, whose uses become those ranks' buffers of the same content.
void move(Draft& draft, TaskId task, const std::vector<Rank>& members) {
  draft.regroup(task, members);
  auto& uses = draft.uses[index(task)];
  const Use use = uses[0];
  const Content content = draft.parts.buffers[index(use.buffer)].content;
  uses.clear();
  for (const Rank member : members) {
    for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
      const Buffer& buffer = draft.parts.buffers[b];
      if (buffer.rank == member && buffer.content.kind() == content.kind() && buffer.content.stage() == content.stage())
        uses.push_back({id<BufferId>(b), use.access});
    }
  }
  REQUIRE(uses.size() == members.size());
}

}  // namespace

TEST_CASE("schedules that keep their weights are clean with whole experts on each rank") {
  for (const Mesh& axes :
       {Mesh{.expert = 2, .whole_experts = true}, Mesh{.data = 2, .expert = 4, .whole_experts = true},
        Mesh{.tensor = 2, .data = 3, .whole_experts = true}, Mesh{.context = 4, .whole_experts = true},
        Mesh{.tensor = 2, .context = 2, .data = 2, .expert = 2, .order = parse_mesh_order("etcds"), .whole_experts = true}}) {
    for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "gpipe", "ddp"}) {
      const int ranks = std::string_view{name} == "ddp" ? 1 : 2;
      for (const StateSharding sharding : {StateSharding::none, StateSharding::optimizer}) {
        for (const int way : {0, 1, 2}) {
          CAPTURE(name);
          CAPTURE(axes.shared());
          CAPTURE(tawpipe::name(sharding));
          CAPTURE(way);
          check_clean(composed(name, axes,
                               {.stages = {}, .sharding = sharding, .overlap_gradients = way > 0, .bucket = way > 1 ? 1 : 0},
                               narrow_mixture, ranks));
        }
      }
    }
  }
}

TEST_CASE("sharded gradients and parameters are clean with whole experts on each rank") {
  for (const Mesh& axes :
       {Mesh{.expert = 2, .whole_experts = true}, Mesh{.data = 2, .expert = 4, .whole_experts = true},
        Mesh{.tensor = 2, .data = 3, .whole_experts = true}, Mesh{.context = 4, .whole_experts = true},
        Mesh{.tensor = 2, .context = 2, .data = 2, .expert = 2, .order = parse_mesh_order("etcds"), .whole_experts = true}}) {
    for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "gpipe", "ddp"}) {
      const int ranks = std::string_view{name} == "ddp" ? 1 : 2;
      for (const StateSharding sharding : {StateSharding::gradients, StateSharding::parameters}) {
        for (const Reshard reshard : {Reshard::step, Reshard::microbatch}) {
          CAPTURE(name);
          CAPTURE(axes.shared());
          CAPTURE(tawpipe::name(sharding));
          CAPTURE(tawpipe::name(reshard));
          check_clean(composed(name, axes, {.stages = {}, .sharding = sharding, .reshard = reshard}, narrow_mixture, ranks));
        }
      }
    }
  }
}

TEST_CASE("a tied embedding and states in host memory are clean too") {
  Transformer tied = narrow_mixture;
  tied.tied = true;
  for (const Mesh& axes : {Mesh{.tensor = 2, .data = 2, .expert = 2, .whole_experts = true},
                           Mesh{.data = 3, .expert = 2, .whole_experts = true}, Mesh{.expert = 8, .whole_experts = true}}) {
    for (const StateSharding sharding : {StateSharding::none, StateSharding::optimizer}) {
      for (const char* name : {"1f1b", "interleaved-1f1b"}) {
        check_clean(composed(name, axes, {.stages = {}, .sharding = sharding}, tied));
        const Mesh mesh = axes.over(2 * axes.copies());
        const Schedule logical = build_schedule(name, {.workload = work(narrow_mixture, 2, mesh),
                                                       .nodes = DeviceGroups{{2}},
                                                       .options = {},
                                                       .offload = {.activations = true, .optimizer = true}});
        check_clean(compose(logical, work(narrow_mixture, 2 * mesh.data, mesh), mesh, {.stages = {}, .sharding = sharding}));
      }
    }
  }
}

TEST_CASE("V703: the sum of the experts' gradients is missing") {
  Draft draft = replicas();
  draft.remove(sum(draft, 1, true));
  // Of 4 microbatches a replica has 2, each with all tokens of those that are sent to it.
  check_finds(draft, "V703", "update of stage 1, on rank 2");
  check_finds(draft, "V703", "sees a gradient of 2 contributions instead of 4");
}

TEST_CASE("V703: the sum of the other gradients is missing") {
  Draft draft = replicas();
  draft.remove(sum(draft, 0, false));
  // 4 microbatches from the tokens of 2 ranks each; of 2 microbatches it has those of its own tokens.
  check_finds(draft, "V703", "sees a gradient of 2 contributions instead of 8");
}

TEST_CASE("V703, V704: experts' gradients summed over ranks with other experts") {
  Draft draft = replicas();
  const TaskId of_experts = sum(draft, 0, true);
  const auto group = draft.parts.groups[index(draft.task(of_experts).group)];
  REQUIRE(std::vector<Rank>(group.begin(), group.end()) == std::vector<Rank>{Rank{0}, Rank{4}});
  move(draft, of_experts, {Rank{0}, Rank{1}, Rank{4}, Rank{5}});
  check_finds(draft, "V704", "update of stage 0, on rank 0");

  draft = replicas();
  move(draft, sum(draft, 0, true), {Rank{0}, Rank{1}});
  check_finds(draft, "V704", "update of stage 0, on rank 0");
  check_finds(draft, "V703", "update of stage 0, on rank 4");
}

TEST_CASE("V703: the other gradients summed over the replicas only") {
  Draft draft = replicas();
  move(draft, sum(draft, 0, false), {Rank{0}, Rank{4}});
  check_finds(draft, "V703", "update of stage 0, on rank 0");
  check_finds(draft, "V703", "sees a gradient of 4 contributions instead of 8");
}

TEST_CASE("V112, V305: parts of matrices and experts are as large as they are") {
  Draft draft = replicas();
  Task& of_experts = draft.task(sum(draft, 0, true));
  of_experts.bytes = of_experts.bytes - Bytes{1};
  check_finds(draft, "V305", "moves 4607 bytes; its parameters have 4608");  // 2 bytes of half of 2 x 2304

  draft = replicas();
  Task& other = draft.task(sum(draft, 0, false));
  other.bytes = other.bytes - Bytes{1};
  check_finds(draft, "V305", "moves 1823 bytes; its parameters have 1824");  // 2 bytes of 2 x 416 + 80

  draft = replicas();
  const auto weights = std::find_if(draft.parts.buffers.begin(), draft.parts.buffers.end(),
                                    [](const Buffer& buffer) { return buffer.kind() == BufferKind::weights; });
  weights->bytes = weights->bytes - Bytes{1};
  check_finds(draft, "V112", "has 6431 bytes; its parameters take 6432");
}

TEST_CASE("V505, V701: each rank of the expert axis computes every microbatch") {
  Draft draft{composed("1f1b", {.expert = 2, .whole_experts = true})};
  const auto found = draft.select(
      [](TaskId, const Task& task) { return task.op == Op::forward && task.rank == Rank{3} && task.microbatch == 1; });
  REQUIRE(found.size() == 1);
  draft.remove(found[0]);
  check_finds(draft, "V701", "no forward of stage 1, microbatch 1, on expert-parallel rank 1");
}

TEST_CASE("V101: whole experts of a model without any") {
  Transformer dense = narrow_mixture;
  dense.experts = dense.experts_per_token = dense.shared_width = 0;
  Draft draft{composed("1f1b", {.tensor = 2}, {}, dense)};
  check_clean(draft.make());
  draft.parts.mesh.whole_experts = true;
  check_finds(draft, "V101", "ranks have whole experts of a model without experts");

  Draft abstract{compose(build_schedule("1f1b", {Workload::abstract(2, 2), DeviceGroups{{2}}, {}}), Workload::abstract(2, 2),
                         Mesh{.tensor = 2}.over(4))};
  abstract.parts.mesh.whole_experts = true;
  check_finds(abstract, "V101", "ranks have whole experts of a model without experts");

  draft = Draft{composed("1f1b", {.expert = 2, .whole_experts = true})};
  draft.parts.mesh.whole_experts = false;
  check_finds(draft, "V101", "an expert axis needs whole experts on each rank");
}

}  // namespace verify_experts_test
