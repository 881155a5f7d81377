// Sends shards between TawPipe's groups in pieces, one over each device's own adapter, instead of
// whole from their owner.
// Not: which shard goes where and when (schedules/tawpipe.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/shard_owners.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// TawPipe's lanes; the last two only where shards are striped.
struct TawpipeLanes {
  TawpipeLanes(ScheduleBuilder& builder, bool striped)
      : weights_out{builder.lane("weights_out")},
        weights_in{builder.lane("weights_in")},
        broadcast{builder.lane("broadcast")},
        reduce{builder.lane("reduce")},
        gradients_out{builder.lane("gradients_out")},
        gradients_in{builder.lane("gradients_in")} {
    if (!striped) return;
    scatter = builder.lane("scatter");
    gather = builder.lane("gather");
  }

  LaneId weights_out;
  LaneId weights_in;
  LaneId broadcast;
  LaneId reduce;
  LaneId gradients_out;
  LaneId gradients_in;
  LaneId scatter{};
  LaneId gather{};
};

/// Sends shards to groups, and gradients back to owners, in as many pieces as the group has
/// members: piece j belongs to member j and travels between it and its counterpart, the device at
/// index j (wrapped) of the owner's group.
///
/// Weights: the owner scatters the pieces to the counterparts; these send them to the members,
/// which gather them. Counterparts keep theirs for the groups that need them next. Gradients:
/// reduce-scattered in the group, sent to the counterparts, and added to the owner's gradient
/// there.
class TawpipeStripes {
 public:
  /// @param states   [shard] states of the owners
  /// @param buffers  the number of shards whose pieces a counterpart can hold at a time
  TawpipeStripes(ScheduleBuilder& builder, const TawpipeLanes& lanes, const DeviceGroups& groups,
                 const placements::Interleaved& placement, const std::vector<States>& states, int buffers)
      : builder_{builder}, lanes_{lanes}, groups_{groups}, placement_{placement}, states_{states}, buffers_{buffers} {
    for (int k = 0; k < placement.shards(); ++k) {
      const auto& layers = builder.space().layers_of(k);
      ranges_.push_back(layers.empty() ? ParameterRange{} : layers.front());
    }
    add_relays();
  }

  /// Whether the shard is sent to the group in pieces: both groups have several devices, and there
  /// is a parameter for each.
  bool cuts(int shard, int group) const {
    const int home = home_of(shard);
    return home != group && groups_.size(home) > 1 && groups_.size(group) > 1 &&
           ranges_[static_cast<std::size_t>(shard)].count() >= groups_.size(group);
  }

  /// Sends the shard to the group.
  /// @param slots  [member] its buffer for the shard; each member receives its piece at its offset,
  /// and the others from its group
  void deliver(int shard, int group, std::span<const BufferId> slots, std::int32_t step, std::span<const TaskId> after) {
    const int owner = placement_.owner(shard);
    const int pieces = groups_.size(group);
    const std::size_t slot = scatter(shard, pieces, step, after);
    std::vector<Use> uses;
    for (int j = 0; j < pieces; ++j) {
      const int mirror = mirror_of(shard, j);
      const std::vector<ParameterRange> piece{piece_of(shard, j, pieces)};
      const BufferId source = mirror == owner ? states_[static_cast<std::size_t>(shard)].weights : relay(mirror).weights[slot];
      const BufferId target = slots[static_cast<std::size_t>(j)];
      Task task = pass(Payload::weights, mirror, groups_.first(group) + j, shard, step, piece);
      task.lane = lanes_.weights_out;
      task.peer_lane = lanes_.weights_in;
      builder_.add(task, {reads(source), writes(target)}, after);
      uses.push_back(changes(target));
    }
    Task gather = collective(Op::all_gather, Payload::weights, shard, group, step);
    gather.lane = lanes_.broadcast;
    builder_.add(gather, uses, after);
  }

