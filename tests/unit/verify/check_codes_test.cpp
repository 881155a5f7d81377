// Tests of the checks of structure, order, transfers, races, contents and completeness: each code
// by one small mistake.
// Not: all mistakes there are (properties/mutation_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/draft.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedules/data_parallel.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using tawpipe::test::Draft;

namespace {

/// GPipe of two stages and two microbatches; the tasks are found by what they do.
Draft pipeline() { return Draft{schedules::gpipe(Workload::abstract(2, 2), 2)}; }
Draft weights() { return Draft{schedules::tawpipe(Workload::abstract(2, 2), DeviceGroups{{2}})}; }
Draft shards() { return Draft{schedules::fully_sharded(Workload::abstract(2, 2), DeviceGroups{{2}})}; }

Workload model() {
  const Transformer transformer{
      .name = "m", .layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10};
  return {transformer, {.sequence = 6, .microbatch_size = 1, .global_batch = 4}};
}

/// GPipe of two stages and four microbatches, whose activations and optimizer states lie in host
/// memory between their uses.
Draft offloaded() { return Draft{with_offload(schedules::gpipe(model(), 2), {.activations = true, .optimizer = true})}; }

TaskId find(const Draft& draft, Op op, int stage, int microbatch = -1) {
  const auto found = draft.select([&](TaskId, const Task& task) {
    return task.op == op && number(task.stage) == stage && (microbatch < 0 || task.microbatch == microbatch);
  });
  REQUIRE(!found.empty());
  return found[0];
}
Use& use_of(Draft& draft, TaskId t, BufferKind kind, Access access) {
  for (Use& use : draft.uses[index(t)]) {
    if (draft.parts.buffers[index(use.buffer)].kind() == kind && use.access == access) return use;
  }
  FAIL("no such use");
  return draft.uses[0][0];
}
Diagnostics findings(const Draft& draft) { return validate(draft.make()); }

bool says(const Diagnostics& found, std::string_view code, std::string_view words) {
  return std::any_of(found.findings().begin(), found.findings().end(), [&](const Finding& finding) {
    return finding.code == code && finding.message.find(words) != std::string::npos && !finding.help.empty();
  });
}

}  // namespace

// Checked and printed together, so that a failure shows what was found instead.
#define CHECK_FINDS(draft, code, words)                    \
  do {                                                     \
    const Diagnostics found = findings(draft);             \
    CHECK_MESSAGE(says(found, code, words), found.text()); \
  } while (false)

TEST_CASE("the schedules that the mistakes are made in are clean") {
  CHECK(findings(pipeline()).errors() == 0);
  CHECK(findings(weights()).errors() == 0);
  CHECK(findings(shards()).errors() == 0);
  CHECK(findings(offloaded()).errors() == 0);
}

