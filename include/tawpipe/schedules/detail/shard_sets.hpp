// The parameters of units and of all that shares their states, and the sets by which a schedule
// names their parts.
// Not: how a unit is sharded (detail/shard_layout.hpp) nor the buffers (detail/sharded_states.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/detail/shard_layout.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Lists of *runs*: consecutive parameters that are sharded together, padded. A unit's list has what its
/// computation needs; a tied last edge's has two runs, its own and the first edge's, so that the
/// latter is sharded alike for both units that use it.
class ShardSets {
 public:
  ShardSets(ScheduleBuilder& builder, const ShardLayout& layout, const DeviceGroups& nodes)
      : builder_{builder}, layout_{layout}, nodes_{nodes} {
    std::map<ParameterRange, ParameterRange> padding;  // of a run
    for (int unit = 0; unit < static_cast<int>(builder.stages().size()); ++unit) {
      std::vector<Run>& runs = lists_.emplace_back();
      for (const ParameterRange& range : builder.space().all_of(unit)) {
        const auto [at, added] = padding.try_emplace(range);
        if (added && !builder.workload().is_abstract()) at->second = builder.padding(layout.padding(range.count()));
        runs.push_back({range, at->second});
      }
    }
  }

  /// Adds a list to those of the units, and returns its index.
  int add(std::vector<Run> runs) {
    lists_.push_back(std::move(runs));
    return static_cast<int>(lists_.size()) - 1;
  }
  /// @param list  a unit, or the index from add()
  const std::vector<Run>& runs(int list) const { return lists_[static_cast<std::size_t>(list)]; }
  std::int64_t count(int list) const { return parameters_in(numbers_of(runs(list))); }
  /// How many of them a rail carries.
  std::int64_t carries(int list, std::size_t rail) const { return parameters_in(on_rail(list, rail)); }

  /// The part of a list that a rank has.
  std::vector<ParameterRange> share(Scope scope, int rank, int list) const {
    if (scope == Scope::replicated) return numbers_of(runs(list));
    return scope == Scope::node ? layout_.slice(rank, runs(list)) : layout_.shard(rank, runs(list));
  }
  /// The whole list as one set.
  PiecesId all(int list) { return builder_.pieces(numbers_of(runs(list))); }

  /// Each rank's shard.
  SplitId shards(int list) {
    return split(list, 0, [&] {
      std::vector<PiecesId> sets;
      for (int r = 0; r < nodes_.ranks(); ++r) sets.push_back(builder_.pieces(share(Scope::all, r, list)));
      return sets;
    });
  }
  /// The slices in a node.
  SplitId slices(int list, std::size_t node) {
    return split(list, 1 + node, [&] {
      std::vector<PiecesId> sets;
      for (const Rank rank : nodes_.members(static_cast<int>(node))) {
        sets.push_back(builder_.pieces(share(Scope::node, number(rank), list)));
      }
      return sets;
    });
  }
  /// The part of a rail that each member keeps.
  SplitId kept(int list, std::size_t rail) {
    return split(list, 1 + nodes() + 2 * rail, [&] {
      std::vector<PiecesId> sets;
      for (std::size_t g = 0; g < nodes(); ++g) {
        std::vector<ParameterRange> ranges;
        for (const Run& run : runs(list)) run.append_part(layout_.rails()[rail].kept(run.count(), g), ranges);
        sets.push_back(builder_.pieces(ranges));
      }
      return sets;
    });
  }
  /// All that a rail carries, as one set.
  SplitId carried(int list, std::size_t rail) {
    return split(list, 2 + nodes() + 2 * rail, [&] { return std::vector{builder_.pieces(on_rail(list, rail))}; });
  }
  /// All of a list, as one set.
  SplitId whole(int list) {
    return split(list, 1 + nodes() + 2 * layout_.rails().size(), [&] { return std::vector{all(list)}; });
  }

 private:
  std::size_t nodes() const { return static_cast<std::size_t>(nodes_.count()); }

  std::vector<ParameterRange> on_rail(int list, std::size_t rail) const {
    std::vector<ParameterRange> ranges;
    for (const Run& run : runs(list)) run.append_part(layout_.rails()[rail].of(run.count()), ranges);
    return ranges;
  }
  /// Built on first use: rounds and microbatches use the same again.
  template <class Sets>
  SplitId split(int list, std::size_t which, Sets&& sets) {
    const auto [at, added] = splits_.try_emplace({list, which}, none<SplitId>);
    if (added) at->second = builder_.split(sets());
    return at->second;
  }

  ScheduleBuilder& builder_;
  const ShardLayout& layout_;
  const DeviceGroups& nodes_;
  std::vector<std::vector<Run>> lists_;
  std::map<std::pair<int, std::size_t>, SplitId> splits_;  ///< [list, kind and place]
};

}  // namespace tawpipe::schedules::detail
