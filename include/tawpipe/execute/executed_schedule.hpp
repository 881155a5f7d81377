// A schedule as executors run it: with the bodies of stages that ranks share written out, each step
// and each collective among these ranks a task of its own, as the simulator has them.
// Not: what a step computes (backend/shared_compute.hpp), nor memory (execute/dataflow.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// A task that is a step of a body, on one rank.
struct BodyTask {
  TaskId first = none<TaskId>;  ///< the computation's first step on the rank, which has its memory
  std::int32_t step = -1;       ///< of the body
  const StageBody* body = nullptr;
};

class ExecutedSchedule {
 public:
  /// @param schedule  must outlive it. Ranks that have parts of tensors or of the experts need
  /// Schedule::Parts::slices. Messages of buckets wait for whole computations, and whole computations for them.
  /// @throws InputError  if ranks share stages, and the schedule does not say which parameters each has
  explicit ExecutedSchedule(const Schedule& schedule) : given_{schedule} {
    if (schedule.parts().bodies.empty() || schedule.parts().mesh.shared() == 1) return;
    const Mesh& mesh = schedule.parts().mesh;
    if ((mesh.tensor > 1 || mesh.whole_experts) && schedule.parts().slices.empty()) {
      throw InputError(
          "ranks share the stages of this schedule; before it is executed, its parameters are numbered by part: "
          "with_tensor_parts()");
    }
    Schedule::Parts parts = schedule.parts();
    parts.buckets.clear();
    const Schedule plain{schedule.workload(), std::move(parts)};
    expanded_.emplace(expand_bodies(plain));
    find_steps();
  }
  ExecutedSchedule(const ExecutedSchedule&) = delete;
  ExecutedSchedule& operator=(const ExecutedSchedule&) = delete;

  /// The tasks that run. Buffers are those of the schedule that was given.
  const Schedule& schedule() const { return expanded_ ? expanded_->schedule : given_; }
  /// The schedule that was given.
  const Schedule& given() const { return given_; }
  bool has_steps() const { return expanded_.has_value(); }

  /// A computation that is a step; `body` is null for others.
  BodyTask step(TaskId task) const { return has_steps() ? steps_[index(task)] : BodyTask{}; }
  /// Of a collective of a body: each member's computation that it belongs to, in the group's order;
  /// empty for others.
  std::span<const BodyTask> members(TaskId task) const {
    if (!has_steps()) return {};
    const auto begin = static_cast<std::size_t>(members_begin_[index(task)]);
    return std::span<const BodyTask>{members_}.subspan(begin, static_cast<std::size_t>(members_begin_[index(task) + 1]) - begin);
  }

  /// The times of the given schedule's tasks from those of schedule(): a computation lasts from its
  /// first step's start to its last step's end.
  Timeline of_given(Timeline run) const {
    if (!has_steps()) return run;
    Timeline given;
    for (std::size_t t = 0; t < given_.tasks().size(); ++t) {
      given.start.push_back(run.start_of(expanded_->first[t]));
      given.end.push_back(run.end_of(expanded_->last[t]));
    }
    return given;
  }

  /// The memory accesses of its tasks: those of the schedule that was given, and of the bodies'
  /// collectives their sizes, as what they send is where the layers say.
  /// @throws as resolve_dataflow()
  Dataflow resolve(Rank only = none<Rank>) const {
    Dataflow flow = resolve_dataflow(given_, only);
    if (!has_steps()) return flow;
    std::vector<std::int32_t> of_task(schedule().tasks().size(), -1);
    for (std::size_t t = 0; t < origin_.size(); ++t) {
      if (origin_[t] != none<TaskId>) {
        of_task[t] = flow.flow_of_task[index(origin_[t])];
      } else {
        of_task[t] = static_cast<std::int32_t>(flow.transfers.size());
        flow.transfers.push_back(collective(id<TaskId>(t)));
      }
    }
    flow.flow_of_task = std::move(of_task);
    return flow;
  }

