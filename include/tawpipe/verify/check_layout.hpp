// Where a schedule's work lies: the layout is that of its options and microbatches (V119), a bucket
// that of its message (V117), and every buffer and rank serves something (V118).
// Not: what the work is (verify/check_work.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// Adds a finding where a layout differs from what its options say, or from the microbatches that its
/// replicas compute, for buckets that begin with another layer than their messages, workspaces of
/// other sizes than their stages need, and buffers and ranks that nothing uses.
/// @pre check_structure() and check_parameters() find nothing. Complexity: O(parts).
TAWPIPE_INLINE void check_layout(const Schedule& schedule, Diagnostics& out);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/task_workspace.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class LayoutCheck {
 public:
  LayoutCheck(const Schedule& schedule, Diagnostics& out) : schedule_{schedule}, parts_{schedule.parts()}, out_{out} {}

  void run() {
    layout();
    for (const Bucket& bucket : parts_.buckets) this->bucket(bucket);
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      if (parts_.tasks[t].payload == Payload::edge_gradients) edge(id<TaskId>(t));
      if (is_compute(parts_.tasks[t].op) && parts_.tasks[t].payload != Payload::nothing) carries(id<TaskId>(t));
    }
    buffers();
    ranks();
  }

 private:
  template <class Message>
  void error(std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    out_.error(code, task, rank, message, help);
  }

  // ---- layout -----------------------------------------------------------------------------------

  void layout() {
    const Mesh mesh = parts_.mesh.over(schedule_.ranks());
    for (const auto& [key, size] : {std::pair{"tensor", mesh.tensor},
                                    {"context", mesh.context},
                                    {"data", mesh.data},
                                    {"experts", mesh.whole_experts ? mesh.expert_parts() : 1}}) {
      const auto said = std::find_if(parts_.options.rbegin(), parts_.options.rend(),
                                     [key = std::string_view{key}](const auto& option) { return option.first == key; });
      if (said == parts_.options.rend() || said->second == concat(size)) continue;
      error(
          "V119", none<TaskId>, none<Rank>,
          [&, key = key, size = size] { return concat("option ", key, " is ", said->second, ", and the layout's is ", size); },
          "let the options name the layout's own sizes");
    }
    const std::int64_t microbatches = schedule_.workload().microbatches();
    if (microbatches % mesh.data != 0) {
      return error(
          "V119", none<TaskId>, none<Rank>,
          [&] { return concat(mesh.data, " replicas cannot share ", microbatches, " microbatches equally"); },
          "let the layout's data parallelism divide the microbatches");
    }
    const std::int64_t each = microbatches / mesh.data;
    for (std::size_t t = 0; t < parts_.tasks.size() && mesh.data > 1; ++t) {
      const Task& task = parts_.tasks[t];
      const int replica = mesh.place(task.rank).data;
      if (!is_stage_work(task.op) || task.microbatch / each == replica) continue;
      error(
          "V119", id<TaskId>(t), task.rank,
          [&] {
            return concat(describe(schedule_, id<TaskId>(t)), " is of replica ", task.microbatch / each,
                          ", and its rank of replica ", replica);
          },
          "let each of the layout's replicas compute its own part of the microbatches, in order");
    }
  }

  // ---- buckets and buffers ----------------------------------------------------------------------

  /// A bucket's layer is the first of those that its message carries.
  void bucket(const Bucket& bucket) {
    if (schedule_.workload().is_abstract()) return;
    const Task& task = schedule_.task(bucket.message);
    if (task.split == none<SplitId> || task.stage == none<StageId> || is_all_pairs(task.op)) return;
    const StageWork& stage = schedule_.stage(task.stage);
    const ParameterBlocks blocks = schedule_.workload().model().blocks();
    std::int32_t first = -1;
    for (const PiecesId set : schedule_.split(task.split)) {
      for (const ParameterRange& range : schedule_.pieces(set)) {
        for (std::int32_t layer = 0; layer < stage.layers && (first < 0 || layer < first); ++layer) {
          const ParameterRange all = blocks.layers(stage.first_layer + layer, 1);
          if (range.begin < all.end && all.begin < range.end) first = layer;
        }
        if (first < 0 && range.begin >= blocks.last_edge().begin) first = stage.layers;  // what follows them
      }
    }
    if (first < 0 || first == bucket.layer) return;
    error(
        "V117", bucket.message, task.rank,
        [&] {
          return concat(describe(schedule_, bucket.message), " is a bucket from layer ", bucket.layer,
                        " of its stage on, and carries layers from ", first, " on");
        },
        "let a bucket name the first layer whose parameters it carries");
  }

  void carries(TaskId id) {
    const Task& task = schedule_.task(id);
    error(
        "V507", id, task.rank, [&] { return concat(describe(schedule_, id), " carries ", name(task.payload)); },
        "a computation carries nothing: leave its payload out");
  }
  /// Gradients of edges carry no others.
  void edge(TaskId id) {
    const Task& task = schedule_.task(id);
    if (schedule_.workload().is_abstract() || task.split == none<SplitId> || is_all_pairs(task.op)) return;
    const ParameterBlocks blocks = schedule_.workload().model().blocks();
    for (const PiecesId set : schedule_.split(task.split)) {
      for (const ParameterRange& range : schedule_.pieces(set)) {
        if (range.end <= blocks.first_edge().end || range.begin >= blocks.last_edge().begin) continue;
        return error(
            "V507", id, task.rank, [&] { return concat(describe(schedule_, id), " carries ", blocks.name(range)); },
            "let a message of the edges' gradients carry these only, or be one of gradients");
      }
    }
  }

  /// Workspace is as large as its stage needs, or any; and something uses all other memory.
  void buffers() {
    Bytes largest;
    for (const StageWork& stage : parts_.stages) largest = std::max(largest, stage.workspace());
    std::vector<BufferId> workspaces(static_cast<std::size_t>(schedule_.ranks()), none<BufferId>);
    std::vector<char> used(parts_.buffers.size(), 0);
    std::vector<Bytes> needed(parts_.buffers.size());  // of a workspace by the tasks that name it
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      const Task& task = parts_.tasks[t];
      const Bytes own = is_stage_work(task.op) ? workspace_of(schedule_.stage(task.stage), task.op) : Bytes{};
      for (const Use& use : parts_.uses[t]) {
        used[index(use.buffer)] = 1;
        needed[index(use.buffer)] = std::max(needed[index(use.buffer)], own);
      }
    }
    for (std::size_t b = 0; b < used.size(); ++b) {
      const Buffer& buffer = parts_.buffers[b];
      if (buffer.content.kind() == ContentKind::workspace) {
        if (buffer.persistent || needed[b] > Bytes{}) workspace(id<BufferId>(b), buffer.persistent ? largest : needed[b]);
        if (buffer.persistent && buffer.bytes > Bytes{}) second(id<BufferId>(b), workspaces[index(buffer.rank)]);
        continue;
      }
      // Slots, copies and sums are as many as a rank's part may need, and a small schedule needs fewer.
      const bool slot = buffer.kind() == BufferKind::activations && buffer.content.is_slot();
      const bool spare = slot || buffer.kind() == BufferKind::transfer || buffer.kind() == BufferKind::gradients;
      if (used[b] != 0 || spare || buffer.bytes == Bytes{}) continue;
      error(
          "V118", none<TaskId>, buffer.rank, [&] { return concat("no task uses ", describe(schedule_, id<BufferId>(b))); },
          "let the tasks that need it name it, or take it away");
    }
    if (std::any_of(workspaces.begin(), workspaces.end(), [](BufferId kept) { return kept != none<BufferId>; }))
      lacking(workspaces);
  }
  /// @param kept  [rank] its workspace; none: its computations name others
  void lacking(std::vector<BufferId>& kept) {
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      const Task& task = parts_.tasks[t];
      if (!is_stage_work(task.op) || kept[index(task.rank)] != none<BufferId>) continue;
      const Bytes needed = workspace_of(schedule_.stage(task.stage), task.op);
      const auto names = [&](const Use& use) { return schedule_.buffer(use.buffer).content.kind() == ContentKind::workspace; };
      const auto uses = schedule_.uses(id<TaskId>(t));
      if (needed == Bytes{} || std::any_of(uses.begin(), uses.end(), names)) continue;
      error(
          "V513", id<TaskId>(t), task.rank,
          [&] {
            return concat(describe(schedule_, id<TaskId>(t)), " needs a workspace of ", needed.value(), " bytes, and rank ",
                          number(task.rank), " keeps none, as others do");
          },
          "let every rank that computes keep a workspace, or its computations name one");
      kept[index(task.rank)] = BufferId{0};  // said once
    }
  }

  /// A rank computes one thing at a time, in one workspace that it keeps.
  void second(BufferId id, BufferId& first) {
    if (first == none<BufferId>) {
      first = id;
      return;
    }
    error(
        "V118", none<TaskId>, schedule_.buffer(id).rank,
        [&] { return concat(describe(schedule_, id), " is kept beside ", describe(schedule_, first)); },
        "let a rank keep one workspace");
  }
  /// @param largest  if it names no stage
  void workspace(BufferId id, Bytes largest) {
    const Buffer& buffer = schedule_.buffer(id);
    const bool of_stage = buffer.persistent && buffer.stage() != none<StageId>;
    const Bytes needed = of_stage ? schedule_.stage(buffer.stage()).workspace() : largest;
    const bool rounded = parts_.mesh.shared() > 1 && parts_.bodies.empty() && !buffer.persistent;  // one part of a difference
    if (std::abs((buffer.bytes - needed).value()) <= (rounded ? 1 : 0)) return;
    error(
        buffer.bytes < needed ? "V513" : "V116", none<TaskId>, buffer.rank,
        [&] {
          return concat(describe(schedule_, id), " has ", buffer.bytes.value(), " bytes, and its stages need ", needed.value());
        },
        "let a workspace be as large as the most that a computation in it needs");
  }

  /// A rank may have no task where there are few microbatches, but then it has the memory for one.
  void ranks() {
    std::vector<char> known(static_cast<std::size_t>(schedule_.ranks()), 0);
    for (const Buffer& buffer : parts_.buffers) known[index(buffer.rank)] = 1;
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t)
      for_each_end(schedule_, id<TaskId>(t), [&](Rank rank, int) { known[index(rank)] = 1; });
    for (std::size_t rank = 0; rank < known.size(); ++rank) {
      if (known[rank] != 0) continue;
      error(
          "V118", none<TaskId>, id<Rank>(rank), [&] { return concat("rank ", rank, " has neither a task nor a buffer"); },
          "let as many ranks be there as take part");
    }
  }

  const Schedule& schedule_;
  const Schedule::Parts& parts_;
  Diagnostics& out_;
};

}  // namespace detail

TAWPIPE_INLINE void check_layout(const Schedule& schedule, Diagnostics& out) { detail::LayoutCheck{schedule, out}.run(); }

}  // namespace tawpipe
#endif
