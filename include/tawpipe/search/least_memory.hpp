// The least memory that a schedule needs under any timing.
// Not: its least time (search/lower_bound.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// The lower bounds of a schedule.
struct MinNeed {
  Duration time = {};       ///< of an iteration: no simulation of the schedule is shorter
  Bytes memory = {};        ///< of the rank that is fullest relative to its limit
  bool fits = true;         ///< false: some rank needs more than is usable, under any timing
  std::int64_t ends = 0;    ///< of all tasks visited: the cost of the bound
  std::int64_t steps = 0;   ///< tasks in the equivalent simulation, with bodies expanded
  std::int32_t layers = 0;  ///< of all stages
  std::int32_t kept = 0;    ///< of these, those that full recomputation of a part leaves out
  /// Whether gradients of weights are computed apart from the others: what is computed again in a
  /// backward is then kept until they are, so that more memory may be needed the more is.
  bool splits_backward = false;
  /// The same path where copies of the schedule share the links that leave a node: an estimate for
  /// ordering candidates.
  Duration usual = {};
};

namespace detail {

/// The largest memory that each rank holds during one of its computations of nonzero time:
/// persistent buffers, and those that it uses both before and after.
class LeastMemory {
 public:
  explicit LeastMemory(const Schedule& schedule)
      : schedule_{schedule}, lives_(schedule.buffers().size()), computed_(static_cast<std::size_t>(schedule.ranks()), 0) {}

  /// To be called for each computation, in order. @param time  one of zero counts as part of its
  /// neighbours
  void pass(TaskId id, std::int64_t time) {
    const Rank rank = schedule_.task(id).rank;
    std::int32_t& passed = computed_[index(rank)];
    const std::int32_t first = passed;
    if (time > 0) ++passed;
    for (const Use& use : schedule_.uses(id)) {
      if (schedule_.buffer(use.buffer).rank != rank) continue;
      Life& life = lives_[index(use.buffer)];
      const bool during = !keeps_by_layer(id, schedule_.buffer(use.buffer));
      const bool begins = schedule_.task(id).op == Op::forward;
      life.first = std::min(life.first, during || !begins ? first : passed);
      life.last = std::max(life.last, during ? passed - 1 : begins ? -1 : first - 1);
    }
  }
  /// @param need  gets the fullest rank's, and whether all fit
  void take(const Cluster& cluster, double usable, MinNeed& need) const {
    std::vector<std::size_t> begin(computed_.size() + 1, 0);
    for (std::size_t rank = 0; rank < computed_.size(); ++rank) {
      begin[rank + 1] = begin[rank] + static_cast<std::size_t>(computed_[rank]) + 1;
    }
    std::vector<std::int64_t> change(begin.back(), 0);
    std::vector<std::int64_t> persistent(computed_.size(), 0);
    for (std::size_t b = 0; b < lives_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      if (buffer.host) continue;
      if (buffer.persistent) persistent[index(buffer.rank)] += buffer.bytes.value();
      if (buffer.persistent || lives_[b].last < lives_[b].first) continue;
      change[begin[index(buffer.rank)] + static_cast<std::size_t>(lives_[b].first)] += buffer.bytes.value();
      change[begin[index(buffer.rank)] + static_cast<std::size_t>(lives_[b].last) + 1] -= buffer.bytes.value();
    }
    double fullest = -1;
    for (std::size_t rank = 0; rank < computed_.size(); ++rank) {
      std::int64_t now = persistent[rank];
      std::int64_t most = now;
      for (std::size_t i = begin[rank]; i < begin[rank + 1]; ++i) most = std::max(most, now += change[i]);
      const Bytes limit = usable_part(cluster.device(id<Rank>(rank)).memory, usable);
      need.fits = need.fits && Bytes{most} <= limit;
      const double share = static_cast<double>(most) / static_cast<double>(std::max<std::int64_t>(1, limit.value()));
      if (share <= fullest) continue;
      fullest = share;
      need.memory = Bytes{most};
    }
  }

 private:
  /// Whether saved activations may grow while another computation's are released (BodyExpander::Part):
  /// then they count before and after the computation only.
  bool keeps_by_layer(TaskId id, const Buffer& buffer) const {
    const StageId stage = schedule_.task(id).stage;
    const std::vector<SharedStage>& bodies = schedule_.parts().bodies;
    if (bodies.empty() || stage == none<StageId> || buffer.content.kind() != ContentKind::saved) return false;
    return bodies[index(stage)].alternates;
  }
  struct Life {
    std::int32_t first = std::numeric_limits<std::int32_t>::max();
    std::int32_t last = -1;
  };
  const Schedule& schedule_;
  std::vector<Life> lives_;             ///< [buffer]
  std::vector<std::int32_t> computed_;  ///< [rank] computations so far
};

}  // namespace detail

}  // namespace tawpipe
