// Sums of gradients over the ranks that hold the same parameters, for updates or right after
// computations.
// Not: which tasks they precede or follow (detail/state_messages.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/detail/state_context.hpp"

namespace tawpipe::inline v0::detail {

/// Adds them to a composition, one for each class of parameters, bucket and part that is kept.
class StateSums {
 public:
  StateSums(StateContext& at, LaneId lane) : at_{at}, lane_{lane} {}

  /// For the updates that come next, or all so far that came early.
  const std::vector<StateSum>& sums() const { return sums_; }

  /// Before the first of several updates in a row: the sums of all, if a tied matrix may have a
  /// copy in two stages of a rank. Each copy is updated by both gradients.
  void add_sums(TaskId update) {
    const auto tasks = at_.logical.tasks();
    std::size_t before = index(update);
    while (before > 0 && is_host_copy(tasks[before - 1].op)) --before;
    const bool tied = is_tied(at_.logical);
    if (tied && before > 0 && tasks[before - 1].op == Op::update) return;
    sums_.clear();
    if (!tied) return add_sum(update);
    for (std::size_t t = index(update); t < tasks.size() && (tasks[t].op == Op::update || is_host_copy(tasks[t].op)); ++t) {
      if (tasks[t].op == Op::update && at_.shards.begins(id<TaskId>(t))) add_sum(id<TaskId>(t));
    }
  }

  /// The gradient that an update reads, summed over the ranks that hold the same parameters; each
  /// gets its part where they share the update. @param done  the task that it follows, where it is
  /// early; if there are buckets, it is of the last one
  void add_sum(TaskId update, TaskId done = none<TaskId>) {
    const BufferId gradient = at_.used(update, ContentKind::gradients);
    if (gradient == none<BufferId>) return;
    const bool buckets = done != none<TaskId> && at_.buckets.has_sums(update);
    if (at_.shards.cut(gradient)) {
      add_cut_sum(update, gradient, done);
    } else {
      add_sum(update, gradient, buckets ? &at_.buckets_of(gradient).back() : nullptr, done);
    }
  }
  /// The buckets before the last: each starts when a computation has the gradient of its layers.
  void add_first_sums(TaskId update, TaskId work) {
    const BufferId gradient = at_.used(update, ContentKind::gradients);
    if (at_.shards.cut(gradient)) return;
    const std::vector<LayerBucket>& buckets = at_.buckets_of(gradient);
    for (std::size_t b = 0; b + 1 < buckets.size(); ++b) add_sum(update, gradient, &buckets[b], work);
  }
  /// A whole gradient of each copy, summed into the parts that they keep, after the computation
  /// `done`.
  /// @return the sums, one for each bucket and tensor-parallel rank
  std::vector<StateSum> add_cut_sum(TaskId task, BufferId gradient, TaskId done) {
    std::vector<StateSum> sums;
    if (at_.whole[index(gradient)].first == none<BufferId>) return sums;
    if (!at_.buckets.has_sums_after(done)) {
      add_cut_sum(task, gradient, nullptr, done, sums);
    } else {
      for (const LayerBucket& bucket : at_.buckets_of(gradient)) add_cut_sum(task, gradient, &bucket, done, sums);
    }
    at_.whole[index(gradient)] = {};
    return sums;
  }