  /// Sums the shard's gradient in the group and adds it to its owner's.
  /// @param gradients  [member] its gradient; afterwards it holds the sum of its piece
  /// @param computed   [member] whether it has one; otherwise it adds zeros
  /// @param sent       gets the tasks in which the group takes part
  void collect(int shard, int group, std::span<const BufferId> gradients, const std::vector<char>& computed, std::int32_t step,
               std::vector<TaskId>& sent) {
    const int owner = placement_.owner(shard);
    const int pieces = groups_.size(group);
    const BufferId total = states_[static_cast<std::size_t>(shard)].gradients;
    std::vector<Use> uses;
    for (std::size_t j = 0; j < gradients.size(); ++j) {
      uses.push_back(computed[j] != 0 ? changes(gradients[j]) : writes(gradients[j]));
    }
    Task sum = collective(Op::reduce_scatter, Payload::gradients, shard, group, step);
    sum.lane = lanes_.reduce;
    sent.push_back(builder_.add(sum, uses));
    for (int j = 0; j < pieces; ++j) {
      const int mirror = mirror_of(shard, j);
      const BufferId source = gradients[static_cast<std::size_t>(j)];
      const std::vector<ParameterRange> piece{piece_of(shard, j, pieces)};
      Task task = pass(Payload::gradients, groups_.first(group) + j, mirror, shard, step, piece);
      task.lane = lanes_.gradients_out;
      task.peer_lane = lanes_.gradients_in;
      if (mirror == owner) {
        sent.push_back(builder_.add(task, {reads(source), adds_to(total)}));
        continue;
      }
      Relay& through = relay(mirror);
      const BufferId held = through.gradients[through.next++ % through.gradients.size()];
      sent.push_back(builder_.add(task, {reads(source), writes(held)}));
      task = pass(Payload::gradients, mirror, owner, shard, step, piece);
      task.lane = task.peer_lane = lanes_.gather;
      builder_.add(task, {reads(held), adds_to(total)});
    }
  }

 private:
  /// Buffers for pieces of shards that a device forwards between groups.
  struct Relay {
    std::vector<BufferId> weights;    ///< [slot] its pieces of a shard owned in its group
    std::vector<BufferId> gradients;  ///< one piece each
    std::size_t next = 0;             ///< index into gradients
  };
  /// Which pieces of a shard a group's devices hold in a slot.
  struct Cut {
    int shard = -1;
    int pieces = 0;

    bool operator==(const Cut&) const = default;
  };
  struct Cuts {
    std::vector<Cut> held;  ///< [slot]
    std::size_t next = 0;
  };

  int home_of(int shard) const { return groups_.group_of(placement_.owner(shard)); }
  int mirror_of(int shard, int piece) const {
    const int home = home_of(shard);
    return groups_.first(home) + piece % groups_.size(home);
  }
  Relay& relay(int rank) { return relays_[static_cast<std::size_t>(rank)]; }

  /// Piece j of n parameters in `pieces`: n * j / pieces up to n * (j + 1) / pieces.
  ParameterRange piece_of(int shard, int piece, int pieces) const {
    const ParameterRange& all = ranges_[static_cast<std::size_t>(shard)];
    return {all.begin + all.count() * piece / pieces, all.begin + all.count() * (piece + 1) / pieces};
  }
  /// The pieces that the device at index `place` of the owner's group forwards.
  std::vector<ParameterRange> share_of(int shard, int place, int pieces) const {
    std::vector<ParameterRange> share;
    for (int j = place; j < pieces; j += groups_.size(home_of(shard))) share.push_back(piece_of(shard, j, pieces));
    return share;
  }

  /// Sizes of the groups that fetch in pieces, each once.
  std::vector<int> cut_sizes(int shard) const {
    std::vector<int> sizes;
    for (int g = 0; g < groups_.count(); ++g) {
      if (cuts(shard, g) && std::find(sizes.begin(), sizes.end(), groups_.size(g)) == sizes.end())
        sizes.push_back(groups_.size(g));
    }
    return sizes;
  }

