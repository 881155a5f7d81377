// Builds one TawPipe iteration.
// Not: its options (schedules/tawpipe_options.hpp), nor what it promises (schedules/tawpipe.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/detail/tawpipe_order.hpp"
#include "tawpipe/schedules/detail/tawpipe_stripes.hpp"
#include "tawpipe/schedules/node_cache.hpp"
#include "tawpipe/schedules/shard_owners.hpp"
#include "tawpipe/schedules/task_limit.hpp"
#include "tawpipe/schedules/tawpipe_options.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Builds one TawPipe iteration. All groups go through the shards in the same order, group g one
/// step after group g-1; in each of a group's steps the shard of its next one is delivered and the
/// gradient of its last one is collected.
class TawpipeBuilder {
 public:
  TawpipeBuilder(const Workload& workload, const DeviceGroups& groups, const TawpipeOptions& options)
      : builder_{"tawpipe", workload, groups.ranks()},
        lanes_{builder_, *options.stripe},
        groups_{groups},
        options_{options},
        ranks_{groups.ranks()},
        shards_{options.shards.count},
        placement_{placements::interleaved(shards_, groups_)},
        shares_{microbatches_by_speed(options.speeds.each, groups), workload.microbatches()} {
    if (*options.stripe && !options.cache.is_off()) {
      throw InputError(
          "tawpipe: stripe=on and node-cache exclude each other, since one device keeps a whole shard; leave one out");
    }
    if (options.order == Order::paper && !shares_.are_equal()) {
      throw InputError("tawpipe: order=paper is drawn for devices of one speed; use order=eager with speeds");
    }
    options_.groups = Grouping::that_gives(groups);
    options_.speeds = shares_.speeds(groups);
    builder_.stages(workload.split(shards_));
    splits_ = layer_splits(builder_);
  }

  Schedule build() {
    add_buffers();
    const ReplicatedEdge edge{builder_, ranks_};
    edge_ = &edge;
    add_cache();
    if (*options_.stripe) stripes_.emplace(builder_, lanes_, groups_, placement_, states_, options_.buffers);
    const TawpipeOrder order{groups_, shards_, shares_, builder_.stage(0), options_.order == Order::paper};
    order_ = &order;
    const std::vector<TawpipeEvent> events = order.events();
    const std::int64_t eighth = std::ssize(events) / 8;
    std::int64_t done = 0;
    for (const TawpipeEvent& event : events) {
      collect(event.group, event.step);
      compute_step(event.group, event.step);
      deliver(event.group, event.step);
      if (++done == eighth) builder_.expect_all(done, std::ssize(events));
    }
    for (int k = 0; k < shards_; ++k) {
      const States& own = states(k);
      builder_.add(update(placement_.owner(k), k, own.bytes),
                   {reads(own.gradients), changes(own.weights), changes(own.optimizer)});
    }
    edge.finish(builder_, lanes_.reduce);
    return builder_.build();
  }

 private:
  /// A shard cached by a group: the copy and the sum of the group's gradients, on the group's
  /// staging rank for the shard.
  struct Copy {
    BufferId weights = none<BufferId>;  ///< none where the shard is not kept
    BufferId gradients = none<BufferId>;
    bool fetched = false;
    bool summed = false;  ///< the gradient buffer already holds a sum
  };

  const States& states(int shard) const { return states_[static_cast<std::size_t>(shard)]; }
  Copy& copy(int group, int shard) { return copies_[static_cast<std::size_t>(group * shards_ + shard)]; }
  const Copy& copy(int group, int shard) const { return copies_[static_cast<std::size_t>(group * shards_ + shard)]; }
  /// Whether `rank` keeps its group's copy of a shard that another group owns.
  bool keeps(int rank, int shard) const {
    const int group = groups_.group_of(rank);
    return copy(group, shard).weights != none<BufferId> && placement_.staging(shard, group) == rank;
  }

