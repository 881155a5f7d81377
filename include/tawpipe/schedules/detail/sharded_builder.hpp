// Builds one iteration of sharded data parallelism from a plan.
// Not: the named strategies (data_parallel.hpp, fully_sharded.hpp, hybrid_sharded.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/detail/prefetch_window.hpp"
#include "tawpipe/schedules/detail/shard_layout.hpp"
#include "tawpipe/schedules/detail/shard_sets.hpp"
#include "tawpipe/schedules/detail/sharded_states.hpp"
#include "tawpipe/schedules/detail/sharding_lanes.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Rounds of forwards and backwards over the units, with gathers before and reductions after them;
/// in the last round each unit's gradient is reduced to the optimizer's scope; then come updates,
/// then gathers of weights to their own scope.
class ShardedBuilder {
 public:
  ShardedBuilder(const Workload& workload, const DeviceGroups& groups, const ShardingPlan& plan)
      : builder_{plan.name, workload, groups.ranks()},
        lanes_{builder_, plan},
        groups_{groups},
        plan_{plan},
        ranks_{groups.ranks()},
        one_level_{!plan.two_level || groups.count() == 1},
        copies_{plan.node_copy && groups.count() > 1},
        each_{plan.reduce_each && groups.count() > 1},
        layout_{layout_of(plan, groups, one_level_)},
        sets_{with_units(builder_), layout_, groups_},
        states_{builder_, sets_, plan_, ranks_},
        window_{groups.count(), plan.prefetch} {
    for (const auto& [key, value] : plan.options) builder_.option(key, value);
    units_ = static_cast<int>(builder_.stages().size());
    for (int unit = 0; unit < units_; ++unit) whole_.push_back(sets_.all(unit));
    for (int r = 0; r < ranks_; ++r) all_.push_back(Rank{r});
    for (int g = 0; g < groups_.count(); ++g) nodes_.push_back(groups_.members(g));
    add_buffers();
  }

  Schedule build() {
    const std::int64_t microbatches = builder_.workload().microbatches();
    for (first_ = 0; first_ < microbatches; first_ += ranks_) {
      for (int unit = 0; unit < units_; ++unit) {
        gather(unit, true);
        compute_unit(unit, true);
      }
      for (int unit = units_ - 1; unit >= 0; --unit) {
        if (plan_.reshard && (!plan_.gather_first || unit + 1 == units_)) gather(unit, false);
        compute_unit(unit, false);
        if (plan_.reshard && plan_.gather_first && unit > 0) gather(unit - 1, false);
        reduce(unit);
        if (first_ + ranks_ >= microbatches) complete(unit);
      }
      if (first_ == 0) builder_.expect_all(ranks_, microbatches);
    }
    for (int part = 0; part < states_.parts(); ++part) {
      for (int r = 0; r < ranks_; ++r) states_.update(builder_, r, part);
      spread(part);
    }
    return builder_.copies_gathered(plan_.weights != Scope::replicated).build();
  }

 private:
  struct RankBuffers {
    std::vector<BufferId> full;      ///< [unit] the gathered weights; none: all are in the states
    std::vector<BufferId> copy;      ///< [unit] the slice of the node's copy
    std::vector<BufferId> gradient;  ///< [unit] in transit: whole, or a slice of the node's sum
    std::vector<BufferId> saved;     ///< [unit]
    BufferId stream = none<BufferId>;
    std::array<TaskId, 2> reductions{none<TaskId>, none<TaskId>};  ///< the last two it was in
  };

  static ScheduleBuilder& with_units(ScheduleBuilder& builder) {
    builder.stages(builder.workload().units());
    return builder;
  }