 private:
  /// Follows each rank through its bodies: their steps are written one after another.
  void find_steps() {
    const Schedule& run = expanded_->schedule;
    const std::size_t tasks = run.tasks().size();
    origin_.assign(tasks, none<TaskId>);
    steps_.resize(tasks);
    for (std::size_t t = 0; t < given_.tasks().size(); ++t) {
      origin_[index(expanded_->first[t])] = origin_[index(expanded_->last[t])] = id<TaskId>(t);
    }
    std::vector<BodyTask> current(static_cast<std::size_t>(run.ranks()));
    std::vector<TaskId> computation(current.size(), none<TaskId>);
    members_begin_.push_back(0);
    for (std::size_t t = 0; t < tasks; ++t) {
      const Task& task = run.tasks()[t];
      BodyTask& on_rank = current[index(task.rank)];
      if (is_compute(task.op)) {
        if (origin_[t] != none<TaskId> && on_rank.body == nullptr) {
          on_rank = {id<TaskId>(t), 0, detail::body_of(given_, given_.task(origin_[t]))};
          computation[index(task.rank)] = origin_[t];
        }
        if (on_rank.body != nullptr) {
          steps_[t] = on_rank;
          origin_[t] = computation[index(task.rank)];
          advance(on_rank);
        }
      } else if (origin_[t] == none<TaskId>) {
        for (const Rank member : run.group(task.group)) {
          members_.push_back(current[index(member)]);
          advance(current[index(member)]);
        }
      }
      members_begin_.push_back(static_cast<std::int64_t>(members_.size()));
    }
  }
  static void advance(BodyTask& at) {
    if (++at.step == std::ssize(*at.body)) at = {};
  }

  TransferFlow collective(TaskId id) const {
    const Task& task = schedule().task(id);
    const ParameterBytes& bytes = given_.workload().parameter_bytes();  // activations are of the same type
    const auto members = schedule().group(task.group);
    TransferFlow flow;
    flow.count = task.bytes.value() / bytes.weight;
    for (const Rank member : members) flow.ends.push_back({member, {}, {}});
    for (std::size_t m = 0; m <= members.size() && has_own_parts(task.op); ++m)
      flow.member_begin.push_back(flow.count * static_cast<std::int64_t>(m) / std::ssize(members));
    const BodyTask& body = this->members(id).front();
    flow.by_rows = is_all_pairs(task.op) && (*body.body)[static_cast<std::size_t>(body.step)].axis == BodyStep::Axis::all;
    if (is_all_pairs(task.op)) set_blocks(task, bytes.weight, flow);
    return flow;
  }
  /// Blocks from each member to each, one after another.
  void set_blocks(const Task& task, std::int64_t width, TransferFlow& flow) const {
    const std::size_t n = flow.ends.size();
    const std::int64_t even = flow.by_rows ? flow.count : flow.count / static_cast<std::int64_t>(n);
    flow.count = 0;
    flow.member_begin.clear();
    for (std::size_t pair = 0; pair < n * n; ++pair) {
      flow.member_begin.push_back(flow.count);
      flow.count += task.split == none<SplitId> ? even : schedule().pair_sizes(task.split)[pair].value() / width;
    }
    flow.member_begin.push_back(flow.count);
  }

  const Schedule& given_;
  std::optional<ExpandedSchedule> expanded_;
  std::vector<TaskId> origin_;               ///< [task] of the given schedule; none: a body's collective
  std::vector<BodyTask> steps_;              ///< [task]
  std::vector<std::int64_t> members_begin_;  ///< [task]
  std::vector<BodyTask> members_;
};

/// The parts of a microbatch's loss that a rank computes for all: each context- and expert-parallel rank
/// those of its tokens, and the first tensor-parallel rank for all of these. @return their number in a
/// microbatch; -1: another rank has them
inline int loss_part(const Schedule& schedule, Rank rank) {
  const Mesh& mesh = schedule.parts().mesh;
  if (mesh.shared() == 1) return 0;
  const MeshPlace place = mesh.place(rank);
  return place.tensor == 0 ? place.context + mesh.context * place.expert : -1;
}
inline int loss_parts(const Schedule& schedule) { return std::max(1, schedule.parts().mesh.token_ranks()); }

/// @throws InputError  if stages are shared and the layers compute only whole ones.
template <class Layer>
void require_shared_layers(const ExecutedSchedule& executed) {
  if constexpr (!SharedLayerCompute<Layer>) {
    if (executed.has_steps())
      throw InputError("ranks share the stages of this schedule, and its layers compute whole stages only (SharedLayerCompute)");
  }
}

}  // namespace tawpipe
