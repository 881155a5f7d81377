// What the ranks that hold the same parameters send each other: sums of gradients, gathers of
// weights, and the tasks that wait for them.
// Not: the computations between them (schedule/compose.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/detail/composed_copies.hpp"
#include "tawpipe/schedule/detail/state_records.hpp"
#include "tawpipe/schedule/detail/state_sizes.hpp"
#include "tawpipe/schedule/detail/update_shards.hpp"
#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0::detail {

/// Adds messages before and after a logical task's copies, and says which buffers these use in
/// place of the sharded ones.
///
/// Gathered weights and gradients that are not yet summed are buffers of their own. Where each
/// computation has its own, a gather waits for the computation before the last, and a backward for
/// the sum of the gradient before the last, so there are at most two of each.
class StateMessages {
 public:
  /// @param pieces  [logical set] the builder's sets, filled before the first message
  StateMessages(const Schedule& logical, ScheduleBuilder& builder, const ComposedCopies& copies,
                const std::vector<PiecesId>& pieces, const StateTravel& travel)
      : logical_{logical},
        builder_{builder},
        copies_{copies},
        pieces_{pieces},
        travel_{travel},
        sizes_{logical, builder.workload(), copies},
        early_{early_messages(logical, copies.holders(), travel)},
        buckets_{logical, early_, travel},
        shards_{logical, builder, copies, sizes_, travel.sharding, buckets_} {
    if (copies.holders() == 1) return;
    travel_.early_sums = travel.early_sums || travel.sharding >= StateSharding::gradients;
    gather_lane_ =
        builder.lane(travel.each_microbatch && travel.sharding == StateSharding::parameters ? "weight_gathers" : "data_parallel");
    whole_.resize(logical.buffers().size());
    ranks_.resize(static_cast<std::size_t>(logical.ranks()));
  }

  /// Reduces a copy of a logical buffer to the part that its rank keeps.
  void keep_part(BufferId logical, int copy, Buffer& real) {
    if (!shards_.cut(logical)) return;
    real.content = {real.content.kind(), real.content.stage(), shards_.part(logical, copy)};
    real.bytes = {};
    for (const ParameterClass of : copies_.classes())
      real.bytes += sizes_.of(shards_.part_size(logical, of), real.content.kind(), of);
  }
  /// A copy's part of bytes of a logical set.
  Bytes part(Bytes bytes, PiecesId set) const {
    return sizes_.part(bytes, set == none<PiecesId> ? std::span<const ParameterRange>{} : logical_.pieces(set));
  }
  /// The bytes that an update touches, where it is sharded; otherwise `whole`.
  Messages updated_bytes(TaskId update, Messages whole) {
    if (shards_.of_update(update) == none<PiecesId>) return whole;
    Bytes touched;
    for (const ParameterClass of : copies_.classes()) touched += sizes_.of_all(shards_.part_size(shards_.states(update), of), of);
    return touched;
  }

