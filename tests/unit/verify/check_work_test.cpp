// What a schedule says of its work in two places that disagree, each mistake by its code.
// Not: all mistakes in a file (properties/file_mutants_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/draft.hpp"
#include "support/findings.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using support::check_finds;
using tawpipe::test::Draft;

namespace check_work_test {

namespace {

Workload work(std::int64_t microbatches, std::int64_t sequence = 6) {
  const Transformer model{.name = "m", .layers = 4, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10};
  return Workload{model, {.sequence = sequence, .microbatch_size = 1, .global_batch = microbatches}, Recompute::none};
}

Draft checked(const Schedule& schedule) {
  Draft draft{schedule};
  const Diagnostics found = validate(draft.make());
  REQUIRE_MESSAGE(found.errors() + found.warnings() == 0, found.text());
  return draft;
}
Draft plain(const char* name, const Offload& offload = {}) {
  return checked(build_schedule(name, {.workload = work(4), .nodes = DeviceGroups{{2}}, .options = {}, .offload = offload}));
}
/// Two logical ranks around which the layout is.
Draft composed(const Mesh& axes, const Composition& with = {}) {
  const Schedule logical = build_schedule("1f1b", {.workload = work(4), .nodes = DeviceGroups{{2}}, .options = {}});
  return checked(compose(logical, work(4 * axes.data), axes.over(2 * axes.copies()), with));
}

Buffer& buffer_of(Draft& draft, ContentKind kind, bool host = false) {
  for (Buffer& buffer : draft.parts.buffers) {
    if (buffer.content.kind() == kind && buffer.host == host && buffer.bytes > Bytes{}) return buffer;
  }
  FAIL("no such buffer");
  return draft.parts.buffers.front();
}
Task& task_of(Draft& draft, Op op, Payload payload) {
  const auto found =
      draft.select([&](TaskId, const Task& task) { return task.op == op && task.payload == payload && task.bytes > Bytes{}; });
  REQUIRE(!found.empty());
  return draft.task(found[0]);
}

}  // namespace

TEST_CASE("V115: a batch, a recomputation, a part of the model or a stage of other work than the rest") {
  Draft draft = plain("1f1b");
  draft.workload = work(4, 5);
  check_finds(draft, "V115", "the stages are not those of the model's layers, of stage 0: saved is ");

  const Workload& whole = draft.workload;
  LayerStack stack = work(4).model();
  draft.workload = Workload{stack, whole.batch()};  // of sequences of 5 tokens
  check_finds(draft, "V115", "the model is not that of its sizes with sequences of 5 tokens");
  draft.workload = Workload{stack, work(4).batch(), Recompute::full};
  check_finds(draft, "V115", "and recomputation full");
  stack.layer.forward = stack.layer.forward * 2.0;
  draft.workload = Workload{stack, work(4).batch()};
  check_finds(draft, "V115", "of its layer forward is ");

  for (const Mesh& axes : {Mesh{}, Mesh{.tensor = 2}, Mesh{.context = 2, .data = 2}}) {
    draft = composed(axes);
    draft.parts.stages[1].boundary = draft.parts.stages[1].boundary - Bytes{2};
    check_finds(draft, "V115", "of stage 1: boundary is ");
    draft = composed(axes);
    draft.parts.stages[0].backward_weight = draft.parts.stages[0].backward_weight * 0.5;
    check_finds(draft, "V115", "of stage 0: backward_weight is ");
  }
}

TEST_CASE("V116: a buffer, a message or an update larger than its contents") {
  for (const auto& [of, words] : {std::pair{ContentKind::weights, "its parameters take"},
                                  {ContentKind::gradients, "its parameters take"},
                                  {ContentKind::optimizer_state, "its parameters take"},
                                  {ContentKind::saved, "for what it keeps, which takes"},
                                  {ContentKind::activation, "are ever put into it"},
                                  {ContentKind::workspace, "its stages need"}}) {
    CAPTURE(std::string{name(of)});
    Draft draft = plain("1f1b");
    Buffer& buffer = buffer_of(draft, of);
    buffer.bytes += Bytes{1};
    check_finds(draft, "V116", words);
  }
  Draft draft = plain("1f1b");
  Task& pass = task_of(draft, Op::pass, Payload::activations);
  pass.bytes = Bytes{pass.bytes.value() + 1};
  check_finds(draft, "V116", "holds");
  draft = plain("1f1b");
  Task& update = task_of(draft, Op::update, Payload::nothing);
  update.bytes = Bytes{update.bytes.value() + 1};
  check_finds(draft, "V116", "its model states take");
  draft = composed({.data = 3}, {.sharding = StateSharding::optimizer});  // shards of different sizes
  Task& gather = task_of(draft, Op::all_gather, Payload::weights);
  gather.bytes = Bytes{gather.bytes.value() + 1};
  check_finds(draft, "V116", "its parameters take");
  draft = plain("gpipe", {.activations = true});
  Task& copy = task_of(draft, Op::copy_to_host, Payload::activations);
  copy.bytes = Bytes{copy.bytes.value() + 1};
  check_finds(draft, "V116", "carries");
}

TEST_CASE("V117: a bucket that begins with another layer than its message") {
  Draft draft = composed({.data = 2}, {.overlap_gradients = true, .bucket = 1});
  REQUIRE(!draft.parts.buckets.empty());
  draft.parts.buckets.front().layer = 0;
  check_finds(draft, "V117", "is a bucket from layer 0 of its stage on, and carries layers from 1 on");
}

TEST_CASE("V118: a buffer that no task uses") {
  Draft draft = plain("1f1b");
  draft.parts.buffers.push_back(buffer_of(draft, ContentKind::weights));
  check_finds(draft, "V118", "no task uses weights buffer");
}

TEST_CASE("V118: a rank with neither a task nor a buffer, but not one that is idle") {
  Draft draft = checked(build_schedule("tawpipe", {.workload = work(1), .nodes = DeviceGroups{{2}}, .options = {}}));
  draft.parts.ranks = 3;
  draft.program.resize(3 * draft.parts.lanes.size());
  check_finds(draft, "V118", "rank 2 has neither a task nor a buffer");
}

TEST_CASE("V513: a rank without a workspace where others keep one") {
  Draft draft = plain("1f1b");
  buffer_of(draft, ContentKind::workspace).content = Content{ContentKind::tokens};
  check_finds(draft, "V513", "keeps none, as others do");
}

TEST_CASE("V119: a layout of other sizes than the options', or than the microbatches of its ranks") {
  Draft draft = composed({.data = 2});
  draft.parts.mesh = Mesh{.data = 4}.over(4);
  check_finds(draft, "V119", "option data is 2, and the layout's is 4");
  check_finds(draft, "V119", "is of replica ");
  draft.parts.mesh = Mesh{}.over(4);
  check_finds(draft, "V119", "option data is 2, and the layout's is 1");
  draft = composed({.tensor = 2});
  std::find_if(draft.parts.options.begin(), draft.parts.options.end(), [](const auto& one) {
    return one.first == "tensor";
  })->second = "4";
  check_finds(draft, "V119", "option tensor is 4, and the layout's is 2");
}

TEST_CASE("V307: an all-reduce of gradients with a member that brings none") {
  Draft draft = composed({.data = 2});
  const auto sums = draft.select([](TaskId, const Task& task) { return task.op == Op::all_reduce; });
  REQUIRE(!sums.empty());
  draft.uses[index(sums[0])].pop_back();
  check_finds(draft, "V307", "brings nothing to its sum on rank 2");
}

TEST_CASE("V515: optimizer states in host memory that are not persistent") {
  Draft draft = plain("1f1b", {.optimizer = true});
  buffer_of(draft, ContentKind::optimizer_state, true).persistent = false;
  check_finds(draft, "V515", "which is not held until the next iteration");
}

}  // namespace check_work_test
