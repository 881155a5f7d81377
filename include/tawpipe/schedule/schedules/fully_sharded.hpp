// Fully sharded data parallelism (ZeRO-3): every unit is gathered before use and its gradient scattered after.
// Not: hybrid sharding, which keeps a copy in each node.
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/schedule/schedules/common.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::schedules {

struct FullyShardedOptions {
  bool two_level = false;  ///< collectives between nodes first, each piece once, then inside the nodes; otherwise one ring
  int prefetch = 0;        ///< units gathered ahead of the one computed; 0 gathers each when it is needed
  bool reshard = true;     ///< off: a unit gathered for the forward stays until its backward
  bool overlap = true;     ///< off: communication takes the compute lane's time
};

namespace detail {

class FullyShardedBuilder {
 public:
  FullyShardedBuilder(const Workload& workload, const DeviceGroups& groups, const FullyShardedOptions& options)
      : builder_{"fsdp", workload, groups.ranks(),
                 options.overlap ? std::vector<std::string>{"compute", "gather", "scatter"}
                                 : std::vector<std::string>{"compute"}},
        groups_{groups},
        options_{options},
        ranks_{groups.ranks()} {
    if (options.prefetch < 0) throw InputError("fsdp needs prefetch=0 or more");
    builder_.option("collectives", options.two_level ? "two-level" : "flat");
    builder_.option("prefetch", std::to_string(options.prefetch));
    builder_.option("reshard", on_off(options.reshard));
    builder_.option("overlap", on_off(options.overlap));
    builder_.stages(workload.units());
    units_ = static_cast<int>(builder_.stages().size());
  }

  Schedule build() {
    add_buffers();
    const std::int64_t microbatches = builder_.workload().microbatches();
    for (std::int64_t first = 0; first < microbatches; first += ranks_) {
      for (int unit = 0; unit < units_; ++unit) {
        gather(unit);
        compute_unit(unit, first, true);
      }
      for (int unit = units_ - 1; unit >= 0; --unit) {
        if (options_.reshard) gather(unit);
        compute_unit(unit, first, false);
        scatter(unit);
      }
    }
    for (int r = 0; r < ranks_; ++r) {
      const States& own = states_[static_cast<std::size_t>(r)];
      builder_.add(update(r, -1, own.bytes), {reads(own.gradients), changes(own.weights), changes(own.optimizer)});
    }
    return builder_.build();
  }

 private:
  struct RankBuffers {
    std::vector<BufferId> full;      ///< [unit] the gathered weights
    std::vector<BufferId> gradient;  ///< [unit] the whole gradient before it is scattered
    std::vector<BufferId> saved;     ///< [unit]
    BufferId stream = none<BufferId>;
  };

  static std::int64_t parameters(const StageWork& unit) { return unit.parameters + unit.edge_parameters; }
  RankBuffers& at(int rank) { return rank_[static_cast<std::size_t>(rank)]; }

  void add_buffers() {
    std::int64_t total = builder_.workload().edge_parameters();
    for (const auto& unit : builder_.stages()) total += unit.parameters;
    for (int r = 0; r < ranks_; ++r) {
      states_.push_back(add_states(builder_, r, (total + ranks_ - 1) / ranks_, -1));
      RankBuffers rank;
      rank.full.resize(static_cast<std::size_t>(units_), none<BufferId>);
      rank.gradient = rank.full;
      rank.saved = rank.full;
      rank.stream = builder_.persistent(r, BufferKind::activations, builder_.stage(0).boundary);
      add_workspace(builder_, r);
      rank_.push_back(std::move(rank));
      all_.push_back(Rank{r});
    }
    for (int place = 0; options_.two_level && place < groups_.largest(); ++place) {
      std::vector<Rank> rail;
      std::int64_t pieces = 0;
      for (int g = 0; g < groups_.count(); ++g) {
        rail.push_back(Rank{groups_.first(g) + place % groups_.size(g)});
        if (place < groups_.size(g)) ++pieces;
      }
      rails_.push_back({std::move(rail), pieces});
    }
  }

  Task collective(Op op, Payload payload, std::uint8_t lane, int unit, const std::vector<Rank>& members, Bytes bytes) {
    return {.op = op,
            .payload = payload,
            .lane = lane,
            .rank = members[0],
            .group = builder_.group(members),
            .stage = StageId{unit},
            .bytes = bytes};
  }

  /// What a gather must wait for so that no more than `prefetch` units lie ready: the unit computed that many before.
  std::span<const TaskId> limit() const {
    const auto ahead = static_cast<std::size_t>(options_.prefetch) + 1;
    return computed_.size() < ahead ? std::span<const TaskId>{} : std::span<const TaskId>{computed_[computed_.size() - ahead]};
  }

  void gather(int unit) {
    if (parameters(builder_.stage(unit)) == 0 || ranks_ == 1) {
      for (int r = 0; r < ranks_; ++r) at(r).full[static_cast<std::size_t>(unit)] = states_[static_cast<std::size_t>(r)].weights;
      return;
    }
    const Bytes bytes = weight_bytes(builder_.workload(), parameters(builder_.stage(unit)));
    for (int r = 0; r < ranks_; ++r) {
      at(r).full[static_cast<std::size_t>(unit)] = builder_.transient(r, BufferKind::transfer, bytes, unit);
    }
    std::vector<Use> uses;
    const auto use = [&](Rank rank) {
      uses.push_back(reads(states_[index(rank)].weights));
      uses.push_back(writes(at(number(rank)).full[static_cast<std::size_t>(unit)]));
    };
    if (!options_.two_level || groups_.count() == 1) {
      for (const Rank rank : all_) use(rank);
      builder_.add(collective(Op::all_gather, Payload::weights, lane_gather_, unit, all_, bytes), uses, limit());
      return;
    }
    for (std::size_t place = 0; place < rails_.size(); ++place) {
      const Rail& rail = rails_[place];
      uses.clear();
      for (const Rank rank : rail.members) {
        use(rank);
        // A rank of a smaller group stands in several rails, which fill its buffer one after the other.
        const int group = groups_.group_of(number(rank));
        if (static_cast<int>(place) >= groups_.size(group)) uses.back().access = Access::read_write;
      }
      builder_.add(collective(Op::all_gather, Payload::weights, lane_gather_, unit, rail.members, bytes * rail.pieces / ranks_),
                   uses, limit());
    }
    for (int g = 0; g < groups_.count(); ++g) {
      if (groups_.size(g) == 1) continue;
      uses.clear();
      for (const Rank rank : groups_.members(g)) uses.push_back(changes(at(number(rank)).full[static_cast<std::size_t>(unit)]));
      builder_.add(collective(Op::all_gather, Payload::weights, lane_gather_, unit, groups_.members(g), bytes), uses);
    }
  }

  void compute_unit(int unit, std::int64_t first, bool forward) {
    const auto u = static_cast<std::size_t>(unit);
    const StageWork& work = builder_.stage(unit);
    const Bytes gradient = gradient_bytes(builder_.workload(), parameters(work));
    std::vector<TaskId> done;
    for (int r = 0; r < ranks_; ++r) {
      RankBuffers& rank = at(r);
      if (!forward) rank.gradient[u] = none<BufferId>;
      if (first + r >= builder_.workload().microbatches()) continue;
      std::vector<Use> uses{reads(rank.full[u]), changes(rank.stream)};
      if (forward) {
        rank.saved[u] = builder_.transient(r, BufferKind::activations, work.saved, unit);
        uses.push_back(writes(rank.saved[u]));
      } else {
        uses.push_back(reads(rank.saved[u]));
        if (ranks_ == 1) {
          uses.push_back(adds_to(states_[0].gradients));
        } else {
          rank.gradient[u] = builder_.transient(r, BufferKind::transfer, gradient, unit);
          uses.push_back(writes(rank.gradient[u]));
        }
      }
      done.push_back(builder_.add(compute(forward ? Op::forward : Op::backward, r, unit, first + r), uses,
                                  forward ? std::span<const TaskId>{} : second_last_scatter()));
    }
    computed_.push_back(std::move(done));
    if (computed_.size() > static_cast<std::size_t>(options_.prefetch) + 1) computed_.erase(computed_.begin());
  }

  /// A backward waits for the scatter of two units before, so that a rank holds two whole gradients at most.
  std::span<const TaskId> second_last_scatter() const {
    return scattered_.size() < 2 ? std::span<const TaskId>{} : std::span<const TaskId>{scattered_[0]};
  }

  /// Sums a unit's gradient over all ranks; each keeps its shard. A rank without a microbatch adds zeros and
  /// names no buffer, unless it holds a part of its node's sum.
  void scatter(int unit) {
    const std::int64_t count = parameters(builder_.stage(unit));
    if (count == 0 || ranks_ == 1) return;
    const Bytes bytes = gradient_bytes(builder_.workload(), count);
    const auto gradient = [&](Rank rank) -> BufferId& { return at(number(rank)).gradient[static_cast<std::size_t>(unit)]; };
    std::vector<TaskId> done;
    std::vector<Use> uses;
    const bool flat = !options_.two_level || groups_.count() == 1;
    for (int g = 0; !flat && g < groups_.count(); ++g) {
      if (groups_.size(g) == 1) continue;
      uses.clear();
      const auto members = groups_.members(g);
      const bool any = std::any_of(members.begin(), members.end(), [&](Rank r) { return gradient(r) != none<BufferId>; });
      for (const Rank rank : members) {
        if (gradient(rank) != none<BufferId>) {
          uses.push_back(changes(gradient(rank)));
        } else if (any) {  // without a microbatch of its own, it still holds its part of the node's sum
          gradient(rank) = builder_.transient(number(rank), BufferKind::transfer, bytes / groups_.size(g), unit);
          uses.push_back(writes(gradient(rank)));
        }
      }
      builder_.add(collective(Op::reduce_scatter, Payload::gradients, lane_scatter_, unit, members, bytes), uses);
    }
    // A rank of a smaller group stands in several rails: it adds its gradient to each sum and keeps its shard of its own.
    const auto scatter_over = [&](const std::vector<Rank>& members, Bytes size, int place) {
      uses.clear();
      for (const Rank rank : members) {
        if (gradient(rank) != none<BufferId>) uses.push_back(reads(gradient(rank)));
        const bool keeps = flat || place < groups_.size(groups_.group_of(number(rank)));
        if (keeps) uses.push_back(adds_to(states_[index(rank)].gradients));
      }
      done.push_back(builder_.add(collective(Op::reduce_scatter, Payload::gradients, lane_scatter_, unit, members, size), uses));
    };
    if (flat) {
      scatter_over(all_, bytes, 0);
    } else {
      for (std::size_t place = 0; place < rails_.size(); ++place) {
        scatter_over(rails_[place].members, bytes * rails_[place].pieces / ranks_, static_cast<int>(place));
      }
    }
    scattered_.push_back(std::move(done));
    if (scattered_.size() > 2) scattered_.erase(scattered_.begin());
  }

  /// The ranks that hold like pieces, one a group, and how many of all ranks' pieces travel between them.
  struct Rail {
    std::vector<Rank> members;
    std::int64_t pieces;
  };

  ScheduleBuilder builder_;
  DeviceGroups groups_;
  FullyShardedOptions options_;
  int ranks_;
  int units_ = 0;
  std::vector<States> states_;     ///< [rank]
  std::vector<RankBuffers> rank_;  ///< [rank]
  std::vector<Rank> all_;
  std::vector<Rail> rails_;
  std::vector<std::vector<TaskId>> computed_;   ///< the last units' computations, as many as may lie ready
  std::vector<std::vector<TaskId>> scattered_;  ///< the last two units' scatters
  std::uint8_t lane_gather_ = options_.overlap ? 1 : 0;
  std::uint8_t lane_scatter_ = options_.overlap ? 2 : 0;
};

}  // namespace detail

/// FSDP (ZeRO-3): weights, gradients and optimizer states cut over all ranks; each unit (embedding, layer, head) is
/// all-gathered before its forward and again before its backward, its gradient reduce-scattered after.
///
/// Microbatch u * ranks + r runs on rank r in round u; a last round may be short.
/// @param groups  the nodes, for two-level collectives; they need not be equal
/// @throws InputError  if an option is out of range.
/// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054; Zhao et al. 2023, PyTorch FSDP, arXiv:2304.11277.
inline Schedule fully_sharded(const Workload& workload, const DeviceGroups& groups, const FullyShardedOptions& options = {}) {
  return detail::FullyShardedBuilder{workload, groups, options}.build();
}

}  // namespace tawpipe::schedules