 private:
  void add_sum(TaskId update, BufferId gradient, const LayerBucket* bucket, TaskId done) {
    for (const ParameterClass of : at_.copies.classes()) add_sum(update, gradient, bucket, done, of);
  }
  void add_sum(TaskId update, BufferId gradient, const LayerBucket* bucket, TaskId done, ParameterClass of) {
    if (at_.copies.holders(of) == 1) return;
    const bool early = bucket != nullptr && bucket != &at_.buckets_of(gradient).back();
    std::vector<PiecesId> updated;  // its own; for a series, all that it updates
    Bytes touched;
    for (const TaskId one : at_.shards.series(update)) {
      touched += at_.logical.task(one).bytes;
      const BufferId found = at_.shards.states(one);
      if (found != none<BufferId> && !at_.logical.buffer(found).content.is_slot())
        updated.push_back(at_.logical.buffer(found).content.parameters());
    }
    const Task& task = at_.logical.task(update);
    const PiecesId shared = at_.shards.of_update(update);
    const bool sharded = shared != none<PiecesId>;
    const bool whole = at_.copies.classes().size() == 1 && bucket == nullptr;
    std::vector<ParameterRange> own;
    if (!whole) own = at_.sizes.part_of(bucket == nullptr ? together(at_.logical, updated) : bucket->ranges, of);
    const std::int64_t count = whole ? touched.value() / at_.sizes.each() : parameters_in(own);
    if (count == 0) return;
    const SplitId split = sharded               ? at_.builder.split(at_.shards.parts(shared, bucket, of))
                          : !whole              ? at_.builder.split({at_.builder.pieces(own)})
                          : updated.empty()     ? none<SplitId>
                          : updated.size() == 1 ? at_.builder.split({at_.pieces[index(updated.front())]})
                                                : at_.builder.split({at_.builder.pieces(together(at_.logical, updated))});
    at_.copies.for_each_holders(task.rank, of, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
      std::vector<Use> uses;
      std::vector<TaskId> after;
      for (const int copy : copies) {
        uses.push_back({at_.copies.buffer(gradient, copy), Access::read_write});
        if (bucket != nullptr) after.push_back(at_.copies.task(done, copy));
        for (const TaskId earlier : at_.logical.dependencies(update)) {
          if (early) break;
          if (!is_host_copy(at_.logical.task(earlier).op)) after.push_back(at_.copies.task(earlier, copy));
        }
      }
      const TaskId sum = at_.builder.add({.op = sharded ? Op::reduce_scatter : Op::all_reduce,
                                          .payload = Payload::gradients,
                                          .lane = lane_,
                                          .rank = members[0],
                                          .group = at_.builder.group(members),
                                          .stage = task.stage,
                                          .split = split,
                                          .bytes = at_.sizes.of(count, ContentKind::gradients, of)},
                                         uses, after);
      if (early) at_.builder.bucket(bucket->layer);
      sums_.push_back({task.rank, of, at_.copies.part(copies[0], of), update, sum});
    });
  }

  void add_cut_sum(TaskId task, BufferId gradient, const LayerBucket* bucket, TaskId done, std::vector<StateSum>& sums) {
    for (const ParameterClass of : at_.copies.classes()) add_cut_sum(task, gradient, bucket, done, of, sums);
  }
  void add_cut_sum(TaskId task, BufferId gradient, const LayerBucket* bucket, TaskId done, ParameterClass of,
                   std::vector<StateSum>& sums) {
    const PiecesId all = at_.logical.buffer(gradient).content.parameters();
    const WholeState& whole = at_.whole[index(gradient)];
    const Rank rank = at_.logical.buffer(gradient).rank;
    const std::int64_t count = parameters_in(at_.sizes.part_of(at_.shards.ranges(all, bucket), of));
    if (count == 0) return;
    at_.copies.for_each_holders(rank, of, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
      std::vector<Use> uses;
      std::vector<TaskId> after;
      for (const int copy : copies) {
        if (bucket != nullptr) after.push_back(at_.copies.task(done, copy));
        uses.push_back({StateContext::at(whole.first, copy), Access::read});
        uses.push_back({at_.copies.buffer(gradient, copy), Access::accumulate});
      }
      const TaskId sum = at_.builder.add({.op = Op::reduce_scatter,
                                          .payload = Payload::gradients,
                                          .lane = lane_,
                                          .rank = members[0],
                                          .group = at_.builder.group(members),
                                          .stage = at_.logical.task(task).stage,
                                          .split = at_.builder.split(at_.shards.parts(all, bucket, of)),
                                          .bytes = at_.sizes.of(count, ContentKind::gradients, of)},
                                         uses, after);
      if (bucket != nullptr && bucket != &at_.buckets_of(gradient).back()) at_.builder.bucket(bucket->layer);
      sums.push_back({rank, of, at_.copies.part(copies[0], of), task, sum});
    });
  }

  StateContext& at_;
  LaneId lane_;
  std::vector<StateSum> sums_;
};

}  // namespace tawpipe::detail