  RankBuffers& at(Rank rank) { return rank_[index(rank)]; }
  static std::size_t at_unit(int unit) { return static_cast<std::size_t>(unit); }
  /// The bytes of that many parameters of a unit, as gathered.
  Bytes gathered(int unit, std::int64_t count) const { return builder_.workload().gathered_bytes(builder_.stage(unit), count); }
  /// The gradient of a unit or part; along a rail, that of the parameters that a message carries.
  Bytes gradient_of(int list) const { return gradient_bytes(builder_.workload(), sets_.count(list)); }
  Bytes gradient_of(int list, std::size_t rail) const { return gradient_bytes(builder_.workload(), sets_.carries(list, rail)); }
  bool works(Rank rank) const { return first_ + number(rank) < builder_.workload().microbatches(); }
  /// Ranks work in order, so a node works if its first rank does.
  bool works(int node) const { return works(nodes_[static_cast<std::size_t>(node)][0]); }
  bool alone(Rank rank) const { return groups_.size(groups_.group_of(number(rank))) == 1; }

  void add_buffers() {
    for (int r = 0; r < ranks_; ++r) {
      RankBuffers rank;
      rank.full.resize(at_unit(units_), none<BufferId>);
      rank.copy = rank.full;
      rank.gradient = rank.full;
      rank.saved = rank.full;
      for (int unit = 0; copies_ && unit < units_; ++unit) {
        const auto slice = sets_.share(Scope::node, r, unit);
        const Content content{ContentKind::weights, StageId{unit}, builder_.pieces(slice)};
        const Bytes bytes = weight_bytes(builder_.workload(), parameters_in(slice));
        rank.copy[at_unit(unit)] = builder_.persistent_copy(r, content, bytes);
      }
      rank.stream = builder_.persistent(r, Content{ContentKind::activation}, builder_.stage(0).boundary);
      add_workspace(builder_, r);
      rank_.push_back(std::move(rank));
    }
  }

  /// Adds a collective with the uses collected, and clears them.
  TaskId collect(Op op, Payload payload, LaneId lane, int unit, const std::vector<Rank>& members, Bytes bytes, SplitId split,
                 std::span<const TaskId> after = {}) {
    const TaskId task = builder_.add({.op = op,
                                      .payload = payload,
                                      .lane = lane,
                                      .rank = members[0],
                                      .group = builder_.group(members),
                                      .stage = StageId{unit},
                                      .split = split,
                                      .bytes = bytes},
                                     uses_, after);
    uses_.clear();
    return task;
  }
  /// All parameters of a unit.
  Content all_of(ContentKind kind, int unit) const { return {kind, StageId{unit}, whole_[at_unit(unit)]}; }
  /// The unit whose states a message carries: a tied last edge uses the first edge's.
  int label(int unit) const {
    const int own = states_.unit(states_.part_of(unit));
    return own < 0 ? unit : own;
  }
  void gather_weights(int unit, const std::vector<Rank>& members, Bytes bytes, SplitId split,
                      std::span<const TaskId> after = {}) {
    collect(Op::all_gather, Payload::weights, lanes_.gather, label(unit), members, bytes, split, after);
  }
  /// A reduction of gradients of one round; the ranks' backwards after the next wait for it.
  void reduce_gradients(Op op, LaneId lane, int unit, const std::vector<Rank>& members, Bytes bytes, SplitId split) {
    const TaskId task = collect(op, Payload::gradients, lane, label(unit), members, bytes, split);
    for (const Rank rank : members) at(rank).reductions[1] = task;
  }

  // ---- weights: gathered before use -------------------------------------------------------------

  void gather(int unit, bool forward) {
    if (plan_.weights == Scope::replicated || states_.part_of(unit) < 0 || ranks_ == 1) return;
    const bool over_all = plan_.weights == Scope::all && (forward || !copies_);
    if (over_all && one_level_) {
      for (const Rank rank : all_) {
        read_states(rank, unit);
        if (copies_) uses_.push_back(writes(at(rank).copy[at_unit(unit)]));
        uses_.push_back(writes(fresh(rank, unit)));
      }
      gather_weights(unit, all_, gathered(unit, sets_.count(unit)), sets_.shards(unit), window_.all());
      return;
    }
    if (over_all) gather_across(unit);
    for (std::size_t g = 0; g < nodes_.size(); ++g) gather_inside(unit, g, over_all && !copies_);
  }

