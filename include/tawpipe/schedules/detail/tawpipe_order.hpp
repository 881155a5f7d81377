// TawPipe's steps: which shard a group works on at which step, and the order of all groups' steps.
// Not: the tasks of a step (schedules/tawpipe.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedules/microbatch_shares.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// A group's work at one of its steps: which shard, direction and round.
struct TawpipePlace {
  bool active = false;
  bool forward = true;
  int shard = 0;
  std::int64_t round = 0;
};

/// A group's step in the order of emission: at `time`, in units of one forward.
struct TawpipeEvent {
  std::int64_t time;
  int group;
  std::int64_t step;
};

/// The steps of one iteration. A group's round is `shards` forwards, first to last, and as many
/// backwards, last to first, in each of which every rank runs all its microbatches of the round;
/// each group is one step later than the group before it.
class TawpipeOrder {
 public:
  /// @param work   of one shard: the ratio of backward to forward time
  /// @param drawn  with the idle units that the paper draws
  TawpipeOrder(const DeviceGroups& groups, int shards, const MicrobatchShares& shares, const StageWork& work, bool drawn)
      : groups_{groups}, shards_{shards}, shares_{shares}, backward_{backward_units(work)}, drawn_{drawn ? 1 : 0} {}

  /// All groups' steps in the order of their times when transfers take no time. The lanes of an
  /// owner that serves several groups keep this order; in lock-step order a group still in its
  /// forward would wait for another in its backward.
  std::vector<TawpipeEvent> events() const {
    const std::int64_t steps = 2 * shards_ * shares_.rounds();
    std::vector<TawpipeEvent> events;
    for (int g = 0; g < groups_.count(); ++g) {
      for (std::int64_t step = -1; step <= steps; ++step) {
        const std::int64_t round = step < 0 ? 0 : step / (2 * shards_);
        const std::int64_t within = step - round * 2 * shards_;
        std::int64_t time = g + round * ((1 + backward_) * shards_ + drawn_);
        time += within <= shards_ ? within : shards_ + backward_ * (within - shards_);
        if (g > 0 && within >= shards_) time += drawn_;
        events.push_back({time, g, step});
      }
    }
    std::stable_sort(events.begin(), events.end(), [](const TawpipeEvent& a, const TawpipeEvent& b) { return a.time < b.time; });
    return events;
  }

  /// @param step  the group's own, from 0
  TawpipePlace place(std::int64_t step, int group) const {
    TawpipePlace place;
    if (step < 0) return place;
    place.round = step / (2 * shards_);
    const auto within = static_cast<int>(step % (2 * shards_));
    place.forward = within < shards_;
    place.shard = place.forward ? within : 2 * shards_ - 1 - within;
    place.active = shares_.has_microbatch(groups_.first(group), place.round);
    return place;
  }

  /// Idle units drawn before a group's step. The paper draws group g's start g units late, and one
  /// unit between forward and backward (after the last backward in the first group), which
  /// dependencies do not require.
  int idle_units(std::int64_t step, int group) const {
    if (drawn_ == 0) return 0;
    const TawpipePlace now = place(step, group);
    const TawpipePlace before = place(step - 1, group);
    if (now.active && step == 0) return group;
    const bool turns = group > 0 && now.active && !now.forward && now.shard == shards_ - 1;
    const bool ended = group == 0 && before.active && !before.forward && before.shard == 0;
    return turns || ended ? 1 : 0;
  }

 private:
  /// The approximate time of a backward in forwards: 2, or 3 where it recomputes the forward.
  static std::int64_t backward_units(const StageWork& work) {
    if (work.forward.value() <= 0) return 2;
    const double ratio = (work.recompute + work.backward_input + work.backward_weight) / work.forward;
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(ratio + 0.5));
  }

  DeviceGroups groups_;
  int shards_;
  MicrobatchShares shares_;
  std::int64_t backward_;
  std::int64_t drawn_;
};

}  // namespace tawpipe::schedules::detail