  /// The messages before a logical task.
  void before(TaskId task) {
    if (copies_.holders() == 1) return;
    if (logical_.task(task).op == Op::update) {
      if (!travel_.early_sums && shards_.begins(task)) add_sums(task);
    } else if (is_work(logical_.task(task).op) && travel_.each_microbatch) {
      prepare(task);
    }
    for (const TaskId renewed : early_.gathers.next(task)) {
      const BufferId weights = used(renewed, ContentKind::weights);
      if (weights == none<BufferId> || (!shards_.cut(weights) && !travel_.early_gathers)) continue;
      if (shards_.cut(weights) && travel_.each_microbatch) continue;
      buckets_.has_gathers(renewed) ? add_gathers(renewed, weights, task) : add_gather(renewed, weights, {});
    }
  }
  /// The messages after it.
  void after(TaskId task) {
    if (copies_.holders() == 1) return;
    for (const StateUses& uses : buckets_.sums()) {
      if (uses.last_work == task) add_first_sums(uses.update, task);
    }
    for (const TaskId summed : early_.sums.next(task)) {
      const BufferId gradient = used(summed, ContentKind::gradients);
      if (gradient == none<BufferId> || !shards_.cut(gradient) || !travel_.each_microbatch) add_sum(summed, task);
    }
    const Task& done = logical_.task(task);
    if (done.op == Op::update) {
      const BufferId weights = shards_.ends(task) ? used(task, ContentKind::weights) : none<BufferId>;
      if (weights != none<BufferId> && !shards_.cut(weights) && !travel_.early_gathers) add_gather(task, weights, {});
    } else if (is_work(done.op) && travel_.each_microbatch) {
      hand_on(task);
    }
  }
  /// What a copy uses in place of a logical use.
  Use use_of(TaskId task, const Use& use, int copy) {
    const ContentKind kind = logical_.buffer(use.buffer).content.kind();
    const bool moved = (kind == ContentKind::weights || kind == ContentKind::gradients) && shards_.cut(use.buffer) &&
                       logical_.task(task).op != Op::update;
    if (!moved) return {copies_.buffer(use.buffer, copy), use.access};
    Whole& whole = whole_[index(use.buffer)];
    if (kind == ContentKind::weights) return {at(whole.first, copy), use.access};
    if (whole.first == none<BufferId>) whole.first = add_whole(use.buffer);
    const bool begins = whole.begun <= copy;  // the first to use it; copies come in order
    if (begins) whole.begun = copy + 1;
    return {at(whole.first, copy), begins ? Access::write : use.access};
  }
  /// What a copy waits for in addition to what its logical task does.
  void waits(TaskId task, int copy, std::vector<TaskId>& after) const {
    const Task& logical = logical_.task(task);
    if (logical.op == Op::update && !sums_.empty()) {
      const TaskId first = shards_.first(task);
      for (const Sum& sum : sums_) {
        if (sum.logical != logical.rank || !is_of(sum, copy)) continue;
        if (sum.update == first || is_tied(logical_)) after.push_back(sum.task);
      }
    } else if (!gathers_.empty() && gathers_[0].update == task) {
      for (const Sum& gather : gathers_) {
        if (is_of(gather, copy)) after.push_back(gather.task);
      }
    } else if (!ranks_.empty() && adds_gradient(task)) {
      for (const Sum& sum : ranks_[index(logical.rank)].sums[0]) {
        if (is_of(sum, copy)) after.push_back(sum.task);
      }
    }
  }

 private:
  using Sum = StateSum;
  using Whole = WholeState;
  using Recent = RecentWork;

  bool is_of(const Sum& sum, int copy) const { return sum.part == copies_.part(copy, sum.of); }
  static BufferId at(BufferId first, int copy) { return id<BufferId>(index(first) + static_cast<std::size_t>(copy)); }