  /// Each rank gets its slice: into the node's copy, or in place where the node then fills it.
  void gather_across(int unit) {
    const auto target = [&](Rank rank) { return (copies_ ? at(rank).copy : at(rank).full)[at_unit(unit)]; };
    for (const Rank rank : all_) {
      if (!copies_) fresh(rank, unit);
    }
    for (std::size_t i = 0; i < layout_.rails().size(); ++i) {
      const Rail& rail = layout_.rails()[i];
      for (std::size_t g = 0; g < rail.members.size(); ++g) {
        read_states(rail.members[g], unit);
        uses_.push_back(rail.keeps[g] != 0 ? writes(target(rail.members[g])) : changes(target(rail.members[g])));
      }
      gather_weights(unit, rail.members, gathered(unit, sets_.carries(unit, i)), sets_.kept(unit, i), window_.all());
    }
  }

  /// @param in_place  the slices lie in the buffer to fill
  void gather_inside(int unit, std::size_t node, bool in_place) {
    const auto& members = nodes_[node];
    if (members.size() == 1) {
      if (copies_) at(members[0]).full[at_unit(unit)] = at(members[0]).copy[at_unit(unit)];
      return;
    }
    if (!works(static_cast<int>(node))) return;
    for (const Rank rank : members) {
      if (in_place) {
        uses_.push_back(changes(at(rank).full[at_unit(unit)]));
        continue;
      }
      if (copies_) {
        uses_.push_back(reads(at(rank).copy[at_unit(unit)]));
      } else {
        read_states(rank, unit);
      }
      uses_.push_back(writes(fresh(rank, unit)));
    }
    gather_weights(unit, members, gathered(unit, sets_.count(unit)), sets_.slices(unit, node),
                   in_place ? std::vector<TaskId>{} : window_.of(node));
  }

  void read_states(Rank rank, int unit) {
    const int part = states_.part_of(unit);
    if (part >= 0) uses_.push_back(reads(states_.weights(number(rank), part)));
  }
  void add_to_states(Rank rank, int unit) { uses_.push_back(adds_to(states_.gradients(number(rank), states_.part_of(unit)))); }
  BufferId fresh(Rank rank, int unit) {
    BufferId& full = at(rank).full[at_unit(unit)];
    full = builder_.transient(number(rank), all_of(ContentKind::weights, unit), gathered(unit, sets_.count(unit)));
    return full;
  }

  // ---- computation ------------------------------------------------------------------------------

  void compute_unit(int unit, bool forward) {
    const StageWork& work = builder_.stage(unit);
    const auto u = at_unit(unit);
    for (std::size_t g = 0; g < nodes_.size(); ++g) {
      std::vector<TaskId> done;
      for (const Rank member : nodes_[g]) {
        RankBuffers& rank = at(member);
        if (!forward) rank.gradient[u] = none<BufferId>;
        if (!works(member)) continue;
        if (rank.full[u] != none<BufferId>) {
          uses_.push_back(reads(rank.full[u]));
        } else {
          read_states(member, unit);
        }
        uses_.push_back(changes(rank.stream));
        if (forward) {
          const auto microbatch = static_cast<std::int32_t>(first_ + number(member));
          rank.saved[u] = builder_.transient(number(member), {ContentKind::saved, StageId{unit}, microbatch}, work.saved);
          uses_.push_back(writes(rank.saved[u]));
        } else {
          uses_.push_back(reads(rank.saved[u]));
          leave_gradient(member, unit);
        }
        // A backward waits for the reduction two units earlier: a rank holds at most two gradients.
        const std::span<const TaskId> after{rank.reductions.data(), forward ? 0U : 1U};
        done.push_back(builder_.add(compute(forward ? Op::forward : Op::backward, number(member), unit, first_ + number(member)),
                                    uses_, after));
        uses_.clear();
      }
      window_.computed(g, std::move(done));
    }
  }

