// What the ranks that hold the same parameters send each other: sums of gradients, gathers of
// weights, and the tasks that wait for them.
// Not: the computations between them (schedule/compose.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/detail/state_context.hpp"
#include "tawpipe/schedule/detail/state_gathers.hpp"
#include "tawpipe/schedule/detail/state_sums.hpp"

namespace tawpipe::inline v0::detail {

/// Adds messages before and after a logical task's copies, and says which buffers these use in
/// place of the sharded ones.
///
/// Gathered weights and gradients that are not yet summed are buffers of their own. Where each
/// computation has its own, a gather waits for the computation before the last, and a backward for
/// the sum of the gradient before the last, so there are at most two of each. Experts that one rank
/// has alone are gathered and summed too, by that rank, as PyTorch's FSDP2 copies them.
class StateMessages {
 public:
  /// @param pieces  [logical set] the builder's sets, filled before the first message
  StateMessages(const Schedule& logical, ScheduleBuilder& builder, const ComposedCopies& copies,
                const std::vector<PiecesId>& pieces, const StateTravel& travel)
      : travel_{travel},
        early_{early_messages(logical, copies.holders(), travel)},
        at_{logical, builder, copies, pieces, travel, early_},
        sums_{at_, builder.lane("data_parallel")},
        gathers_{at_} {
    if (copies.holders() == 1) return;
    travel_.early_sums = travel.early_sums || travel.sharding >= StateSharding::gradients;
    gathers_.lane(builder.lane(travel.each_microbatch && travel.sharding == StateSharding::parameters ? "weight_gathers"
                                                                                                      : "data_parallel"));
    ranks_.resize(static_cast<std::size_t>(logical.ranks()));
  }

  /// Reduces a copy of a logical buffer to the part that its rank keeps.
  void keep_part(BufferId logical, int copy, Buffer& real) {
    if (!at_.shards.cut(logical)) return;
    real.content = {real.content.kind(), real.content.stage(), at_.shards.part(logical, copy)};
    real.bytes = {};
    for (const ParameterClass of : at_.copies.classes())
      real.bytes += at_.sizes.of(at_.shards.part_size(logical, of), real.content.kind(), of);
  }
  /// A copy's part of bytes of a logical set.
  Bytes part(Bytes bytes, PiecesId set) const {
    return at_.sizes.part(bytes, set == none<PiecesId> ? std::span<const ParameterRange>{} : at_.logical.pieces(set));
  }
  /// The bytes that an update touches, where it is sharded; otherwise `whole`.
  Messages updated_bytes(TaskId update, Messages whole) {
    if (at_.shards.of_update(update) == none<PiecesId>) return whole;
    Bytes touched;
    for (const ParameterClass of : at_.copies.classes())
      touched += at_.sizes.of_all(at_.shards.part_size(at_.shards.states(update), of), of);
    return touched;
  }

