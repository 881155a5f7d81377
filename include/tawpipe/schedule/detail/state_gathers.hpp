// Gathers of weights of which each rank holds, or has updated, a part.
// Not: which tasks they precede or follow (detail/state_messages.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/detail/state_context.hpp"

namespace tawpipe::inline v0::detail {

/// Adds them to a composition, one for each class of parameters, bucket and part that is kept. Where
/// both classes lie in one buffer, the second fills what the first has left.
class StateGathers {
 public:
  explicit StateGathers(StateContext& at) : at_{at} {}
  void lane(LaneId lane) { lane_ = lane; }

  /// Of the buckets that the task in place of an update needs.
  const std::vector<StateSum>& gathers() const { return gathers_; }

  /// Gathers weights of which each rank holds, or has updated, a part, to all ranks that hold them.
  void add_gather(TaskId task, BufferId weights, const std::vector<TaskId>& after_of, const LayerBucket* bucket = nullptr,
                  bool late = false) {
    if (!at_.shards.has(weights)) return;
    if (at_.shards.cut(weights)) at_.whole[index(weights)].first = at_.add_whole(weights);
    added_.clear();
    for (const ParameterClass of : at_.copies.classes()) add_gather(task, weights, after_of, bucket, late, of);
  }
  /// The same in buckets, the first layers first. @param reader  the task that needs them
  void add_gathers(TaskId update, BufferId weights, TaskId reader) {
    const std::vector<LayerBucket>& buckets = at_.buckets_of(weights);
    gathers_.clear();
    for (std::size_t b = buckets.size(); b-- > 0;) {
      add_gather(update, weights, {}, &buckets[b], b + 1 < buckets.size());
      for (StateSum gather : added_) {
        gather.update = reader;
        gathers_.push_back(gather);
      }
    }
  }

 private:
  void add_gather(TaskId task, BufferId weights, const std::vector<TaskId>& after_of, const LayerBucket* bucket, bool late,
                  ParameterClass of) {
    const bool cut = at_.shards.cut(weights);
    const PiecesId all = at_.logical.buffer(weights).content.parameters();
    const std::int64_t count = parameters_in(at_.sizes.part_of(at_.shards.ranges(all, bucket), of));
    if (count == 0 || (at_.copies.holders(of) == 1 && !cut)) return;
    const Workload& workload = at_.builder.workload();
    // FSDP casts what it gathers, DDP does not.
    const bool apart = !workload.is_abstract() && workload.model().shard_copies != ShardCopies::none;
    const Bytes gathered = cut || !apart ? at_.sizes.whole(at_.logical.buffer(weights).content, bucket, of)
                                         : at_.sizes.of(count, ContentKind::weights, of);
    const bool first = added_.empty();  // of the classes: each copy of the buffer is first written here
    at_.copies.for_each_holders(
        at_.logical.buffer(weights).rank, of, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
          std::vector<Use> uses;
          std::vector<TaskId> after;
          for (const int copy : copies) {
            uses.push_back({at_.copies.buffer(weights, copy), cut ? Access::read : Access::read_write});
            if (cut)
              uses.push_back(
                  {StateContext::at(at_.whole[index(weights)].first, copy), first ? Access::write : Access::read_write});
            for (const TaskId earlier : after_of) after.push_back(at_.copies.task(earlier, copy));
          }
          const TaskId gather = at_.builder.add({.op = Op::all_gather,
                                                 .payload = Payload::weights,
                                                 .lane = lane_,
                                                 .rank = members[0],
                                                 .group = at_.builder.group(members),
                                                 .stage = at_.logical.task(task).stage,
                                                 .split = at_.builder.split(at_.shards.parts(all, bucket, of)),
                                                 .bytes = gathered},
                                                uses, after);
          if (late) at_.builder.bucket(bucket->layer);
          added_.push_back({at_.logical.task(task).rank, of, at_.copies.part(copies[0], of), task, gather});
        });
  }

  StateContext& at_;
  LaneId lane_;
  std::vector<StateSum> gathers_;
  std::vector<StateSum> added_;  ///< by the last add_gather()
};

}  // namespace tawpipe::detail