  /// Goes into the rank's states where they hold all of it, else into a buffer to be reduced.
  void leave_gradient(Rank rank, int unit) {
    if (states_.part_of(unit) < 0) return;
    const bool whole = plan_.gradients == Scope::replicated || (plan_.gradients == Scope::node && alone(rank) && !each_);
    if (whole || ranks_ == 1) return add_to_states(rank, unit);
    BufferId& gradient = at(rank).gradient[at_unit(unit)];
    gradient = builder_.transient(number(rank), all_of(ContentKind::gradients, unit), gradient_of(unit));
    uses_.push_back(writes(gradient));
  }

  // ---- gradients: reduced in each round ---------------------------------------------------------

  /// Sums a unit's gradient over its scope and adds it to the states. A rank without a microbatch
  /// adds zeros and names no buffer, unless it holds a part of its node's sum; a node without one
  /// takes no part in its inner collectives.
  void reduce(int unit) {
    for (auto& rank : rank_) rank.reductions = {rank.reductions[1], none<TaskId>};
    if (plan_.gradients == Scope::replicated || states_.part_of(unit) < 0 || ranks_ == 1) return;
    if (plan_.gradients == Scope::all && one_level_) {
      for (const Rank rank : all_) {
        read_gradient(rank, unit);
        add_to_states(rank, unit);
      }
      reduce_gradients(Op::reduce_scatter, lanes_.scatter, unit, all_, gradient_of(unit), sets_.shards(unit));
      return;
    }
    const bool further = plan_.gradients == Scope::all || each_;
    for (std::size_t g = 0; g < nodes_.size(); ++g) {
      const auto& members = nodes_[g];
      if (members.size() == 1 || !works(static_cast<int>(g))) continue;
      for (const Rank rank : members) {
        if (!further) {
          read_gradient(rank, unit);
          add_to_states(rank, unit);
        } else if (works(rank)) {
          uses_.push_back(changes(at(rank).gradient[at_unit(unit)]));
        } else {  // has no microbatch but holds a part of the node's sum
          const auto slice = sets_.share(Scope::node, number(rank), unit);
          at(rank).gradient[at_unit(unit)] =
              builder_.transient(number(rank), {ContentKind::gradients, StageId{unit}, builder_.pieces(slice)},
                                 gradient_bytes(builder_.workload(), parameters_in(slice)));
          uses_.push_back(writes(at(rank).gradient[at_unit(unit)]));
        }
      }
      reduce_gradients(Op::reduce_scatter, lanes_.scatter, unit, members, gradient_of(unit), sets_.slices(unit, g));
    }
    if (!further) return;
    for (std::size_t i = 0; i < layout_.rails().size(); ++i) {
      const Rail& rail = layout_.rails()[i];
      for (std::size_t g = 0; g < rail.members.size(); ++g) {
        read_gradient(rail.members[g], unit);
        if (each_ || rail.keeps[g] != 0) add_to_states(rail.members[g], unit);
      }
      if (each_) {
        reduce_gradients(Op::all_reduce, lanes_.across, unit, rail.members, gradient_of(unit, i), sets_.carried(unit, i));
      } else {
        reduce_gradients(Op::reduce_scatter, lanes_.scatter, unit, rail.members, gradient_of(unit, i), sets_.kept(unit, i));
      }
    }
  }

  void read_gradient(Rank rank, int unit) {
    if (at(rank).gradient[at_unit(unit)] != none<BufferId>) uses_.push_back(reads(at(rank).gradient[at_unit(unit)]));
  }

  // ---- once an iteration ------------------------------------------------------------------------