  BufferId used(TaskId update, ContentKind kind) const { return buffer_of(logical_, update, kind); }
  bool adds_gradient(TaskId task) const {
    const auto uses = logical_.uses(task);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return is_moved(use, ContentKind::gradients); });
  }
  bool is_moved(const Use& use, ContentKind kind) const {
    return logical_.buffer(use.buffer).content.kind() == kind && shards_.cut(use.buffer);
  }
  /// A buffer of each copy with the whole content of a logical one.
  BufferId add_whole(BufferId logical) {
    const Content& content = logical_.buffer(logical).content;
    const Content all{content.kind(), content.stage(), pieces_[index(content.parameters())]};
    const BufferId first = id<BufferId>(builder_.buffers().size());
    for (int copy = 0; copy < copies_.count(); ++copy) {
      builder_.transient(number(copies_.real(logical_.buffer(logical).rank, copy)), all, sizes_.whole(content));
    }
    return first;
  }

  // ---- once an iteration ------------------------------------------------------------------------

  /// Before the first of several updates in a row: the sums of all, if a tied matrix may have a
  /// copy in two stages of a rank. Each copy is updated by both gradients.
  void add_sums(TaskId update) {
    const auto tasks = logical_.tasks();
    std::size_t before = index(update);
    while (before > 0 && is_host_copy(tasks[before - 1].op)) --before;
    const bool tied = is_tied(logical_);
    if (tied && before > 0 && tasks[before - 1].op == Op::update) return;
    sums_.clear();
    if (!tied) return add_sum(update);
    for (std::size_t t = index(update); t < tasks.size() && (tasks[t].op == Op::update || is_host_copy(tasks[t].op)); ++t) {
      if (tasks[t].op == Op::update && shards_.begins(id<TaskId>(t))) add_sum(id<TaskId>(t));
    }
  }

  /// The gradient that an update reads, summed over the ranks that hold the same parameters; each
  /// gets its part where they share the update. @param done  the task that it follows, where it is
  /// early; if there are buckets, it is of the last one
  void add_sum(TaskId update, TaskId done = none<TaskId>) {
    const BufferId gradient = used(update, ContentKind::gradients);
    if (gradient == none<BufferId>) return;
    const bool buckets = done != none<TaskId> && buckets_.has_sums(update);
    if (shards_.cut(gradient)) {
      add_cut_sum(update, gradient, done);
    } else {
      add_sum(update, gradient, buckets ? &buckets_of(gradient).back() : nullptr, done);
    }
  }
  /// The buckets before the last: each starts when a computation has the gradient of its layers.
  void add_first_sums(TaskId update, TaskId work) {
    const BufferId gradient = used(update, ContentKind::gradients);
    if (shards_.cut(gradient)) return;
    const std::vector<LayerBucket>& buckets = buckets_of(gradient);
    for (std::size_t b = 0; b + 1 < buckets.size(); ++b) add_sum(update, gradient, &buckets[b], work);
  }
  const std::vector<LayerBucket>& buckets_of(BufferId logical) const {
    return buckets_.of(logical_.buffer(logical).content.parameters());
  }
  void add_sum(TaskId update, BufferId gradient, const LayerBucket* bucket, TaskId done) {
    for (const ParameterClass of : copies_.classes()) add_sum(update, gradient, bucket, done, of);
  }
  void add_sum(TaskId update, BufferId gradient, const LayerBucket* bucket, TaskId done, ParameterClass of) {
    if (copies_.holders(of) == 1) return;
    const bool early = bucket != nullptr && bucket != &buckets_of(gradient).back();
    std::vector<PiecesId> updated;  // its own; for a series, all that it updates
    Bytes touched;
    for (const TaskId one : shards_.series(update)) {
      touched += logical_.task(one).bytes;
      const BufferId found = shards_.states(one);
      if (found != none<BufferId> && !logical_.buffer(found).content.is_slot())
        updated.push_back(logical_.buffer(found).content.parameters());
    }
    const Task& task = logical_.task(update);
    const PiecesId shared = shards_.of_update(update);
    const bool sharded = shared != none<PiecesId>;
    const bool whole = copies_.classes().size() == 1 && bucket == nullptr;
    std::vector<ParameterRange> own;
    if (!whole) own = sizes_.part_of(bucket == nullptr ? together(logical_, updated) : bucket->ranges, of);
    const std::int64_t count = whole ? touched.value() / sizes_.each() : parameters_in(own);
    if (count == 0) return;
    const SplitId split = sharded               ? builder_.split(shards_.parts(shared, bucket, of))
                          : !whole              ? builder_.split({builder_.pieces(own)})
                          : updated.empty()     ? none<SplitId>
                          : updated.size() == 1 ? builder_.split({pieces_[index(updated.front())]})
                                                : builder_.split({builder_.pieces(together(logical_, updated))});
    copies_.for_each_holders(task.rank, of, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
      std::vector<Use> uses;
      std::vector<TaskId> after;
      for (const int copy : copies) {
        uses.push_back({copies_.buffer(gradient, copy), Access::read_write});
        if (bucket != nullptr) after.push_back(copies_.task(done, copy));
        for (const TaskId earlier : logical_.dependencies(update)) {
          if (early) break;
          if (!is_host_copy(logical_.task(earlier).op)) after.push_back(copies_.task(earlier, copy));
        }
      }
      const TaskId sum = builder_.add({.op = sharded ? Op::reduce_scatter : Op::all_reduce,
                                       .payload = Payload::gradients,
                                       .lane = sum_lane_,
                                       .rank = members[0],
                                       .group = builder_.group(members),
                                       .stage = task.stage,
                                       .split = split,
                                       .bytes = sizes_.of(count, ContentKind::gradients, of)},
                                      uses, after);
      if (early) builder_.bucket(bucket->layer);
      sums_.push_back({task.rank, of, copies_.part(copies[0], of), update, sum});
    });
  }

  /// A whole gradient of each copy, summed into the parts that they keep, after the computation
  /// `done`.
  /// @return the sums, one for each bucket and tensor-parallel rank
  std::vector<Sum> add_cut_sum(TaskId task, BufferId gradient, TaskId done) {
    std::vector<Sum> sums;
    if (whole_[index(gradient)].first == none<BufferId>) return sums;
    if (!buckets_.has_sums_after(done)) {
      add_cut_sum(task, gradient, nullptr, done, sums);
    } else {
      for (const LayerBucket& bucket : buckets_of(gradient)) add_cut_sum(task, gradient, &bucket, done, sums);
    }
    whole_[index(gradient)] = {};
    return sums;
  }
  void add_cut_sum(TaskId task, BufferId gradient, const LayerBucket* bucket, TaskId done, std::vector<Sum>& sums) {
    const PiecesId all = logical_.buffer(gradient).content.parameters();
    const Whole& whole = whole_[index(gradient)];
    const Rank rank = logical_.buffer(gradient).rank;
    copies_.for_each_holders(rank, ParameterClass::dense, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
      std::vector<Use> uses;
      std::vector<TaskId> after;
      for (const int copy : copies) {
        if (bucket != nullptr) after.push_back(copies_.task(done, copy));
        uses.push_back({at(whole.first, copy), Access::read});
        uses.push_back({copies_.buffer(gradient, copy), Access::accumulate});
      }
      const TaskId sum = builder_.add({.op = Op::reduce_scatter,
                                       .payload = Payload::gradients,
                                       .lane = sum_lane_,
                                       .rank = members[0],
                                       .group = builder_.group(members),
                                       .stage = logical_.task(task).stage,
                                       .split = builder_.split(shards_.parts(all, bucket)),
                                       .bytes = sizes_.of(parameters_in(shards_.ranges(all, bucket)), ContentKind::gradients)},
                                      uses, after);
      if (bucket != nullptr && bucket != &buckets_of(gradient).back()) builder_.bucket(bucket->layer);
      sums.push_back({rank, ParameterClass::dense, copies_.tensor(copies[0]), task, sum});
    });
  }

  /// Gathers weights of which each rank holds, or has updated, a part, to all ranks that hold them.
  void add_gather(TaskId task, BufferId weights, const std::vector<TaskId>& after_of, const LayerBucket* bucket = nullptr,
                  bool late = false) {
    if (!shards_.has(weights)) return;
    if (shards_.cut(weights)) whole_[index(weights)].first = add_whole(weights);
    added_.clear();
    for (const ParameterClass of : copies_.classes()) add_gather(task, weights, after_of, bucket, late, of);
  }
  void add_gather(TaskId task, BufferId weights, const std::vector<TaskId>& after_of, const LayerBucket* bucket, bool late,
                  ParameterClass of) {
    const bool cut = shards_.cut(weights);
    const PiecesId all = logical_.buffer(weights).content.parameters();
    const std::int64_t count = parameters_in(sizes_.part_of(shards_.ranges(all, bucket), of));
    if (copies_.holders(of) == 1 || count == 0) return;
    const Workload& workload = builder_.workload();
    // FSDP casts what it gathers, DDP does not.
    const bool apart = !workload.is_abstract() && workload.model().shard_copies != ShardCopies::none;
    const Bytes gathered =
        cut || !apart ? sizes_.whole(logical_.buffer(weights).content, bucket, of) : sizes_.of(count, ContentKind::weights, of);
    copies_.for_each_holders(logical_.buffer(weights).rank, of,
                             [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
                               std::vector<Use> uses;
                               std::vector<TaskId> after;
                               for (const int copy : copies) {
                                 uses.push_back({copies_.buffer(weights, copy), cut ? Access::read : Access::read_write});
                                 if (cut) uses.push_back({at(whole_[index(weights)].first, copy), Access::write});
                                 for (const TaskId earlier : after_of) after.push_back(copies_.task(earlier, copy));
                               }
                               const TaskId gather = builder_.add({.op = Op::all_gather,
                                                                   .payload = Payload::weights,
                                                                   .lane = gather_lane_,
                                                                   .rank = members[0],
                                                                   .group = builder_.group(members),
                                                                   .stage = logical_.task(task).stage,
                                                                   .split = builder_.split(shards_.parts(all, bucket, of)),
                                                                   .bytes = gathered},
                                                                  uses, after);
                               if (late) builder_.bucket(bucket->layer);
                               added_.push_back({logical_.task(task).rank, of, copies_.part(copies[0], of), task, gather});
                             });
  }
  /// The same in buckets, the first layers first. @param reader  the task that needs them
  void add_gathers(TaskId update, BufferId weights, TaskId reader) {
    const std::vector<LayerBucket>& buckets = buckets_of(weights);
    gathers_.clear();
    for (std::size_t b = buckets.size(); b-- > 0;) {
      add_gather(update, weights, {}, &buckets[b], b + 1 < buckets.size());
      for (Sum gather : added_) {
        gather.update = reader;
        gathers_.push_back(gather);
      }
    }
  }

  // ---- each computation -------------------------------------------------------------------------

  /// Gathers what a computation reads, unless the rank's last one has just read it for the same
  /// microbatch.
  void prepare(TaskId task) {
    Recent& rank = ranks_[index(logical_.task(task).rank)];
    for (const Use& use : logical_.uses(task)) {
      if (!is_moved(use, ContentKind::weights)) continue;
      Whole& whole = whole_[index(use.buffer)];
      const std::int32_t microbatch = logical_.task(task).microbatch;
      if (whole.computation + 1 < rank.computations || whole.microbatch != microbatch) {
        std::vector<TaskId> after;
        if (rank.done[0] != none<TaskId>) after.push_back(rank.done[0]);
        add_gather(task, use.buffer, after);
      }
      whole.computation = rank.computations;
      whole.microbatch = microbatch;
    }
    if (adds_gradient(task)) rank.sums = {std::move(rank.sums[1]), {}};
  }
  /// Sums the gradients that a backward has left.
  void hand_on(TaskId task) {
    Recent& rank = ranks_[index(logical_.task(task).rank)];
    for (const Use& use : logical_.uses(task)) {
      if (!is_moved(use, ContentKind::gradients)) continue;
      for (const Sum& sum : add_cut_sum(task, use.buffer, task)) rank.sums[1].push_back(sum);
    }
    rank.done = {rank.done[1], task};
    ++rank.computations;
  }

  const Schedule& logical_;
  ScheduleBuilder& builder_;
  const ComposedCopies& copies_;
  const std::vector<PiecesId>& pieces_;  ///< [logical set]
  StateTravel travel_;
  StateSizes sizes_;
  LaneId sum_lane_ = builder_.lane("data_parallel");
  LaneId gather_lane_ = sum_lane_;
  EarlyMessages early_;
  StateBuckets buckets_;
  UpdateShards shards_;
  std::vector<Sum> sums_;      ///< of the updates that come next, or all so far that came early
  std::vector<Sum> gathers_;   ///< of the buckets that the task in place of an update needs
  std::vector<Sum> added_;     ///< by the last add_gather()
  std::vector<Whole> whole_;   ///< [logical buffer]
  std::vector<Recent> ranks_;  ///< [logical rank]
};

}  // namespace tawpipe::detail