  /// The messages before a logical task.
  void before(TaskId task) {
    if (at_.copies.holders() == 1) return;
    if (at_.logical.task(task).op == Op::update) {
      if (!travel_.early_sums && at_.shards.begins(task)) sums_.add_sums(task);
    } else if (is_work(at_.logical.task(task).op) && travel_.each_microbatch) {
      prepare(task);
    }
    for (const TaskId renewed : early_.gathers.next(task)) {
      const BufferId weights = at_.used(renewed, ContentKind::weights);
      if (weights == none<BufferId> || (!at_.shards.cut(weights) && !travel_.early_gathers)) continue;
      if (at_.shards.cut(weights) && travel_.each_microbatch) continue;
      at_.buckets.has_gathers(renewed) ? gathers_.add_gathers(renewed, weights, task) : gathers_.add_gather(renewed, weights, {});
    }
  }
  /// The messages after it.
  void after(TaskId task) {
    if (at_.copies.holders() == 1) return;
    for (const StateUses& uses : at_.buckets.sums()) {
      if (uses.last_work == task) sums_.add_first_sums(uses.update, task);
    }
    for (const TaskId summed : early_.sums.next(task)) {
      const BufferId gradient = at_.used(summed, ContentKind::gradients);
      if (gradient == none<BufferId> || !at_.shards.cut(gradient) || !travel_.each_microbatch) sums_.add_sum(summed, task);
    }
    const Task& done = at_.logical.task(task);
    if (done.op == Op::update) {
      const BufferId weights = at_.shards.ends(task) ? at_.used(task, ContentKind::weights) : none<BufferId>;
      if (weights != none<BufferId> && !at_.shards.cut(weights) && !travel_.early_gathers) gathers_.add_gather(task, weights, {});
    } else if (is_work(done.op) && travel_.each_microbatch) {
      hand_on(task);
    }
  }
  /// What a copy uses in place of a logical use.
  Use use_of(TaskId task, const Use& use, int copy) {
    const ContentKind kind = at_.logical.buffer(use.buffer).content.kind();
    const bool moved = (kind == ContentKind::weights || kind == ContentKind::gradients) && at_.shards.cut(use.buffer) &&
                       at_.logical.task(task).op != Op::update;
    if (!moved) return {at_.copies.buffer(use.buffer, copy), use.access};
    Whole& whole = at_.whole[index(use.buffer)];
    if (kind == ContentKind::weights) return {StateContext::at(whole.first, copy), use.access};
    if (whole.first == none<BufferId>) whole.first = at_.add_whole(use.buffer);
    const bool begins = whole.begun <= copy;  // the first to use it; copies come in order
    if (begins) whole.begun = copy + 1;
    return {StateContext::at(whole.first, copy), begins ? Access::write : use.access};
  }
  /// What a copy waits for in addition to what its logical task does.
  void waits(TaskId task, int copy, std::vector<TaskId>& after) const {
    const Task& logical = at_.logical.task(task);
    if (logical.op == Op::update && !sums_.sums().empty()) {
      const TaskId first = at_.shards.first(task);
      for (const Sum& sum : sums_.sums()) {
        if (sum.logical != logical.rank || !is_of(sum, copy)) continue;
        if (sum.update == first || is_tied(at_.logical)) after.push_back(sum.task);
      }
    } else if (!gathers_.gathers().empty() && gathers_.gathers()[0].update == task) {
      for (const Sum& gather : gathers_.gathers()) {
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

  bool is_of(const Sum& sum, int copy) const { return sum.part == at_.copies.part(copy, sum.of); }
  bool adds_gradient(TaskId task) const {
    const auto uses = at_.logical.uses(task);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return is_moved(use, ContentKind::gradients); });
  }
  bool is_moved(const Use& use, ContentKind kind) const {
    return at_.logical.buffer(use.buffer).content.kind() == kind && at_.shards.cut(use.buffer);
  }

  // ---- each computation -------------------------------------------------------------------------

  /// Gathers what a computation reads, unless the rank's last one has just read it for the same
  /// microbatch.
  void prepare(TaskId task) {
    Recent& rank = ranks_[index(at_.logical.task(task).rank)];
    for (const Use& use : at_.logical.uses(task)) {
      if (!is_moved(use, ContentKind::weights)) continue;
      Whole& whole = at_.whole[index(use.buffer)];
      const std::int32_t microbatch = at_.logical.task(task).microbatch;
      if (whole.computation + 1 < rank.computations || whole.microbatch != microbatch) {
        std::vector<TaskId> after;
        if (rank.done[0] != none<TaskId>) after.push_back(rank.done[0]);
        gathers_.add_gather(task, use.buffer, after);
      }
      whole.computation = rank.computations;
      whole.microbatch = microbatch;
    }
    if (adds_gradient(task)) rank.sums = {std::move(rank.sums[1]), {}};
  }
  /// Sums the gradients that a backward has left.
  void hand_on(TaskId task) {
    Recent& rank = ranks_[index(at_.logical.task(task).rank)];
    for (const Use& use : at_.logical.uses(task)) {
      if (!is_moved(use, ContentKind::gradients)) continue;
      for (const Sum& sum : sums_.add_cut_sum(task, use.buffer, task)) rank.sums[1].push_back(sum);
    }
    rank.done = {rank.done[1], task};
    ++rank.computations;
  }

  StateTravel travel_;
  EarlyMessages early_;
  StateContext at_;
  StateSums sums_;
  StateGathers gathers_;
  std::vector<Recent> ranks_;  ///< [logical rank]
};

}  // namespace tawpipe::detail
