// Shared by the builders: model states of a rank, tasks by name.
// Not: any one schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedule/task_workspace.hpp"
#include "tawpipe/schedules/flow_options.hpp"

namespace tawpipe::inline v0::schedules::detail {

inline Use reads(BufferId buffer) { return {buffer, Access::read}; }
inline Use writes(BufferId buffer) { return {buffer, Access::write}; }
inline Use changes(BufferId buffer) { return {buffer, Access::read_write}; }
inline Use adds_to(BufferId buffer) { return {buffer, Access::accumulate}; }

/// The persistent buffers for `parameters` parameters on one rank.
struct States {
  BufferId weights;
  BufferId gradients;
  BufferId optimizer;
  Bytes bytes;  ///< of all three: what an update touches
};

/// @param stage  -1 where the parameters belong to no single stage
inline States add_states(ScheduleBuilder& builder, int rank, const std::vector<ParameterRange>& parameters, int stage) {
  const ParameterBytes& bytes = builder.workload().parameter_bytes();
  const std::int64_t count = parameters_in(parameters);
  const PiecesId set = builder.pieces(parameters);
  const auto add = [&](ContentKind kind, std::int64_t each) {
    return builder.persistent(rank, {kind, StageId{stage}, set}, Bytes{count * each});
  };
  return {add(ContentKind::weights, bytes.weight), add(ContentKind::gradients, bytes.gradient),
          add(ContentKind::optimizer_state, bytes.optimizer), Bytes{count * (bytes.weight + bytes.gradient + bytes.optimizer)}};
}

inline Bytes weight_bytes(const Workload& workload, std::int64_t parameters) {
  return Bytes{parameters * workload.parameter_bytes().weight};
}
inline Bytes gradient_bytes(const Workload& workload, std::int64_t parameters) {
  return Bytes{parameters * workload.parameter_bytes().gradient};
}

/// The workspace of a rank that computes any stage: as large as the largest task needs.
inline void add_workspace(ScheduleBuilder& builder, int rank) {
  builder.persistent(rank, Content{ContentKind::workspace}, builder.largest_workspace());
}
/// The workspace of a rank that computes `stages` only: that of the stage that needs most.
inline void add_workspace(ScheduleBuilder& builder, int rank, const std::vector<int>& stages) {
  const auto less = [&](int a, int b) { return builder.stage(a).workspace() < builder.stage(b).workspace(); };
  const auto most = std::max_element(stages.begin(), stages.end(), less);
  if (most == stages.end()) return;
  builder.persistent(rank, Content{ContentKind::workspace, StageId{*most}, std::int32_t{-1}}, builder.stage(*most).workspace());
}

/// Whether each task has a workspace of its own: what layers compute again is in workspace in a
/// forward, and with split backwards in the stash afterwards, so that no rank needs both at once.
inline bool has_task_workspaces(const ScheduleBuilder& builder) {
  const auto& stages = builder.stages();
  return std::any_of(stages.begin(), stages.end(), [](const StageWork& stage) { return stage.stashed_workspace > Bytes{}; });
}
/// Adds a computation's own workspace to its uses, where it needs one.
inline void add_task_workspace(ScheduleBuilder& builder, Op op, int rank, int stage, std::vector<Use>& uses) {
  const Bytes bytes = workspace_of(builder.stage(stage), op);
  if (bytes <= Bytes{}) return;
  uses.push_back(writes(builder.transient(rank, {ContentKind::workspace, StageId{stage}, std::int32_t{-1}}, bytes)));
}

inline Task compute(Op op, int rank, int stage, std::int64_t microbatch, int step = -1) {
  return {
      .op = op, .rank = Rank{rank}, .stage = StageId{stage}, .microbatch = static_cast<std::int32_t>(microbatch), .step = step};
}

/// [stage] its layers' parameters as a split for tasks.
inline std::vector<SplitId> layer_splits(ScheduleBuilder& builder) {
  std::vector<SplitId> splits;
  for (int s = 0; s < static_cast<int>(builder.stages().size()); ++s) {
    splits.push_back(builder.split({builder.pieces(builder.space().layers_of(s))}));
  }
  return splits;
}

inline Task update(int rank, int stage, Bytes touched) {
  return {.op = Op::update, .rank = Rank{rank}, .stage = StageId{stage}, .bytes = touched};
}

/// A copy of both edges on every rank: used by the first and last stage, summed over all ranks at
/// the end of the iteration and updated everywhere. Weight pipelines store them in this way;
/// nothing is added where they have no parameters.
class ReplicatedEdge {
 public:
  ReplicatedEdge(ScheduleBuilder& builder, int ranks) {
    const std::vector<ParameterRange>& parameters = builder.space().edge();
    if (parameters.empty()) return;
    bytes_ = gradient_bytes(builder.workload(), parameters_in(parameters));
    split_ = builder.split({builder.pieces(parameters)});
    for (int r = 0; r < ranks; ++r) states_.push_back(add_states(builder, r, parameters, -1));
  }

  /// Adds what a forward of `stage` reads.
  void forward(int rank, const StageWork& stage, std::vector<Use>& uses) const {
    if (touches(stage)) uses.push_back(reads(states_[static_cast<std::size_t>(rank)].weights));
  }
  /// Adds what a backward of `stage` reads and accumulates.
  void backward(int rank, const StageWork& stage, std::vector<Use>& uses) const {
    forward(rank, stage, uses);
    if (touches(stage)) uses.push_back(adds_to(states_[static_cast<std::size_t>(rank)].gradients));
  }
  /// The all-reduce over all ranks on `lane`, then each rank's update.
  void finish(ScheduleBuilder& builder, LaneId lane) const {
    if (states_.empty()) return;
    std::vector<Rank> all;
    std::vector<Use> uses;
    for (std::size_t r = 0; r < states_.size(); ++r) {
      all.push_back(id<Rank>(r));
      uses.push_back(changes(states_[r].gradients));
    }
    if (all.size() > 1) {
      builder.add({.op = Op::all_reduce,
                   .payload = Payload::edge_gradients,
                   .lane = lane,
                   .rank = all[0],
                   .group = builder.group(all),
                   .split = split_,
                   .bytes = bytes_},
                  uses);
    }
    for (std::size_t r = 0; r < states_.size(); ++r) {
      builder.add(update(static_cast<int>(r), -1, states_[r].bytes),
                  {reads(states_[r].gradients), changes(states_[r].weights), changes(states_[r].optimizer)});
    }
  }

 private:
  bool touches(const StageWork& stage) const { return !states_.empty() && (stage.first_edge || stage.last_edge); }

  std::vector<States> states_;
  SplitId split_ = none<SplitId>;
  Bytes bytes_;
};

}  // namespace tawpipe::schedules::detail