  void add_buffers() {
    const Workload& workload = builder_.workload();
    std::int64_t largest = 0;
    for (int k = 0; k < shards_; ++k) {
      largest = std::max(largest, builder_.stage(k).parameters);
      states_.push_back(add_states(builder_, placement_.owner(k), builder_.space().layers_of(k), k));
    }
    for (int r = 0; r < ranks_; ++r) {
      RankBuffers rank;
      for (int i = 0; i < options_.buffers; ++i) {
        rank.weights.push_back(builder_.persistent_copy(r, Content{ContentKind::weights}, weight_bytes(workload, largest)));
      }
      for (auto& slot : rank.gradients) {
        slot = builder_.persistent_copy(r, Content{ContentKind::gradients}, gradient_bytes(workload, largest));
      }
      for (int i = 0; i < shares_.count(r); ++i) {
        rank.streams.push_back(builder_.persistent(r, Content{ContentKind::activation}, builder_.stage(0).boundary));
      }
      add_workspace(builder_, r);
      rank.saved.resize(static_cast<std::size_t>(shards_ * shares_.count(r)));
      rank_.push_back(std::move(rank));
    }
    const auto groups = static_cast<std::size_t>(groups_.count());
    delivered_.resize(groups, -1);
    held_.resize(groups, -1);
    computed_.resize(groups);
    collected_.resize(groups);
    copies_.resize(groups * static_cast<std::size_t>(shards_));
  }

  void add_cache() {
    const Workload& workload = builder_.workload();
    const int count = cached_shards(options_.cache, placement_, groups_, shares_.counts(), builder_, options_.device_memory);
    options_.cache = {.shards = count};
    builder_.options(option_texts(options_));
    const std::vector<int> order = cache_order(placement_, groups_);
    for (int i = 0; i < count; ++i) {
      const int shard = order[static_cast<std::size_t>(i)];
      const std::int64_t parameters = builder_.stage(shard).parameters;
      const PiecesId set = builder_.pieces(builder_.space().layers_of(shard));
      for (int g = 0; g < groups_.count(); ++g) {
        if (g == groups_.group_of(placement_.owner(shard))) continue;
        const int keeper = placement_.staging(shard, g);
        const auto add = [&](ContentKind kind, Bytes bytes) {
          return builder_.persistent_copy(keeper, {kind, StageId{shard}, set}, bytes);
        };
        copy(g, shard).weights = add(ContentKind::weights, weight_bytes(workload, parameters));
        copy(g, shard).gradients = add(ContentKind::gradients, gradient_bytes(workload, parameters));
      }
    }
  }

  /// The buffer in which `rank` finds the shard that its group computes with.
  BufferId weights_of(int rank, int shard, std::int64_t delivery) const {
    if (placement_.owner(shard) == rank) return states(shard).weights;
    if (keeps(rank, shard)) return copy(groups_.group_of(rank), shard).weights;
    return rank_[static_cast<std::size_t>(rank)].weights[static_cast<std::size_t>(delivery % options_.buffers)];
  }

  /// The buffer for a shard's gradient on `rank`: the owner adds to its total, the keeper of a copy
  /// to its group's sum, others fill a buffer that is then collected.
  BufferId gradient_of(int rank, int shard) const {
    if (placement_.owner(shard) == rank) return states(shard).gradients;
    if (keeps(rank, shard)) return copy(groups_.group_of(rank), shard).gradients;
    return rank_[static_cast<std::size_t>(rank)].gradients[static_cast<std::size_t>(shard % 2)];
  }

  /// Delivers the shard of step + 1 to the group. A shard that the group has just used stays and is
  /// not sent again.
  void deliver(int group, std::int64_t step) {
    const TawpipePlace next = order_->place(step + 1, group);
    if (!next.active) return;
    auto& held = held_[static_cast<std::size_t>(group)];
    if (held == next.shard) return;
    held = next.shard;
    const std::int64_t delivery = ++delivered_[static_cast<std::size_t>(group)];
    const int owner = placement_.owner(next.shard);
    const int root = groups_.group_of(owner) == group ? owner : placement_.staging(next.shard, group);
    const Bytes bytes = weight_bytes(builder_.workload(), builder_.stage(next.shard).parameters);
    const auto at = static_cast<std::int32_t>(std::max<std::int64_t>(step + group, 0));
    const bool ahead =
        options_.overlap && (options_.prefetch == Prefetch::on || (options_.prefetch == Prefetch::backward && !next.forward));
    const std::span<const TaskId> after = ahead ? std::span<const TaskId>{} : computed_[static_cast<std::size_t>(group)];
    if (stripes_ && stripes_->cuts(next.shard, group)) {
      slots_.clear();
      for (const Rank member : groups_.members(group)) slots_.push_back(weights_of(number(member), next.shard, delivery));
      stripes_->deliver(next.shard, group, slots_, at, after);
      return;
    }
    Copy& kept = copy(group, next.shard);
    if (root != owner && !kept.fetched) {
      kept.fetched = kept.weights != none<BufferId>;
      builder_.add({.op = Op::pass,
                    .payload = Payload::weights,
                    .lane = lanes_.weights_out,
                    .peer_lane = lanes_.weights_in,
                    .rank = Rank{owner},
                    .peer = Rank{root},
                    .stage = StageId{next.shard},
                    .step = at,
                    .split = splits_[static_cast<std::size_t>(next.shard)],
                    .bytes = bytes},
                   {reads(states(next.shard).weights), writes(weights_of(root, next.shard, delivery))}, after);
    }
    if (groups_.size(group) == 1) return;
    uses_.clear();
    for (const Rank member : groups_.members(group)) {
      const BufferId buffer = weights_of(number(member), next.shard, delivery);
      uses_.push_back(number(member) == root ? reads(buffer) : writes(buffer));
    }
    builder_.add(collective(Op::broadcast, Payload::weights, lanes_.broadcast, root, group, next.shard, at, bytes), uses_, after);
  }

