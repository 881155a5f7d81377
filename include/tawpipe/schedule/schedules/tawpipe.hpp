// TawPipe: device-bound shards, broadcast inside a group, one point-to-point copy to each other group.
// Not: the ring of WeiPipe (schedule/schedules/weipipe.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tawpipe/placement/interleaved.hpp"
#include "tawpipe/schedule/schedules/common.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::schedules {

struct TawpipeOptions {
  Order order = Order::eager;
  bool overlap = true;  ///< off: in a group, communication and computation take turns (the paper's ablation without CCO)
  int buffers = 2;      ///< shards a device can hold beside its own: one computed with, the others on their way
};

namespace detail {

/// Builds one TawPipe iteration. Every group walks the shards in one order, group g one step behind group g-1; in each of a
/// group's steps the shard of its next one is delivered and the gradient of its last one is collected.
class TawpipeBuilder {
 public:
  TawpipeBuilder(const Workload& workload, const DeviceGroups& groups, const TawpipeOptions& options)
      : builder_{"tawpipe",
                 workload,
                 groups.ranks(),
                 {"compute", "weights_out", "weights_in", "broadcast", "reduce", "gradients_out", "gradients_in"}},
        groups_{groups},
        options_{options},
        ranks_{groups.ranks()},
        placement_{placements::interleaved(groups_.ranks(), groups_)} {
    if (options.buffers < 1) throw InputError("tawpipe needs buffers=1 or more (2 to overlap)");
    builder_.option("order", text(options.order));
    builder_.option("overlap", on_off(options.overlap));
    builder_.option("buffers", std::to_string(options.buffers));
    builder_.option("groups", std::to_string(groups.count()));
    builder_.stages(workload.split(ranks_));
  }

  Schedule build() {
    add_buffers();
    const ReplicatedEdge edge{builder_, ranks_};
    edge_ = &edge;
    for (const Event& event : events()) {
      collect(event.group, event.step);
      compute_step(event.group, event.step);
      deliver(event.group, event.step);
    }
    for (int r = 0; r < ranks_; ++r) {
      const States& own = states_[static_cast<std::size_t>(r)];
      builder_.add(update(r, shard_of_[static_cast<std::size_t>(r)], own.bytes),
                   {reads(own.gradients), changes(own.weights), changes(own.optimizer)});
    }
    edge.finish(builder_, lane_reduce_);
    return builder_.build();
  }

 private:
  /// A group's work at one step: which shard, which way, in which round.
  struct Place {
    bool active = false;
    bool forward = true;
    int shard = 0;
    std::int64_t round = 0;
  };

  /// A group's step in the order of emission: at `time`, in units of one forward.
  struct Event {
    std::int64_t time;
    int group;
    std::int64_t step;
  };

  /// All groups' steps in the order in which they come when transfers take no time. The lanes of an owner that serves
  /// several groups keep this order; in lock-step order a group still in its forward would wait for one in its backward.
  std::vector<Event> events() const {
    const std::int64_t steps = 2 * ranks_ * ((builder_.workload().microbatches() + ranks_ - 1) / ranks_);
    const std::int64_t backward = backward_units();
    const std::int64_t drawn = options_.order == Order::paper ? 1 : 0;
    std::vector<Event> events;
    for (int g = 0; g < groups_.count(); ++g) {
      for (std::int64_t step = -1; step <= steps; ++step) {
        const std::int64_t round = step < 0 ? 0 : step / (2 * ranks_);
        const std::int64_t within = step - round * 2 * ranks_;
        std::int64_t time = g + round * ((1 + backward) * ranks_ + drawn);
        time += within <= ranks_ ? within : ranks_ + backward * (within - ranks_);
        if (g > 0 && within >= ranks_) time += drawn;
        events.push_back({time, g, step});
      }
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.time < b.time; });
    return events;
  }

