// Shared by WeiPipe's variants: a rank's buffers and lanes, messages that pass a chunk on,
// computations of a chunk.
// Not: which rank sends which chunk where and when (schedules/weipipe.hpp,
// weipipe_zero_bubble.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/task_limit.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// @param each  tasks of a rank and turn: the three flows cross every rank in every turn
/// @throws InputError  if there are too many.
inline void check_flow_tasks(std::string_view schedule, int each, const Workload& workload, int ranks) {
  check_tasks(schedule, 1.0 * each * ranks * (static_cast<double>(workload.microbatches()) + ranks), workload, ranks);
}

/// The messages; each kind has its own lanes and, on every rank, two slots as large as the largest
/// chunk.
enum class Flow : std::uint8_t {
  forward,    ///< weights for forwards
  backward,   ///< weights for backwards
  gradients,  ///< sums of weight gradients
};

/// P ranks, each the owner of one of P chunks, through which weights and gradients pass.
class WeightFlows {
 public:
  /// @param chunks   [rank] the chunk that it owns
  /// @param overlap  off: all lanes are the compute lane
  /// @param split    backwards are split
  WeightFlows(std::string name, const Workload& workload, const std::vector<int>& chunks, bool overlap, bool split)
      : builder_{std::move(name), workload, static_cast<int>(chunks.size())}, ranks_{static_cast<int>(chunks.size())} {
    if (overlap) {
      lanes_ = {Lanes{builder_.lane("forward_out"), builder_.lane("forward_in")},
                Lanes{builder_.lane("backward_out"), builder_.lane("backward_in")},
                Lanes{builder_.lane("gradients_out"), builder_.lane("gradients_in")}};
    }
    builder_.stages(workload.split(ranks_));
    splits_ = layer_splits(builder_);
    task_workspaces_ = split && has_task_workspaces(builder_);
    std::int64_t largest = 0;
    for (const auto& stage : builder_.stages()) largest = std::max(largest, stage.parameters);
    for (int r = 0; r < ranks_; ++r) {
      const int chunk = chunks[static_cast<std::size_t>(r)];
      states_.push_back(add_states(builder_, r, builder_.space().layers_of(chunk), chunk));
      RankBuffers rank;
      for (const Flow flow : {Flow::forward, Flow::backward, Flow::gradients}) {
        const bool sums = flow == Flow::gradients;
        const Content content{sums ? ContentKind::gradients : ContentKind::weights};
        for (auto& slot : rank.slots[static_cast<std::size_t>(flow)]) {
          slot = builder_.persistent_copy(r, content, sums ? gradient_bytes(workload, largest) : weight_bytes(workload, largest));
        }
      }
      rank.forward_stream = builder_.persistent(r, Content{ContentKind::activation}, builder_.stage(0).boundary);
      rank.backward_stream = builder_.persistent(r, Content{ContentKind::activation_gradient}, builder_.stage(0).boundary);
      if (!task_workspaces_) add_workspace(builder_, r);
      rank.saved.resize(static_cast<std::size_t>(2 * ranks_), none<BufferId>);
      rank.stash = rank.saved;
      rank_.push_back(std::move(rank));
    }
    edge_.emplace(builder_, ranks_);
  }

  ScheduleBuilder& builder() { return builder_; }
  int ranks() const { return ranks_; }
  std::int64_t microbatches() const { return builder_.workload().microbatches(); }
  /// Rounds in which every rank has one microbatch; in the last round some may have none.
  std::int64_t rounds() const { return (microbatches() + ranks_ - 1) / ranks_; }

  /// The model states that the rank owns.
  const States& own(int rank) const { return states_[static_cast<std::size_t>(rank)]; }
  BufferId slot(Flow flow, int rank, std::int64_t i) const {
    return rank_[static_cast<std::size_t>(rank)].slots[static_cast<std::size_t>(flow)][static_cast<std::size_t>(i % 2)];
  }

  /// The ranks, every other one first, so that without overlap no message between neighbours waits
  /// for a whole chain.
  std::vector<int> alternating() const {
    std::vector<int> order;
    for (int r = 0; r < ranks_; r += 2) order.push_back(r);
    for (int r = 1; r < ranks_; r += 2) order.push_back(r);
    return order;
  }

  /// The lanes of a message at its two ends.
  struct Lanes {
    LaneId out{};
    LaneId in{};
  };
  const Lanes& lanes_of(Flow flow) const { return lanes_[static_cast<std::size_t>(flow)]; }

