// A schedule: an immutable task graph with buffers, groups and one program order per rank and lane.
// Not: when anything happens (timeline/timeline.hpp) nor how it is made
// (schedule/schedule_builder.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/tensor_slices.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/task.hpp"

namespace tawpipe::inline v0 {

/// Rows of varying length in one array (compressed sparse rows).
template <class T>
class Rows {
 public:
  Rows() = default;
  Rows(std::vector<std::uint32_t> begin, std::vector<T> items) : begin_{std::move(begin)}, items_{std::move(items)} {}

  std::span<const T> operator[](std::size_t row) const {
    return std::span<const T>{items_}.subspan(begin_[row], begin_[row + 1] - begin_[row]);
  }
  std::size_t size() const { return begin_.empty() ? 0 : begin_.size() - 1; }
  const std::vector<T>& items() const { return items_; }
  /// Where each row begins in items(), then the end of the last row; unchecked where parts come
  /// from outside.
  const std::vector<std::uint32_t>& begins() const { return begin_; }
  std::size_t bytes() const { return begin_.capacity() * sizeof(std::uint32_t) + items_.capacity() * sizeof(T); }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<T> items_;
};

/// A message of some of a stage's layers: it waits for only a part of a computation, or only a part
/// of a computation waits for it (schedule/buckets.hpp). Where computations are simulated step by
/// step, a sum of gradients starts when the backward it depends on has the gradient of `layer`, its
/// first, and a forward that depends on a gather of weights waits for it before `layer`. Otherwise
/// it is a message like any other.
struct Bucket {
  TaskId message = none<TaskId>;
  std::int32_t layer = 0;  ///< of its stage's layers
};

/// One iteration as data. Backends read it and do not reorder it.
///
/// Semantics: a task starts once all its `dependencies` and, on each of its lanes, the task before
/// it in `program` have ended. Task ids are a topological order of both, so a schedule cannot
/// contain a cycle.
class Schedule {
 public:
  /// The parts; made by ScheduleBuilder.
  struct Parts {
    std::string name;
    std::vector<std::pair<std::string, std::string>> options;
    std::vector<std::string> lanes;
    int ranks = 0;
    /// what each rank stands for where several ranks share a computation or the batch
    /// (schedule/compose.hpp)
    Mesh mesh;
    std::vector<StageWork> stages;
    /// [stage] the steps of its passes, where ranks share it; empty: none
    std::vector<SharedStage> bodies;
    /// [step] parts of stages' computations, in an expanded schedule (schedule/expand.hpp)
    std::vector<StageWork> steps;
    std::vector<Task> tasks;
    std::vector<Bucket> buckets;  ///< by message
    Rows<TaskId> dependencies;    ///< [task]
    Rows<TaskId> program;         ///< [rank * lanes + lane]
    Rows<Rank> groups;            ///< [group] members
    std::vector<Buffer> buffers;
    Rows<Use> uses;               ///< [task]
    Rows<ParameterRange> pieces;  ///< [pieces] in the order in which a buffer holds them
    Rows<PiecesId> splits;        ///< [split] one for each member of a collective, or one for all
    /// Numbers that sets may name beside the model's parameters, of which there are n: from n + 1 on,
    /// so that no range joins both. They pad shards: they take memory and time in messages, and no
    /// computation or update uses them.
    std::int64_t padding = 0;
    Rows<Bytes> pair_sizes;  ///< [split of an all_to_all] [from * members + to]
    /// where sets name parameters of tensor-parallel ranks' parts (schedule/tensor_parts.hpp); empty:
    /// those of the whole model
    TensorSlices slices = {};
  };

  Schedule(Workload workload, Parts parts) : workload_{std::move(workload)}, parts_{std::move(parts)} {}

  /// Its name in a registry, e.g. "tawpipe".
  const std::string& name() const { return parts_.name; }
  /// The options it was built with, all of them, defaults included.
  const std::vector<std::pair<std::string, std::string>>& options() const { return parts_.options; }
  const Workload& workload() const { return workload_; }

  int ranks() const { return parts_.ranks; }
  /// Names of the lanes that every rank has; lane 0 computes. A lane is an in-order queue (a CUDA
  /// stream).
  const std::vector<std::string>& lanes() const { return parts_.lanes; }
  std::span<const StageWork> stages() const { return parts_.stages; }
  const StageWork& stage(StageId stage) const { return parts_.stages[index(stage)]; }
  /// The work of a computation other than an update: that of its stage, or of the one step that the
  /// task is.
  const StageWork& work(const Task& task) const {
    return parts_.steps.empty() || task.split == none<SplitId> ? stage(task.stage) : parts_.steps[index(task.split)];
  }