  void compute_step(int group, std::int64_t step) {
    for (int unit = order_->idle_units(step, group); unit > 0; --unit) {
      for (const Rank member : groups_.members(group)) builder_.add(compute(Op::idle, number(member), 0, -1), {});
    }
    const TawpipePlace now = order_->place(step, group);
    if (!now.active) return;
    const std::span<const TaskId> after =
        options_.overlap ? std::span<const TaskId>{} : collected_[static_cast<std::size_t>(group)];
    std::vector<TaskId> done;
    for (const Rank member : groups_.members(group)) {
      const int r = number(member);
      for (int i = 0; i < shares_.count(r); ++i) {
        const std::int64_t microbatch = shares_.microbatch(r, i, now.round);
        if (microbatch < 0) break;
        done.push_back(add_computation(
            r, i, now,
            compute(now.forward ? Op::forward : Op::backward, r, now.shard, microbatch, static_cast<std::int32_t>(step + group)),
            after));
      }
    }
    computed_[static_cast<std::size_t>(group)] = std::move(done);
  }

  /// A forward or backward of the rank's microbatch `i` of the round.
  TaskId add_computation(int r, int i, const TawpipePlace& now, Task task, std::span<const TaskId> after) {
    const int group = groups_.group_of(r);
    const StageWork& work = builder_.stage(now.shard);
    RankBuffers& rank = rank_[static_cast<std::size_t>(r)];
    BufferId& saved = rank.saved[static_cast<std::size_t>(now.shard * shares_.count(r) + i)];
    if (now.forward) saved = builder_.transient(r, {ContentKind::saved, task.stage, task.microbatch}, work.saved);
    uses_.clear();
    uses_.push_back(reads(weights_of(r, now.shard, delivered_[static_cast<std::size_t>(group)])));
    uses_.push_back(changes(rank.streams[static_cast<std::size_t>(i)]));
    if (now.forward) {
      uses_.push_back(writes(saved));
      edge_->forward(r, work, uses_);
    } else {
      uses_.push_back(reads(saved));
      const BufferId gradient = gradient_of(r, now.shard);
      if (builder_.buffers()[index(gradient)].content.is_slot()) task.split = splits_[static_cast<std::size_t>(now.shard)];
      uses_.push_back(i > 0 || holds_sum(r, now.shard) ? adds_to(gradient) : writes(gradient));
      if (keeps(r, now.shard)) copy(group, now.shard).summed = true;
      edge_->backward(r, work, uses_);
    }
    return builder_.add(task, uses_, after);
  }

  /// Whether the rank's gradient buffer for the shard holds a sum that must be kept.
  bool holds_sum(int rank, int shard) const {
    if (placement_.owner(shard) == rank) return true;
    return keeps(rank, shard) && copy(groups_.group_of(rank), shard).summed;
  }