  /// Sends one chunk from one rank to another.
  void pass(Flow flow, int from, int to, int chunk, std::int32_t step, BufferId source, Use destination) {
    pass(flow, lanes_of(flow), from, to, chunk, step, source, destination);
  }
  void pass(Flow flow, const Lanes& by, int from, int to, int chunk, std::int32_t step, BufferId source, Use destination) {
    const std::int64_t parameters = builder_.stage(chunk).parameters;
    const Workload& workload = builder_.workload();
    const bool gradients = flow == Flow::gradients;
    builder_.add({.op = Op::pass,
                  .payload = gradients ? Payload::gradients : Payload::weights,
                  .lane = by.out,
                  .peer_lane = by.in,
                  .rank = Rank{from},
                  .peer = Rank{to},
                  .stage = StageId{chunk},
                  .step = step,
                  .split = splits_[static_cast<std::size_t>(chunk)],
                  .bytes = gradients ? gradient_bytes(workload, parameters) : weight_bytes(workload, parameters)},
                 {reads(source), destination});
  }

  /// Adds one computation of a chunk for a microbatch: a forward, or a backward whole or in its two
  /// parts.
  /// @param after     dependencies in addition to its data
  /// @param gradient  where a backward or backward_weight leaves the gradient of the weights
  TaskId compute(Op op, int rank, int chunk, std::int64_t microbatch, std::int32_t step, BufferId weights, TaskId after,
                 Use gradient = {}) {
    const StageWork& work = builder_.stage(chunk);
    RankBuffers& buffers = rank_[static_cast<std::size_t>(rank)];
    const auto at = static_cast<std::size_t>(microbatch / ranks_ % 2 * ranks_ + chunk);
    BufferId& saved = buffers.saved[at];
    std::vector<Use>& uses = uses_;
    uses.assign({reads(weights)});
    if (op == Op::forward) {
      saved = builder_.transient(rank, content(ContentKind::saved, chunk, microbatch), work.saved);
      uses.push_back(changes(buffers.forward_stream));
      uses.push_back(writes(saved));
    } else {
      if (op != Op::backward_weight) uses.push_back(changes(buffers.backward_stream));
      uses.push_back(reads(saved));
    }
    if (work.stash > Bytes{} && (op == Op::backward_input || op == Op::backward_weight)) {
      BufferId& stash = buffers.stash[at];
      if (op == Op::backward_input) stash = builder_.transient(rank, content(ContentKind::stash, chunk, microbatch), work.stash);
      uses.push_back(op == Op::backward_input ? writes(stash) : reads(stash));
    }
    if (task_workspaces_) add_task_workspace(builder_, op, rank, chunk, uses);
    Task task = detail::compute(op, rank, chunk, microbatch, step);
    if (leaves_gradients(op)) {
      uses.push_back(gradient);
      if (builder_.buffers()[index(gradient.buffer)].content.is_slot()) task.split = splits_[static_cast<std::size_t>(chunk)];
      edge_->backward(rank, work, uses);
    } else {
      edge_->forward(rank, work, uses);
    }
    return builder_.add(task, uses, std::span<const TaskId>{&after, 1});
  }

  /// Every owner updates its chunk from the sum in `gradients[owner]`, and every rank its copy of
  /// the edges.
  Schedule finish(const std::vector<BufferId>& gradients) {
    for (int r = 0; r < ranks_; ++r) {
      const States& states = own(r);
      const int chunk = number(builder_.buffers()[index(states.weights)].stage());
      builder_.add(update(r, chunk, states.bytes),
                   {reads(gradients[static_cast<std::size_t>(r)]), changes(states.weights), changes(states.optimizer)});
    }
    edge_->finish(builder_, lanes_of(Flow::gradients).out);
    return builder_.build();
  }

 private:
  struct RankBuffers {
    std::array<std::array<BufferId, 2>, 3> slots{};  ///< [flow][two, used alternately]
    BufferId forward_stream = none<BufferId>;
    BufferId backward_stream = none<BufferId>;
    std::vector<BufferId> saved;  ///< [round % 2 * ranks + chunk]
    /// [round % 2 * ranks + chunk] from a backward_input to its backward_weight
    std::vector<BufferId> stash;
  };

  static Content content(ContentKind kind, int chunk, std::int64_t microbatch) {
    return {kind, StageId{chunk}, static_cast<std::int32_t>(microbatch)};
  }
  ScheduleBuilder builder_;
  int ranks_;
  bool task_workspaces_ = false;   ///< each computation has a workspace of its own
  std::array<Lanes, 3> lanes_{};   ///< [flow]
  std::vector<SplitId> splits_;    ///< [chunk] its parameters
  std::vector<States> states_;     ///< [rank]
  std::vector<RankBuffers> rank_;  ///< [rank]
  std::optional<ReplicatedEdge> edge_;
  std::vector<Use> uses_;  ///< of the computation being added
};

}  // namespace tawpipe::schedules::detail