  std::span<const Task> tasks() const { return parts_.tasks; }
  const Task& task(TaskId task) const { return parts_.tasks[index(task)]; }
  /// What the task waits for in addition to the order of its lanes.
  std::span<const TaskId> dependencies(TaskId task) const { return parts_.dependencies[index(task)]; }
  /// The tasks of one lane of one rank, in order.
  std::span<const TaskId> program(Rank rank, int lane) const {
    return parts_.program[index(rank) * parts_.lanes.size() + static_cast<std::size_t>(lane)];
  }
  std::span<const Rank> group(GroupId group) const { return parts_.groups[index(group)]; }
  int groups() const { return static_cast<int>(parts_.groups.size()); }

  std::span<const Buffer> buffers() const { return parts_.buffers; }
  const Buffer& buffer(BufferId buffer) const { return parts_.buffers[index(buffer)]; }
  std::span<const Use> uses(TaskId task) const { return parts_.uses[index(task)]; }

  std::span<const ParameterRange> pieces(PiecesId pieces) const { return parts_.pieces[index(pieces)]; }
  /// The parameters of the model that sets number; with Parts::slices those of a part. @pre a model
  std::int64_t parameters() const { return parts_.slices.empty() ? workload_.model().parameters() : parts_.slices.count(); }
  /// Whether these are numbers of padding (Parts::padding), not of parameters.
  bool is_padding(const ParameterRange& range) const {
    return parts_.padding > 0 && !workload_.is_abstract() && range.begin > parameters();
  }
  /// The parameters that a task carries. For an all_gather: what each member gives; for a
  /// reduce_scatter: what each keeps, in the group's order; otherwise one set. For a backward:
  /// those whose gradient it leaves in a slot.
  std::span<const PiecesId> split(SplitId split) const { return parts_.splits[index(split)]; }

  /// What each member of an all_to_all sends to each, by their indices in the group: [from *
  /// members + to].
  std::span<const Bytes> pair_sizes(SplitId split) const { return parts_.pair_sizes[index(split)]; }

  /// Null unless the task is a bucket's message.
  const Bucket* bucket(TaskId task) const {
    const auto at = std::lower_bound(parts_.buckets.begin(), parts_.buckets.end(), task,
                                     [](const Bucket& one, TaskId wanted) { return one.message < wanted; });
    return at != parts_.buckets.end() && at->message == task ? &*at : nullptr;
  }

  /// The lane a task occupies on `rank`, which must be one of its ends or members.
  int lane_on(TaskId id, Rank rank) const { return task(id).lane_on(rank); }

  /// Bytes of memory that its tables of tasks, buffers and groups take, nearly all that it takes.
  std::size_t memory_bytes() const {
    return parts_.tasks.capacity() * sizeof(Task) + parts_.dependencies.bytes() + parts_.program.bytes() + parts_.groups.bytes() +
           parts_.buffers.capacity() * sizeof(Buffer) + parts_.uses.bytes() + parts_.pieces.bytes() + parts_.splits.bytes() +
           parts_.pair_sizes.bytes();
  }

  const Parts& parts() const { return parts_; }

 private:
  Workload workload_;
  Parts parts_;
};

/// How many ranks take part in the task.
inline std::size_t number_of_ends(const Schedule& schedule, const Task& task) {
  if (is_collective(task.op)) return schedule.group(task.group).size();
  return is_point_to_point(task.op) ? 2 : 1;
}

/// Calls `visit(rank, lane)` for each rank that takes part in the task. @param groups  [group] its
/// ranks
template <class Groups, class Visit>
void for_each_end(const Task& task, const Groups& groups, Visit&& visit) {
  if (is_collective(task.op)) {
    for (const Rank rank : groups[index(task.group)]) visit(rank, number(task.lane));
    return;
  }
  visit(task.rank, number(task.lane));
  if (is_point_to_point(task.op)) visit(task.peer, number(task.peer_lane));
}
template <class Visit>
void for_each_end(const Schedule& schedule, TaskId id, Visit&& visit) {
  for_each_end(schedule.task(id), schedule.parts().groups, visit);
}

}  // namespace tawpipe