  /// Sums the gradient of the step before in the group and sends it to its owner, which adds it to
  /// its own. Where the group keeps a copy of the shard, its sum stays until the group's last
  /// round.
  void collect(int group, std::int64_t step) {
    const TawpipePlace last = order_->place(step - 1, group);
    if (!last.active || last.forward) return;
    const int owner = placement_.owner(last.shard);
    const bool at_home = groups_.group_of(owner) == group;
    Copy& kept = copy(group, last.shard);
    const bool is_kept = kept.weights != none<BufferId>;
    const int root = at_home ? owner : is_kept ? placement_.staging(last.shard, group) : groups_.first(group);
    const Bytes bytes = gradient_bytes(builder_.workload(), builder_.stage(last.shard).parameters);
    const BufferId total = states(last.shard).gradients;
    const auto at = static_cast<std::int32_t>(step + group);
    auto& collected = collected_[static_cast<std::size_t>(group)];
    collected.clear();
    if (stripes_ && stripes_->cuts(last.shard, group)) {
      slots_.clear();
      std::vector<char> computed;
      for (const Rank member : groups_.members(group)) {
        slots_.push_back(gradient_of(number(member), last.shard));
        computed.push_back(shares_.has_microbatch(number(member), last.round) ? 1 : 0);
      }
      stripes_->collect(last.shard, group, slots_, computed, at, collected);
      return;
    }
    if (others_have_microbatch(group, root, last.round)) {
      uses_.clear();
      for (const Rank member : groups_.members(group)) {
        const int r = number(member);
        // A member without a microbatch names no buffer and adds zeros; a sum kept at the root is
        // always included.
        if (r != root && !shares_.has_microbatch(r, last.round)) continue;
        const BufferId buffer = gradient_of(r, last.shard);
        if (r != root) {
          uses_.push_back(reads(buffer));
        } else if (holds_sum(r, last.shard)) {
          uses_.push_back(adds_to(buffer));
        } else {
          uses_.push_back(shares_.has_microbatch(r, last.round) ? changes(buffer) : writes(buffer));
        }
      }
      if (is_kept) kept.summed = true;
      collected.push_back(
          builder_.add(collective(Op::reduce, Payload::gradients, lanes_.reduce, root, group, last.shard, at, bytes), uses_));
    }
    const bool more_to_come = is_kept && shares_.has_microbatch(groups_.first(group), last.round + 1);
    if (at_home || more_to_come) return;
    collected.push_back(builder_.add({.op = Op::pass,
                                      .payload = Payload::gradients,
                                      .lane = lanes_.gradients_out,
                                      .peer_lane = lanes_.gradients_in,
                                      .rank = Rank{root},
                                      .peer = Rank{owner},
                                      .stage = StageId{last.shard},
                                      .step = at,
                                      .split = splits_[static_cast<std::size_t>(last.shard)],
                                      .bytes = bytes},
                                     {reads(gradient_of(root, last.shard)), adds_to(total)}));
  }

  /// In a short last round there may be nothing to sum.
  bool others_have_microbatch(int group, int root, std::int64_t round) const {
    for (const Rank member : groups_.members(group)) {
      if (number(member) != root && shares_.has_microbatch(number(member), round)) return true;
    }
    return false;
  }

  Task collective(Op op, Payload payload, LaneId lane, int root, int group, int shard, std::int32_t step, Bytes bytes) {
    return {.op = op,
            .payload = payload,
            .lane = lane,
            .rank = Rank{root},
            .group = builder_.group(groups_.members(group)),
            .stage = StageId{shard},
            .step = step,
            .split = splits_[static_cast<std::size_t>(shard)],
            .bytes = bytes};
  }

  struct RankBuffers {
    std::vector<BufferId> weights;        ///< [slot] shards of other ranks
    std::array<BufferId, 2> gradients{};  ///< [shard % 2] computed, not yet collected
    /// [microbatch of the round] the hidden state (forward) or its gradient (backward)
    std::vector<BufferId> streams;
    std::vector<BufferId> saved;  ///< [shard, microbatch of the round]
  };

  ScheduleBuilder builder_;
  TawpipeLanes lanes_;
  DeviceGroups groups_;
  TawpipeOptions options_;
  int ranks_;
  int shards_;
  placements::Interleaved placement_;
  MicrobatchShares shares_;
  const ReplicatedEdge* edge_ = nullptr;
  const TawpipeOrder* order_ = nullptr;
  std::vector<SplitId> splits_;  ///< [shard] its parameters
  std::vector<States> states_;   ///< [shard]
  std::optional<TawpipeStripes> stripes_;
  std::vector<Copy> copies_;             ///< [group, shard]
  std::vector<RankBuffers> rank_;        ///< [rank]
  std::vector<std::int64_t> delivered_;  ///< [group] deliveries so far, minus one
  std::vector<int> held_;                ///< [group] the shard delivered last
  std::vector<Use> uses_;
  std::vector<BufferId> slots_;
  std::vector<std::vector<TaskId>> computed_;   ///< [group] its last step's computations
  std::vector<std::vector<TaskId>> collected_;  ///< [group] its last collection of a gradient
};

}  // namespace tawpipe::schedules::detail
