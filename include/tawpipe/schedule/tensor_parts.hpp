// Numbers the parameters of tensor-parallel ranks' parts in a composed schedule, so that it can be
// executed: each set, buffer and message then has what one rank's part of the model has of it.
// Not: the composition (schedule/compose.hpp) nor what ranks exchange in a stage (schedule/expand.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/model/tensor_slices.hpp"
#include "tawpipe/schedule/interpret.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Rewrites a composed schedule, task by task.
class TensorPartNumbering {
 public:
  TensorPartNumbering(const Schedule& from, const TensorSlices& slices, bool sequence_parallel)
      : from_{from}, mesh_{from.parts().mesh}, slices_{slices}, sums_norms_{sequence_parallel}, builder_{from} {
    builder_.slices(slices);
    if (sums_norms_) lane_ = builder_.lane("tensor_parallel");
  }

  Schedule build() {
    for (const Buffer& buffer : from_.buffers()) builder_.buffer(numbered(buffer));
    find_updates();
    std::vector<TaskId> after;
    added_.assign(from_.tasks().size(), none<TaskId>);
    for (std::size_t t = 0; t < from_.tasks().size(); ++t) {
      const TaskId id = tawpipe::id<TaskId>(t);
      if (sums_norms_ && from_.task(id).op == Op::update) sum_norms(id);
      after.clear();
      for (const TaskId earlier : from_.dependencies(id)) after.push_back(added_[index(earlier)]);
      added_[t] = builder_.add(numbered(id), from_.uses(id), after);
    }
    return with_room(builder_.build());
  }

 private:
  std::int64_t width(ContentKind kind) const {
    const ParameterBytes& bytes = from_.workload().parameter_bytes();
    return kind == ContentKind::weights ? bytes.weight : kind == ContentKind::gradients ? bytes.gradient : bytes.optimizer;
  }

  PiecesId numbered(PiecesId set) {
    const auto [at, added] = sets_.try_emplace(set, none<PiecesId>);
    if (added) at->second = builder_.pieces(slices_.share(from_.pieces(set)));
    return at->second;
  }
  std::int64_t count_of(PiecesId set) const { return parameters_in(slices_.share(from_.pieces(set))); }

  Buffer numbered(const Buffer& buffer) {
    const PiecesId set = buffer.content.parameters();
    if (set == none<PiecesId>) return buffer;
    Buffer own = buffer;
    own.content = Content{buffer.content.kind(), buffer.content.stage(), numbered(set)};
    own.bytes = Bytes{count_of(set) * width(buffer.content.kind())};
    return own;
  }

  Task numbered(TaskId id) {
    Task task = from_.task(id);
    if (task.split == none<SplitId> || is_all_pairs(task.op)) return task;
    std::vector<PiecesId> members;
    std::int64_t count = 0;
    for (const PiecesId set : from_.split(task.split)) {
      members.push_back(numbered(set));
      count += count_of(set);
    }
    task.split = builder_.split(members);
    if (is_compute(task.op)) return task;
    const ParameterBytes& bytes = from_.workload().parameter_bytes();
    const Numbers numbers = traits(task.payload).numbers;
    if (numbers == Numbers::weights) task.bytes = Bytes{count * bytes.weight};
    if (numbers == Numbers::gradients) task.bytes = Bytes{count * bytes.gradient};
    return task;
  }

  // ---- gradients of norms under sequence parallelism --------------------------------------------

  /// Each rank's updates in order: those at the same place belong together in a tensor-parallel group.
  void find_updates() {
    updates_.resize(static_cast<std::size_t>(from_.ranks()));
    place_.assign(from_.tasks().size(), 0);
    for (std::size_t t = 0; t < from_.tasks().size(); ++t) {
      const Task& task = from_.tasks()[t];
      if (task.op != Op::update) continue;
      place_[t] = updates_[index(task.rank)].size();
      updates_[index(task.rank)].push_back(id<TaskId>(t));
    }
  }
  /// Before the first update of a group: each rank has the norms' gradients of its own tokens only.
  /// Source: Megatron-LM, core/distributed/finalize_model_grads.py,
  /// _allreduce_non_tensor_model_parallel_grads.
  void sum_norms(TaskId update) {
    const Task& task = from_.task(update);
    const std::vector<Rank> members = mesh_.group(mesh_.place(task.rank), {MeshAxis::tensor});
    std::vector<TaskId> all;
    for (const Rank member : members) all.push_back(updates_[index(member)][place_[index(update)]]);
    if (update != *std::min_element(all.begin(), all.end())) return;
    std::vector<ParameterRange> norms;
    std::vector<Use> uses;
    for (const TaskId one : all) {
      for (const Use& use : from_.uses(one)) {
        const Content& content = from_.buffer(use.buffer).content;
        if (content.kind() == ContentKind::optimizer_state && norms.empty())
          norms = slices_.replicated(slices_.share(from_.pieces(content.parameters())));
        if (content.kind() == ContentKind::gradients) uses.push_back({use.buffer, Access::read_write});
      }
    }
    if (norms.empty()) return;
    builder_.add({.op = Op::all_reduce,
                  .payload = Payload::gradients,
                  .lane = lane_,
                  .rank = members.front(),
                  .group = builder_.group(members),
                  .stage = task.stage,
                  .split = builder_.split({builder_.pieces(norms)}),
                  .bytes = Bytes{parameters_in(norms) * from_.workload().parameter_bytes().gradient}},
                 uses);
  }

  // ---- slots ------------------------------------------------------------------------------------

  /// Slots with the room for what tasks bring there.
  static Schedule with_room(const Schedule& schedule) {
    Schedule::Parts parts = schedule.parts();
    const ParameterBytes& bytes = schedule.workload().parameter_bytes();
    Rooms rooms{schedule};
    for (std::size_t t = 0; t < parts.tasks.size(); ++t) {
      rooms.run(id<TaskId>(t));
      for (const Use& use : schedule.uses(id<TaskId>(t))) {
        Buffer& buffer = parts.buffers[index(use.buffer)];
        if (use.access == Access::read || !buffer.content.is_slot() || !is_of_parameters(buffer.content.kind())) continue;
        const std::int64_t width = buffer.content.kind() == ContentKind::weights ? bytes.weight : bytes.gradient;
        buffer.bytes = std::max(buffer.bytes, Bytes{rooms[use.buffer].count() * width});
      }
    }
    return Schedule{schedule.workload(), std::move(parts)};
  }

  const Schedule& from_;
  Mesh mesh_;
  const TensorSlices& slices_;
  bool sums_norms_;
  ScheduleBuilder builder_;
  LaneId lane_{};
  std::map<PiecesId, PiecesId> sets_;
  std::vector<TaskId> added_;                 ///< [task]
  std::vector<std::vector<TaskId>> updates_;  ///< [rank]
  std::vector<std::size_t> place_;            ///< [task] an update's among its rank's
};

}  // namespace detail

/// A composed schedule in which all that names parameters names those of a rank's part (of matrices, or
/// with whole experts on each rank of these), in the part's own numbering (Schedule::Parts::slices): a
/// rank has its part of each matrix, and all of the norms, where the composition divides all parameters
/// by the ranks. With sequence parallelism the norms' gradients, of which each rank has those of its
/// own tokens, are summed before each update. The messages of buckets wait for whole computations.
/// @param slices  of the model, for the mesh's tensor-parallel ranks
inline Schedule with_tensor_parts(const Schedule& composed, const TensorSlices& slices, bool sequence_parallel) {
  if (slices.parts() == 1) return composed;
  return detail::TensorPartNumbering{composed, slices, sequence_parallel}.build();
}

}  // namespace tawpipe