  /// How many forwards one backward takes, about: 2, or 3 where it recomputes the forward.
  std::int64_t backward_units() const {
    const StageWork& work = builder_.stage(0);
    if (work.forward.value() <= 0) return 2;
    const double ratio = (work.recompute + work.backward_input + work.backward_weight) / work.forward;
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(ratio + 0.5));
  }

  /// @param step  the group's own, from 0
  Place place(std::int64_t step, int group) const {
    Place place;
    if (step < 0) return place;
    place.round = step / (2 * ranks_);
    const auto within = static_cast<int>(step % (2 * ranks_));
    place.forward = within < ranks_;
    place.shard = place.forward ? within : 2 * ranks_ - 1 - within;
    place.active = has_microbatch(groups_.first(group), place.round);
    return place;
  }
  bool has_microbatch(int rank, std::int64_t round) const { return round * ranks_ + rank < builder_.workload().microbatches(); }

  void add_buffers() {
    const Workload& workload = builder_.workload();
    std::int64_t largest = 0;
    for (int k = 0; k < ranks_; ++k) largest = std::max(largest, builder_.stage(k).parameters);
    shard_of_.resize(static_cast<std::size_t>(ranks_));
    for (int k = 0; k < ranks_; ++k) shard_of_[static_cast<std::size_t>(placement_.owner(k))] = k;
    for (int r = 0; r < ranks_; ++r) {
      const int shard = shard_of_[static_cast<std::size_t>(r)];
      states_.push_back(add_states(builder_, r, builder_.stage(shard).parameters, shard));
      RankBuffers rank;
      for (int i = 0; i < options_.buffers; ++i) {
        rank.weights.push_back(builder_.persistent(r, BufferKind::transfer, weight_bytes(workload, largest)));
      }
      for (auto& slot : rank.gradients) slot = builder_.persistent(r, BufferKind::transfer, gradient_bytes(workload, largest));
      rank.stream = builder_.persistent(r, BufferKind::activations, builder_.stage(0).boundary);
      add_workspace(builder_, r);
      rank.saved.resize(static_cast<std::size_t>(ranks_));
      rank_.push_back(std::move(rank));
    }
    delivered_.resize(static_cast<std::size_t>(groups_.count()), -1);
    held_.resize(static_cast<std::size_t>(groups_.count()), -1);
    computed_.resize(static_cast<std::size_t>(groups_.count()));
    collected_ = computed_;
  }

  /// Where `rank` finds the shard its group computes with.
  BufferId weights_of(int rank, int shard, std::int64_t delivery) const {
    if (placement_.owner(shard) == rank) return states_[static_cast<std::size_t>(rank)].weights;
    return rank_[static_cast<std::size_t>(rank)].weights[static_cast<std::size_t>(delivery % options_.buffers)];
  }

  /// Where `rank` puts a shard's gradient: the owner adds to its total, others fill a buffer that is then collected.
  BufferId gradient_of(int rank, int shard) const {
    if (placement_.owner(shard) == rank) return states_[static_cast<std::size_t>(rank)].gradients;
    return rank_[static_cast<std::size_t>(rank)].gradients[static_cast<std::size_t>(shard % 2)];
  }

  /// Brings the shard of step + 1 into the group. A shard that the group has just used stays and is not sent again.
  void deliver(int group, std::int64_t step) {
    const Place next = place(step + 1, group);
    if (!next.active) return;
    auto& held = held_[static_cast<std::size_t>(group)];
    if (held == next.shard) return;
    held = next.shard;
    const std::int64_t delivery = ++delivered_[static_cast<std::size_t>(group)];
    const int owner = placement_.owner(next.shard);
    const int root = groups_.group_of(owner) == group ? owner : placement_.staging(next.shard, group);
    const Bytes bytes = weight_bytes(builder_.workload(), builder_.stage(next.shard).parameters);
    const auto at = static_cast<std::int32_t>(std::max<std::int64_t>(step + group, 0));
    const std::span<const TaskId> after =
        options_.overlap ? std::span<const TaskId>{} : computed_[static_cast<std::size_t>(group)];
    if (root != owner) {
      builder_.add({.op = Op::pass,
                    .payload = Payload::weights,
                    .lane = lane_out_,
                    .peer_lane = lane_in_,
                    .rank = Rank{owner},
                    .peer = Rank{root},
                    .stage = StageId{next.shard},
                    .step = at,
                    .bytes = bytes},
                   {reads(states_[static_cast<std::size_t>(owner)].weights), writes(weights_of(root, next.shard, delivery))},
                   after);
    }
    if (groups_.size(group) == 1) return;
    uses_.clear();
    for (const Rank member : groups_.members(group)) {
      const BufferId buffer = weights_of(number(member), next.shard, delivery);
      uses_.push_back(number(member) == root ? reads(buffer) : writes(buffer));
    }
    builder_.add(collective(Op::broadcast, Payload::weights, lane_broadcast_, root, group, next.shard, at, bytes), uses_, after);
  }

  void compute_step(int group, std::int64_t step) {
    if (options_.order == Order::paper) draw_idle(group, step);
    const Place now = place(step, group);
    if (!now.active) return;
    const StageWork& work = builder_.stage(now.shard);
    const std::int64_t delivery = delivered_[static_cast<std::size_t>(group)];
    const std::span<const TaskId> after =
        options_.overlap ? std::span<const TaskId>{} : collected_[static_cast<std::size_t>(group)];
    std::vector<TaskId> done;
    for (const Rank member : groups_.members(group)) {
      const int r = number(member);
      if (!has_microbatch(r, now.round)) continue;
      RankBuffers& rank = rank_[static_cast<std::size_t>(r)];
      BufferId& saved = rank.saved[static_cast<std::size_t>(now.shard)];
      if (now.forward) saved = builder_.transient(r, BufferKind::activations, work.saved, now.shard);
      uses_.clear();
      uses_.push_back(reads(weights_of(r, now.shard, delivery)));
      uses_.push_back(changes(rank.stream));
      if (now.forward) {
        uses_.push_back(writes(saved));
        edge_->forward(r, work, uses_);
      } else {
        uses_.push_back(reads(saved));
        const BufferId gradient = gradient_of(r, now.shard);
        uses_.push_back(placement_.owner(now.shard) == r ? adds_to(gradient) : writes(gradient));
        edge_->backward(r, work, uses_);
      }
      done.push_back(builder_.add(compute(now.forward ? Op::forward : Op::backward, r, now.shard, now.round * ranks_ + r,
                                          static_cast<std::int32_t>(step + group)),
                                  uses_, after));
    }
    computed_[static_cast<std::size_t>(group)] = std::move(done);
  }

  /// The paper draws group g's start g units late, and one unit between forward and backward (after the last backward in
  /// the first group), where dependencies alone ask for none.
  void draw_idle(int group, std::int64_t step) {
    const Place now = place(step, group);
    const Place before = place(step - 1, group);
    const bool starts = now.active && step == 0;
    const bool turns = group > 0 && now.active && !now.forward && now.shard == ranks_ - 1;
    const bool ended = group == 0 && before.active && !before.forward && before.shard == 0;
    const int units = starts ? group : (turns || ended ? 1 : 0);
    for (int unit = 0; unit < units; ++unit) {
      for (const Rank member : groups_.members(group)) builder_.add(compute(Op::idle, number(member), 0, -1), {});
    }
  }

  /// Sums the gradient of the step before in the group and sends it to its owner, which adds it to its own.
  void collect(int group, std::int64_t step) {
    const Place last = place(step - 1, group);
    if (!last.active || last.forward) return;
    const int owner = placement_.owner(last.shard);
    const bool at_home = groups_.group_of(owner) == group;
    const int root = at_home ? owner : groups_.first(group);
    const Bytes bytes = gradient_bytes(builder_.workload(), builder_.stage(last.shard).parameters);
    const BufferId total = states_[static_cast<std::size_t>(owner)].gradients;
    const auto at = static_cast<std::int32_t>(step + group);
    auto& collected = collected_[static_cast<std::size_t>(group)];
    collected.clear();
    if (groups_.size(group) > 1) {
      uses_.clear();
      for (const Rank member : groups_.members(group)) {
        // A member without a microbatch names no buffer and adds zeros; the owner's total counts in any case.
        if (number(member) != root && !has_microbatch(number(member), last.round)) continue;
        const BufferId buffer = gradient_of(number(member), last.shard);
        uses_.push_back(number(member) != root ? reads(buffer) : at_home ? adds_to(buffer) : changes(buffer));
      }
      collected.push_back(
          builder_.add(collective(Op::reduce, Payload::gradients, lane_reduce_, root, group, last.shard, at, bytes), uses_));
    }
    if (at_home) return;
    collected.push_back(builder_.add({.op = Op::pass,
                                      .payload = Payload::gradients,
                                      .lane = lane_gradients_out_,
                                      .peer_lane = lane_gradients_in_,
                                      .rank = Rank{root},
                                      .peer = Rank{owner},
                                      .stage = StageId{last.shard},
                                      .step = at,
                                      .bytes = bytes},
                                     {reads(gradient_of(root, last.shard)), adds_to(total)}));
  }

  Task collective(Op op, Payload payload, std::uint8_t lane, int root, int group, int shard, std::int32_t step, Bytes bytes) {
    return {.op = op,
            .payload = payload,
            .lane = lane,
            .rank = Rank{root},
            .group = builder_.group(groups_.members(group)),
            .stage = StageId{shard},
            .step = step,
            .bytes = bytes};
  }

  struct RankBuffers {
    std::vector<BufferId> weights;        ///< [slot] shards of others
    std::array<BufferId, 2> gradients{};  ///< [shard % 2] computed, not yet collected
    BufferId stream = none<BufferId>;     ///< the hidden state (forward) or its gradient (backward)
    std::vector<BufferId> saved;          ///< [shard] of the microbatch in work
  };

  ScheduleBuilder builder_;
  DeviceGroups groups_;
  TawpipeOptions options_;
  int ranks_;
  placements::Interleaved placement_;
  const ReplicatedEdge* edge_ = nullptr;
  std::vector<int> shard_of_;            ///< [rank]
  std::vector<States> states_;           ///< [rank]
  std::vector<RankBuffers> rank_;        ///< [rank]
  std::vector<std::int64_t> delivered_;  ///< [group] deliveries so far, less one
  std::vector<int> held_;                ///< [group] the shard delivered last
  std::vector<Use> uses_;
  std::vector<std::vector<TaskId>> computed_;   ///< [group] its last step's computations
  std::vector<std::vector<TaskId>> collected_;  ///< [group] its last collection of a gradient
  static constexpr std::uint8_t lane_out_ = 1;
  static constexpr std::uint8_t lane_in_ = 2;
  static constexpr std::uint8_t lane_broadcast_ = 3;
  static constexpr std::uint8_t lane_reduce_ = 4;
  static constexpr std::uint8_t lane_gradients_out_ = 5;
  static constexpr std::uint8_t lane_gradients_in_ = 6;
};

}  // namespace detail

/// TawPipe: each rank owns one of `groups.ranks()` shards for good; a shard reaches each group once, by one point-to-point
/// copy to a staging rank, and is broadcast inside the group; gradients are reduced in the group and sent to the owner.
///
/// Microbatch u * ranks + r runs on rank r in round u; a last round may be short.
/// @throws InputError  if an option is out of range.
/// Source: arXiv:2511.09741, sections on device-bound storage, the group-based weight pipeline scheduler and
/// communication-computation overlap.
inline Schedule tawpipe(const Workload& workload, const DeviceGroups& groups, const TawpipeOptions& options = {}) {
  return detail::TawpipeBuilder{workload, groups, options}.build();
}

}  // namespace tawpipe::schedules