  void add_relays() {
    const auto ranks = static_cast<std::size_t>(groups_.ranks());
    std::vector<std::int64_t> share(ranks, 0);  // of the largest share and piece that a rank forwards
    std::vector<std::int64_t> piece(ranks, 0);
    std::vector<std::size_t> pieces(ranks, 0);  // of one shard
    for (int k = 0; k < placement_.shards(); ++k) {
      const int home = home_of(k);
      for (const int cut : cut_sizes(k)) {
        for (int place = 0; place < std::min(cut, groups_.size(home)); ++place) {
          if (groups_.first(home) + place == placement_.owner(k)) continue;
          const auto rank = static_cast<std::size_t>(groups_.first(home) + place);
          const auto ranges = share_of(k, place, cut);
          share[rank] = std::max(share[rank], parameters_in(ranges));
          pieces[rank] = std::max(pieces[rank], ranges.size());
          for (const ParameterRange& range : ranges) piece[rank] = std::max(piece[rank], range.count());
        }
      }
    }
    relays_.resize(ranks);
    cuts_.resize(static_cast<std::size_t>(groups_.count()), {std::vector<Cut>(static_cast<std::size_t>(buffers_)), 0});
    for (std::size_t r = 0; r < ranks; ++r) {
      if (share[r] == 0) continue;
      const auto rank = static_cast<int>(r);
      const Workload& workload = builder_.workload();
      for (int slot = 0; slot < buffers_; ++slot) {
        relays_[r].weights.push_back(
            builder_.persistent_copy(rank, Content{ContentKind::weights}, weight_bytes(workload, share[r])));
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>(buffers_) * pieces[r]; ++i) {
        relays_[r].gradients.push_back(
            builder_.persistent_copy(rank, Content{ContentKind::gradients}, gradient_bytes(workload, piece[r])));
      }
    }
  }

  /// Sends the pieces to the devices of the owner's group, if they lack them. @return the slot that
  /// holds them
  std::size_t scatter(int shard, int pieces, std::int32_t step, std::span<const TaskId> after) {
    const int owner = placement_.owner(shard);
    const int home = home_of(shard);
    Cuts& cuts = cuts_[static_cast<std::size_t>(home)];
    const Cut wanted{shard, pieces};
    const auto known = std::find(cuts.held.begin(), cuts.held.end(), wanted);
    if (known != cuts.held.end()) return static_cast<std::size_t>(known - cuts.held.begin());
    const std::size_t slot = cuts.next++ % cuts.held.size();
    cuts.held[slot] = wanted;
    for (int place = 0; place < std::min(pieces, groups_.size(home)); ++place) {
      const int mirror = groups_.first(home) + place;
      if (mirror == owner) continue;
      Task task = pass(Payload::weights, owner, mirror, shard, step, share_of(shard, place, pieces));
      task.lane = task.peer_lane = lanes_.scatter;
      builder_.add(task, {reads(states_[static_cast<std::size_t>(shard)].weights), writes(relay(mirror).weights[slot])}, after);
    }
    return slot;
  }

  Bytes bytes_of(Payload payload, std::int64_t parameters) const {
    return payload == Payload::weights ? weight_bytes(builder_.workload(), parameters)
                                       : gradient_bytes(builder_.workload(), parameters);
  }
  Task pass(Payload payload, int from, int to, int shard, std::int32_t step, const std::vector<ParameterRange>& ranges) const {
    return {.op = Op::pass,
            .payload = payload,
            .rank = Rank{from},
            .peer = Rank{to},
            .stage = StageId{shard},
            .step = step,
            .split = builder_.split({builder_.pieces(ranges)}),
            .bytes = bytes_of(payload, parameters_in(ranges))};
  }
  Task collective(Op op, Payload payload, int shard, int group, std::int32_t step) const {
    std::vector<PiecesId> members;
    for (int j = 0; j < groups_.size(group); ++j) members.push_back(builder_.pieces({piece_of(shard, j, groups_.size(group))}));
    return {.op = op,
            .payload = payload,
            .rank = Rank{groups_.first(group)},
            .group = builder_.group(groups_.members(group)),
            .stage = StageId{shard},
            .step = step,
            .split = builder_.split(members),
            .bytes = bytes_of(payload, ranges_[static_cast<std::size_t>(shard)].count())};
  }

  ScheduleBuilder& builder_;
  const TawpipeLanes& lanes_;
  const DeviceGroups& groups_;
  const placements::Interleaved& placement_;
  const std::vector<States>& states_;
  int buffers_;
  std::vector<ParameterRange> ranges_;  ///< [shard]
  std::vector<Relay> relays_;           ///< [rank]
  std::vector<Cuts> cuts_;              ///< [owners' group]
};

}  // namespace tawpipe::schedules::detail