TEST_CASE("V103, V104: a task stands once in the lane of each of its ends") {
  Draft draft = pipeline();
  const TaskId t = find(draft, Op::pass, 1, 0);
  auto& lane = draft.lane(Rank{1}, number(draft.task(t).peer_lane));
  lane.erase(std::find(lane.begin(), lane.end(), t));
  CHECK_FINDS(draft, "V103",
              "pass of activations, stage 1, microbatch 0, rank 0 -> 1 (task 1) is missing in lane receive_previous of rank 1");
  draft.lane(Rank{0}, 0).push_back(t);
  CHECK_FINDS(draft, "V104", "does not belong in lane compute of rank 0");
}
TEST_CASE("V105 to V109, V111: lanes, groups, ends and stages exist") {
  Draft draft = pipeline();
  draft.task(TaskId{0}).lane = LaneId{9};
  CHECK_FINDS(draft, "V105", "on a lane that does not exist");
  draft = weights();
  draft.parts.groups = Rows<Rank>{{0, 2}, {Rank{1}, Rank{1}}};
  CHECK_FINDS(draft, "V106", "group 0 names a rank twice");
  draft = pipeline();
  draft.task(find(draft, Op::pass, 1)).peer = Rank{0};
  CHECK_FINDS(draft, "V107", "has one rank at both ends");
  draft = weights();
  draft.parts.groups = Rows<Rank>{{0, 1}, {Rank{0}}};
  draft.task(find(draft, Op::broadcast, 0)).rank = Rank{1};
  CHECK_FINDS(draft, "V108", "not a member of its group");
  draft = pipeline();
  use_of(draft, find(draft, Op::forward, 0), BufferKind::weights, Access::read).buffer =
      use_of(draft, find(draft, Op::forward, 1), BufferKind::weights, Access::read).buffer;
  CHECK_FINDS(draft, "V109", "uses weights buffer 3 of stage 1 on rank 1, which takes no part in it");
  draft = pipeline();
  draft.task(TaskId{0}).microbatch = 2;
  CHECK_FINDS(draft, "V111", "the iteration does not have (2 stages, 2 microbatches)");
}
TEST_CASE("V114, V305, V306: only host copies use host memory, from one side to the other, whole") {
  const Draft clean = offloaded();
  Draft draft = clean;
  const TaskId out = find(draft, Op::copy_to_host, 0, 0);
  const TaskId in = find(draft, Op::copy_from_host, 0, 0);
  const BufferId host = use_of(draft, out, BufferKind::activations, Access::write).buffer;
  use_of(draft, find(draft, Op::backward, 0, 0), BufferKind::activations, Access::read).buffer = host;
  CHECK_FINDS(draft, "V114", "uses host activations buffer");
  draft = clean;
  use_of(draft, in, BufferKind::activations, Access::read).buffer =
      use_of(draft, out, BufferKind::activations, Access::read).buffer;
  CHECK_FINDS(draft, "V306", "copy_from_host of activations, stage 0, microbatch 0, on rank 0");
  draft = clean;
  draft.task(out).bytes = Bytes{1};
  CHECK_FINDS(draft, "V305", "moves 1 of ");
  draft = clean;
  draft.uses[index(out)].clear();
  CHECK_FINDS(draft, "V301", "reads nothing to send");
}
TEST_CASE("V501, V507, V706, V709: what comes from the host was brought there, and states go back after their update") {
  const Draft clean = offloaded();
  Draft draft = clean;
  draft.remove(find(draft, Op::copy_to_host, 0, 1));
  CHECK_FINDS(draft, "V501", "reads host activations buffer");
  draft = clean;
  draft.remove(find(draft, Op::copy_from_host, 0, 1));
  CHECK_FINDS(draft, "V501", "which nothing has written before");
  draft = clean;  // another microbatch's activations
  use_of(draft, find(draft, Op::copy_from_host, 0, 0), BufferKind::activations, Access::read).buffer =
      use_of(draft, find(draft, Op::copy_from_host, 0, 1), BufferKind::activations, Access::read).buffer;
  CHECK_FINDS(draft, "V507", "which is for saved of stage 0, microbatch 0");
  const auto states = [&](const Draft& from, Op op) {
    return from.select([&](TaskId, const Task& task) { return task.op == op && task.payload == Payload::optimizer_states; });
  };
  draft = clean;
  draft.remove(states(draft, Op::copy_from_host)[0]);
  CHECK_FINDS(draft, "V501", "transfer buffer");
  draft = clean;
  draft.remove(states(draft, Op::copy_to_host)[0]);
  CHECK_FINDS(draft, "V709", "does not get its states back after their update");
  draft = clean;
  draft.task(states(draft, Op::copy_to_host)[0]).payload = Payload::activations;
  CHECK_FINDS(draft, "V507", "finds optimizer_state in");
  draft = clean;  // fetched while the forward still writes: nothing orders the two
  const TaskId early = find(draft, Op::copy_from_host, 0, 2);
  draft.dependencies[index(early)].clear();
  CHECK(findings(draft).errors() > 0);
}
TEST_CASE("V201, V602, V601: a cycle is named by its tasks") {
  Draft draft = pipeline();
  draft.dependencies[0].push_back(TaskId{0});
  CHECK_FINDS(draft, "V201", "1 task waits for itself: forward of stage 0, microbatch 0, on rank 0 (task 0)");
  draft = pipeline();
  auto& lane = draft.lane(Rank{1}, number(draft.task(find(draft, Op::pass, 1)).peer_lane));
  std::swap(lane[0], lane[1]);
  CHECK_FINDS(draft, "V602",
              "2 tasks wait for each other: pass of activations, stage 1, microbatch 0, rank 0 -> 1 (task 1); then pass");
  CHECK_FINDS(draft, "V601",
              "rank 1 issues pass of activations, stage 1, microbatch 1, rank 0 -> 1 (task 3) where rank 0 issues");
}
TEST_CASE("V202: ids that are not an order are an error") {
  Draft draft = pipeline();
  // The first two forwards of rank 0 change places with all that follows from them: valid, but not
  // in the order of ids.
  auto& lane = draft.lane(Rank{1}, 0);
  std::swap(*std::find(lane.begin(), lane.end(), find(draft, Op::forward, 1, 0)),
            *std::find(lane.begin(), lane.end(), find(draft, Op::forward, 1, 1)));
  const Diagnostics found = findings(draft);
  CHECK_MESSAGE(found.errors() == 1, found.text());
  CHECK(found.count("V202") == 1);
}
TEST_CASE("V301 to V305: both ends of a transfer, and its size") {
  Draft draft = pipeline();
  const TaskId t = find(draft, Op::pass, 1, 0);
  draft.uses[index(t)][0].access = Access::write;
  draft.uses[index(t)][1].access = Access::read;
  CHECK_FINDS(draft, "V301", "reads nothing to send on rank 0");
  CHECK_FINDS(draft, "V302", "writes nothing that it receives on rank 1");
  CHECK_FINDS(draft, "V303", "uses a buffer in a way that its op does not have on rank 0");
  draft = pipeline();
  draft.task(t).bytes = Bytes{1000001};
  CHECK_FINDS(draft, "V304", "moves 1000001 bytes through activations buffer");
  draft.task(t).bytes = Bytes{999999};
  CHECK_FINDS(draft, "V305", "moves 999999 of 1000000 bytes of activations buffer");
}
TEST_CASE("V401, V402: uses in no order") {
  Draft draft = pipeline();
  draft.dependencies[index(find(draft, Op::pass, 1, 0))].clear();
  CHECK_FINDS(draft, "V401", "forward of stage 0, microbatch 0, on rank 0 (task 0) changes activations buffer");
  draft = Draft{schedules::tawpipe(Workload::abstract(2, 4), DeviceGroups{{1, 1}})};
  for (auto& row : draft.dependencies) row.clear();
  CHECK_FINDS(draft, "V402", ", in no order");
}
TEST_CASE("V501: nothing is read before it is written") {
  Draft draft = pipeline();
  draft.remove(find(draft, Op::pass, 1, 0));
  CHECK_FINDS(draft, "V501", "forward of stage 1, microbatch 0, on rank 1 (task 3) reads activations buffer");
}
TEST_CASE("V502, V503: the right weights, and all of them") {
  Draft draft = weights();
  const TaskId t = find(draft, Op::forward, 0, 1);
  use_of(draft, t, BufferKind::transfer, Access::read).buffer =
      use_of(draft, find(draft, Op::forward, 1, 1), BufferKind::weights, Access::read).buffer;
  CHECK_FINDS(draft, "V502", "reads no weights of stage 0, but those of stage 1 in weights buffer");
  draft = shards();
  const TaskId gather = find(draft, Op::all_gather, 0);
  auto& uses = draft.uses[index(gather)];
  uses.erase(std::find_if(uses.begin(), uses.end(), [](const Use& use) { return use.access == Access::read; }));
  CHECK_FINDS(draft, "V503", "reads weights of which 500000 of 1000000 parameters have arrived");
}
TEST_CASE("V504: no use of weights behind their update") {
  Draft draft = pipeline();
  const TaskId update = find(draft, Op::update, 0);
  auto& lane = draft.lane(Rank{0}, 0);
  lane.erase(std::find(lane.begin(), lane.end(), update));
  lane.insert(lane.begin(), update);
  draft.dependencies[index(update)].clear();
  CHECK_FINDS(
      draft, "V504",
      "forward of stage 0, microbatch 0, on rank 0 (task 0) reads weights buffer 0 of stage 0 on rank 0 after its update");
  CHECK_FINDS(draft, "V703", "update of stage 0, on rank 0 (task 12) sees a gradient of 0 contributions instead of 2");
}
TEST_CASE("V505, V506, V509: activations go from stage to stage and from forward to backward") {
  Draft draft = pipeline();
  const TaskId first = find(draft, Op::forward, 1, 0);
  const TaskId second = find(draft, Op::forward, 1, 1);
  use_of(draft, second, BufferKind::activations, Access::read) = use_of(draft, first, BufferKind::activations, Access::read);
  CHECK_FINDS(draft, "V505", "does not read the forward's result of stage 0, but the forward's result of stage 0, microbatch 0");
  CHECK_FINDS(draft, "V509", "which nothing reads");
  draft = pipeline();
  auto& saved = use_of(draft, find(draft, Op::backward, 1, 0), BufferKind::activations, Access::read);
  saved = use_of(draft, find(draft, Op::backward, 1, 1), BufferKind::activations, Access::read);
  CHECK_FINDS(draft, "V506", "does not read what its forward saved, but what a forward saved of stage 1, microbatch 1");
}
TEST_CASE("V501, V506, V507, V509: what a backward_input leaves goes to the backward_weight of its stage and microbatch") {
  Workload recomputed{*model().model().decoder, model().batch(), Recompute::full};
  const Draft right{schedules::zb_h1(recomputed, 2)};
  CHECK(findings(right).errors() == 0);
  Draft draft = right;
  const auto stash = [&](int stage, int microbatch) -> Use& {
    return use_of(draft, find(draft, Op::backward_input, stage, microbatch), BufferKind::activations, Access::write);
  };
  const auto taken = [&](int microbatch) -> Use& {  // the last that a backward_weight of stage 1 reads of activations
    Use* last = nullptr;
    for (Use& use : draft.uses[index(find(draft, Op::backward_weight, 1, microbatch))]) {
      if (draft.parts.buffers[index(use.buffer)].kind() == BufferKind::activations) last = &use;
    }
    return *last;
  };
  std::swap(taken(0), taken(1));
  CHECK_FINDS(draft, "V506",
              "does not read what its backward_input left, but what a backward_input left of stage 1, microbatch 1");
  draft = right;
  stash(1, 0).access = Access::read;
  CHECK_FINDS(draft, "V501", "which nothing has written before");
  draft = right;
  taken(0) = taken(1);
  CHECK_FINDS(draft, "V509", "which nothing reads");
  draft = right;
  for (Use& use : draft.uses[index(find(draft, Op::pass, 0, 0))]) {
    if (use.access == Access::read) use.buffer = stash(1, 0).buffer;
  }
  CHECK_FINDS(draft, "V507", "finds what a backward_input left of stage 1, microbatch 0");
}
TEST_CASE("V507, V508, V510: buffers are used for what they are") {
  Draft draft = pipeline();
  draft.task(find(draft, Op::pass, 1, 0)).payload = Payload::weights;
  CHECK_FINDS(draft, "V507", "finds the forward's result of stage 0, microbatch 0 in activations buffer");
  draft = pipeline();
  use_of(draft, find(draft, Op::forward, 1, 0), BufferKind::weights, Access::read).access = Access::write;
  CHECK_FINDS(draft, "V508", "writes weights buffer 3 of stage 1 on rank 1, which is not its to change");
  draft = weights();
  use_of(draft, find(draft, Op::forward, 0, 0), BufferKind::activations, Access::read_write).access = Access::accumulate;
  CHECK_FINDS(draft, "V510", "whose old content stays");
}
TEST_CASE("V701, V702: each microbatch meets each stage once") {
  Draft draft = pipeline();
  draft.task(find(draft, Op::backward, 1, 0)).microbatch = 1;
  CHECK_FINDS(draft, "V701", "no backward of stage 1, microbatch 0");
  CHECK_FINDS(draft, "V702", "backward of stage 1, microbatch 1, on rank 1 (task 9) runs for the second time");
}
TEST_CASE("V703, V704: each gradient counts once") {
  Draft draft = pipeline();
  const TaskId t = find(draft, Op::backward, 1, 1);
  use_of(draft, t, BufferKind::gradients, Access::accumulate).access = Access::write;
  CHECK_FINDS(draft, "V703", "sees a gradient of 1 contributions instead of 2: stage 1, microbatch 0 is missing");
  draft = Draft{schedules::tawpipe(Workload::abstract(2, 2), DeviceGroups{{1, 1}})};
  const auto passes = draft.select([](TaskId, const Task& task) { return task.payload == Payload::gradients; });
  REQUIRE(!passes.empty());
  draft.uses[index(passes[0])].push_back(draft.uses[index(passes[0])][1]);
  CHECK_FINDS(draft, "V704", "counts twice");
}
TEST_CASE("V703, V113: findings about a model of another kind have its own names") {
  LayerStack mixers{.name = "mixers", .layers = 2};
  mixers.first_edge.parameters = 6;
  mixers.layer = {.parameters = 12, .saved = Bytes{8}, .boundary = Bytes{8}};
  mixers.last_edge = {.parameters = 4, .saved = Bytes{8}};
  mixers.names = {.first_edge = {{"patches", 6}}, .layer = "mixer", .last_edge = {{"classes", 4}}};
  Draft draft{schedules::gpipe(Workload{mixers, {.sequence = 1, .microbatch_size = 1, .global_batch = 2}}, 2)};
  REQUIRE(findings(draft).errors() == 0);
  use_of(draft, find(draft, Op::backward, 1, 1), BufferKind::gradients, Access::accumulate).access = Access::write;
  CHECK_FINDS(draft, "V703", "stage 1, microbatch 0 is missing, of mixer.1");
  draft.parts.stages[1].last_edge = false;
  CHECK_FINDS(draft, "V113",
              "stage 1 has 1 layers from layer 1 on, and the model's 2 layers are not those of the stages in order");
}
TEST_CASE("V705 to V707: every rank updates what it owns, once") {
  Draft draft = pipeline();
  const TaskId update = find(draft, Op::update, 1);
  draft.remove(update);
  CHECK_FINDS(draft, "V705", "weights buffer 3 of stage 1 on rank 1 is never updated");
  draft = pipeline();
  use_of(draft, update, BufferKind::weights, Access::read_write).access = Access::read;
  CHECK_FINDS(draft, "V707", "changes no weights");
  draft = pipeline();
  draft.uses[index(update)].push_back(use_of(draft, update, BufferKind::weights, Access::read_write));
  CHECK_FINDS(draft, "V706", "is updated 2 times");
}
TEST_CASE("V708: a weight's gradient comes behind its input's") {
  Draft draft{schedules::zb_h1(model(), 2)};
  REQUIRE(findings(draft).errors() == 0);
  const TaskId weight = find(draft, Op::backward_weight, 1, 0);
  const TaskId input = find(draft, Op::backward_input, 1, 0);
  auto& lane = draft.lane(Rank{1}, 0);
  lane.erase(std::find(lane.begin(), lane.end(), weight));
  lane.insert(std::find(lane.begin(), lane.end(), input), weight);
  CHECK_FINDS(draft, "V708", "runs before its backward_input");
}
TEST_CASE("V703, V709: states that are cut are brought together again") {
  Draft draft{schedules::data_parallel(model(), DeviceGroups{{2, 2}}, {.two_level = true})};
  REQUIRE(findings(draft).errors() == 0);
  draft.remove(find(draft, Op::all_gather, 1));
  CHECK_FINDS(draft, "V703", " contributions instead of 4");
  draft = Draft{schedules::zero1(model(), DeviceGroups{{4}})};
  REQUIRE(findings(draft).errors() == 0);
  draft.remove(find(draft, Op::all_gather, 1));
  CHECK_FINDS(draft, "V709", "weights buffer 12 of stage 1 on rank 0 ends with 128 of 512 parameters updated");  // 496 / 4
  // Of unequal nodes the third rank updates a half, the others a quarter each; the first has missed
  // the third's.
  draft = Draft{schedules::zero1(model(), DeviceGroups{{2, 1}}, {.two_level = true})};
  REQUIRE(findings(draft).errors() == 0);
  draft.remove(draft
                   .select([&](TaskId, const Task& task) {
                     return task.op == Op::all_gather && task.stage == StageId{1} &&
                            draft.parts.groups[index(task.group)][0] == Rank{0};
                   })
                   .front());
  CHECK_FINDS(draft, "V709", "on rank 2 ends with 384 of 512 parameters updated");
}
