// Tests of composed schedules under the validator: each mistake of a layout by its code.
// Not: all mistakes there are (properties/mutation_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/draft.hpp"
#include "support/findings.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using support::check_finds;
using tawpipe::test::Draft;

namespace {

Workload work(std::int64_t microbatches) {
  const Transformer model{.name = "m", .layers = 4, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10};
  return Workload{model, {.sequence = 6, .microbatch_size = 1, .global_batch = microbatches}, Recompute::full};
}

/// Two microbatches a replica on two logical ranks.
Draft composed(const char* name, const Mesh& axes) {
  const Schedule logical = build_schedule(name, {.workload = work(2), .nodes = DeviceGroups{{2}}, .options = {}});
  const Mesh mesh = axes.over(2 * axes.copies());
  Draft draft{compose(logical, work(2 * axes.data), mesh)};
  const Diagnostics found = validate(draft.make());
  REQUIRE_MESSAGE(found.errors() + found.warnings() == 0, found.text());
  return draft;
}

TaskId find(const Draft& draft, Op op, Payload payload, int stage = -1, int microbatch = -1) {
  const auto found = draft.select([&](TaskId, const Task& task) {
    return task.op == op && task.payload == payload && (stage < 0 || number(task.stage) == stage) &&
           (microbatch < 0 || task.microbatch == microbatch);
  });
  REQUIRE(!found.empty());
  return found[0];
}

}  // namespace

TEST_CASE("stages without layers have no weights that data parallelism could overwrite") {
  const Mesh mesh = Mesh{.data = 2}.over(12);
  const Schedule logical = build_schedule("1f1b", {.workload = work(6), .nodes = DeviceGroups{{6}}, .options = {}});
  const Diagnostics found = validate(compose(logical, work(12), mesh));
  CHECK_MESSAGE(found.errors() == 0, found.text());
}

TEST_CASE("V703: a sum over replicas that is missing, or comes after the update") {
  Draft draft = composed("1f1b", {.data = 2});
  const TaskId sum = find(draft, Op::all_reduce, Payload::gradients, 1);
  draft.remove(sum);
  check_finds(draft, "V703", "update of stage 1, on rank 1");
  check_finds(draft, "V703", "sees a gradient of 2 contributions instead of 4");  // 2 of 4 microbatches

  draft = composed("1f1b", {.data = 2});
  const TaskId late = find(draft, Op::all_reduce, Payload::gradients, 1);
  for (const TaskId update : draft.select([](TaskId, const Task& task) { return task.op == Op::update; })) {
    if (draft.task(update).stage != StageId{1}) continue;
    auto& row = draft.dependencies[index(update)];
    row.erase(std::remove(row.begin(), row.end(), late), row.end());
    draft.dependencies[index(late)].push_back(update);
  }
  check_finds(draft, "V703", "sees a gradient of 2 contributions instead of 4");
}

TEST_CASE("V703, V704: a sum over other ranks than the copies of one part") {
  Draft draft = composed("1f1b", {.tensor = 2, .data = 2});  // ranks: tensor, then schedule, then data
  const TaskId sum = find(draft, Op::all_reduce, Payload::gradients, 0);
  const auto group = draft.parts.groups[index(draft.task(sum).group)];
  REQUIRE(std::vector<Rank>(group.begin(), group.end()) == std::vector<Rank>{Rank{0}, Rank{4}});
  // Over the tensor-parallel ranks of one replica: two parts of a matrix are added up.
  draft.regroup(sum, {Rank{0}, Rank{1}});
  for (Use& use : draft.uses[index(sum)]) {
    if (draft.parts.buffers[index(use.buffer)].rank != Rank{4}) continue;
    const Buffer& there = draft.parts.buffers[index(use.buffer)];
    for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
      const Buffer& buffer = draft.parts.buffers[b];
      if (buffer.rank == Rank{1} && buffer.kind() == there.kind() && buffer.stage() == there.stage())
        use.buffer = id<BufferId>(b);
    }
  }
  check_finds(draft, "V704", "update of stage 0, on rank 0");
  check_finds(draft, "V703", "update of stage 0, on rank 4");
}

TEST_CASE("V703: context-parallel ranks hold the same parameters, so their gradients are summed") {
  Draft draft = composed("1f1b", {.context = 2});
  draft.remove(find(draft, Op::all_reduce, Payload::gradients, 0));
  check_finds(draft, "V703", "update of stage 0, on rank 0");
}

TEST_CASE("V305: a sum over replicas moves all of the gradient") {
  Draft draft = composed("fsdp", {.data = 2});
  Task& shard = draft.task(find(draft, Op::all_reduce, Payload::gradients));
  shard.bytes = shard.bytes / 2;
  check_finds(draft, "V305", "bytes; its parameters have");
}

TEST_CASE("V505, V701: each rank computes its own part of every microbatch") {
  Draft draft = composed("1f1b", {.tensor = 2});
  const TaskId forward = find(draft, Op::forward, Payload::nothing, 1, 1);
  REQUIRE(draft.task(forward).rank == Rank{2});
  draft.remove(forward);
  check_finds(draft, "V701", "no forward of stage 1, microbatch 1, on tensor-parallel rank 0");

  draft = composed("1f1b", {.context = 2, .data = 2});
  draft.task(find(draft, Op::forward, Payload::nothing, 0, 1)).microbatch = 3;  // one of the other replica's
  check_finds(draft, "V701", "no forward of stage 0, microbatch 1, on context-parallel rank 0");
  check_finds(draft, "V702", "forward of stage 0, microbatch 3");
}

TEST_CASE("V101: a layout that the ranks do not have") {
  Draft draft = composed("1f1b", {.tensor = 2});
  draft.parts.mesh.data = 3;
  check_finds(draft, "V101", "tensor 2 x context 1 x data 3 = 6 does not divide the cluster's 4 devices");
  draft.parts.mesh = {.order = parse_mesh_order("tt")};
  check_finds(draft, "V101", "must name tensor (t), context (c), schedule (s) and data (d) once each");
}