  /// Reduces a part's gradient, the sum of all rounds, from its scope to the optimizer's, in place.
  void complete(int unit) {
    const int part = states_.part_of(unit);
    if (plan_.gradients == Scope::all || each_ || ranks_ == 1 || part < 0 || states_.unit(part) != unit) return;
    const int list = states_.list(part);
    const bool replicated = plan_.gradients == Scope::replicated;
    const bool cut = plan_.optimizer == Scope::all;
    const Op across = cut ? Op::reduce_scatter : Op::all_reduce;
    const LaneId lane = replicated ? lanes_.scatter : lanes_.across;
    const auto sum = [&](Op op, const std::vector<Rank>& members, Bytes size, SplitId split) {
      for (const Rank rank : members) uses_.push_back(changes(states_.gradients(number(rank), part)));
      collect(op, Payload::gradients, lane, unit, members, size, split);
    };
    if (replicated && plan_.optimizer != Scope::node && one_level_) {
      return sum(across, all_, gradient_of(list), cut ? sets_.shards(list) : sets_.whole(list));
    }
    for_each_node([&](std::size_t g) {
      if (replicated) sum(Op::reduce_scatter, nodes_[g], gradient_of(list), sets_.slices(list, g));
    });
    for_each_rail([&](std::size_t i, const Rail& rail) {
      sum(across, rail.members, gradient_of(list, i), cut ? sets_.kept(list, i) : sets_.carried(list, i));
    });
    for_each_node([&](std::size_t g) {
      if (plan_.optimizer == Scope::replicated) sum(Op::all_gather, nodes_[g], gradient_of(list), sets_.slices(list, g));
    });
  }

  /// Gathers a part's new weights from the optimizer's scope to their own, in place.
  void spread(int part) {
    if (plan_.optimizer == plan_.weights || ranks_ == 1) return;
    const int list = states_.list(part);
    const auto give = [&](const std::vector<Rank>& members, std::int64_t count, SplitId split) {
      for (const Rank rank : members) uses_.push_back(changes(states_.weights(number(rank), part)));
      gather_weights(states_.unit(part), members, weight_bytes(builder_.workload(), count), split);
    };
    const bool replicated = plan_.weights == Scope::replicated;
    if (replicated && plan_.optimizer == Scope::all && one_level_) return give(all_, sets_.count(list), sets_.shards(list));
    for_each_rail([&](std::size_t i, const Rail& rail) {
      if (plan_.optimizer == Scope::all) give(rail.members, sets_.carries(list, i), sets_.kept(list, i));
    });
    for_each_node([&](std::size_t g) {
      if (replicated) give(nodes_[g], sets_.count(list), sets_.slices(list, g));
    });
  }

  /// Nodes of more than one rank.
  template <class Visit>
  void for_each_node(Visit&& visit) const {
    for (std::size_t g = 0; g < nodes_.size(); ++g) {
      if (nodes_[g].size() > 1) visit(g);
    }
  }
  /// Rails of more than one rank.
  template <class Visit>
  void for_each_rail(Visit&& visit) const {
    for (std::size_t i = 0; nodes_.size() > 1 && i < layout_.rails().size(); ++i) visit(i, layout_.rails()[i]);
  }

  ScheduleBuilder builder_;
  ShardingLanes lanes_;
  DeviceGroups groups_;
  ShardingPlan plan_;
  int ranks_;
  bool one_level_;  ///< collectives over all ranks are one ring
  bool copies_;     ///< each node keeps a copy for its backwards
  bool each_;       ///< gradients are summed over the nodes in each round
  ShardLayout layout_;
  ShardSets sets_;
  ShardedStates states_;
  int units_ = 0;
  std::int64_t first_ = 0;       ///< microbatch of the round
  std::vector<PiecesId> whole_;  ///< [unit] its parameters
  std::vector<Rank> all_;
  std::vector<std::vector<Rank>> nodes_;
  std::vector<RankBuffers> rank_;
  PrefetchWindow window_;
  std::vector<Use> uses_;  ///< of the task under construction
};

}  // namespace tawpipe::schedules::detail
