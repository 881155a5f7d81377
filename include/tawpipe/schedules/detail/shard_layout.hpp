// Which rank holds which part of a unit that is sharded inside nodes and between them, and the
// rails along which parts travel.
// Not: buffers (detail/sharded_states.hpp) nor a schedule's sets of parameters
// (detail/shard_sets.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// An exact fraction.
struct Fraction {
  std::int64_t part = 1;
  std::int64_t whole = 1;

  constexpr std::int64_t floor_of(std::int64_t amount) const { return amount * part / whole; }
};

/// Consecutive parameters that are sharded together, and the padding behind them.
struct Run {
  ParameterRange parameters;
  ParameterRange padding = {};

  std::int64_t count() const { return parameters.count() + padding.count(); }
  /// Appends some of these numbers. @param part  counted from the first
  void append_part(const ParameterRange& part, std::vector<ParameterRange>& ranges) const {
    const std::int64_t own = parameters.count();
    append(ranges, {parameters.begin + std::min(part.begin, own), parameters.begin + std::min(part.end, own)});
    append(ranges, {padding.begin + std::max(part.begin - own, std::int64_t{0}),
                    padding.begin + std::max(part.end - own, std::int64_t{0})});
  }
};

/// All numbers of runs.
inline std::vector<ParameterRange> numbers_of(const std::vector<Run>& runs) {
  std::vector<ParameterRange> ranges;
  for (const Run& run : runs) run.append_part({0, run.count()}, ranges);
  return ranges;
}

/// Ranks that hold corresponding parts, one a node, and the piece of a unit, from `from` to `to`,
/// that these parts form.
struct Rail {
  std::vector<Rank> members;  ///< [node]
  std::vector<char> keeps;    ///< [node] the member's shard has some of the rail
  Fraction from;              ///< all rails together form the unit
  Fraction to;

  /// The part that the rail carries of the `count` numbers of a run.
  ParameterRange of(std::int64_t count) const { return {from.floor_of(count), to.floor_of(count)}; }
  /// The part of that which the member in `node` keeps: all that keep something keep the same
  /// amount, in the order of the nodes.
  ParameterRange kept(std::int64_t count, std::size_t node) const {
    const ParameterRange whole = of(count);
    const auto first = keeps.begin();
    const auto before = std::count(first, first + static_cast<std::ptrdiff_t>(node), 1);
    const auto keepers = std::count(first, keeps.end(), 1);
    const auto cut = [&](std::int64_t k) { return whole.begin + whole.count() * k / keepers; };
    return {cut(before), cut(before + (keeps[node] != 0 ? 1 : 0))};
  }
};

/// A unit sharded on two levels: each node holds all of it, a rank its *slice*; along a rail
/// corresponding parts of slices are cut again, so that all ranks together hold it once, a rank its
/// *shard*.
///
/// Nodes of one size G (D nodes, P ranks): slices of 1/G, shards of 1/P, G rails of D members. Two
/// ways to treat others:
///   by_place  every shard is 1/P. The slice of the rank at place l of a node of s holds the shards
///             of all ranks whose place is l modulo s: 8+8+4 gives slices of 3/20 and 2/20 in the
///             nodes of 8, of 5/20 in the node of 4.
///   by_slice  every slice is 1/s of its node's size s. The rails are the pieces between all nodes'
///             cuts, each divided evenly among its members, so that every node holds 1/D of the
///             shards: 8+8+4 gives shards of 1/24 and 1/12.
/// Either way a rank of a smaller node is in several rails. Shards that one ring of all ranks
/// produces and uses follow the ranks instead: of n numbers in a row, rank r has n*r/P to
/// n*(r+1)/P.
class ShardLayout {
 public:
  static ShardLayout by_place(const DeviceGroups& nodes) {
    ShardLayout layout{nodes.ranks()};
    layout.multiple_ = parameter_pack * nodes.ranks();
    std::int64_t at = 0;
    for (int place = 0; place < nodes.largest(); ++place) {
      Rail rail{{}, {}, {at, nodes.ranks()}, {at, nodes.ranks()}};
      for (int g = 0; g < nodes.count(); ++g) {
        rail.members.push_back(Rank{nodes.first(g) + place % nodes.size(g)});
        rail.keeps.push_back(place < nodes.size(g) ? 1 : 0);
        rail.to.part += rail.keeps.back();
      }
      at = rail.to.part;
      layout.add(std::move(rail));
    }
    return layout;
  }

  static ShardLayout by_slice(const DeviceGroups& nodes) {
    ShardLayout layout{nodes.ranks()};
    layout.multiple_ = parameter_pack * nodes.count();
    std::vector<Fraction> cuts{{1, 1}};
    for (int g = 0; g < nodes.count(); ++g) {
      if (layout.multiple_ <= most_)
        layout.multiple_ = std::lcm(layout.multiple_, parameter_pack * nodes.count() * nodes.size(g));
      for (int l = 0; l < nodes.size(g); ++l) cuts.push_back({l, nodes.size(g)});
    }
    const auto before = [](const Fraction& a, const Fraction& b) { return a.part * b.whole < b.part * a.whole; };
    const auto equal = [](const Fraction& a, const Fraction& b) { return a.part * b.whole == b.part * a.whole; };
    std::sort(cuts.begin(), cuts.end(), before);
    cuts.erase(std::unique(cuts.begin(), cuts.end(), equal), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      Rail rail{{}, {}, cuts[i], cuts[i + 1]};
      for (int g = 0; g < nodes.count(); ++g) {
        rail.members.push_back(Rank{nodes.first(g) + static_cast<int>(cuts[i].floor_of(nodes.size(g)))});
        rail.keeps.push_back(1);
      }
      layout.add(std::move(rail));
    }
    return layout;
  }

  /// The same slices; shards in the order of the ranks.
  ShardLayout with_shards_by_rank() && {
    by_rank_ = true;
    return std::move(*this);
  }

  /// Runs are cut as they are.
  ShardLayout without_padding() && {
    multiple_ = 1;
    return std::move(*this);
  }

  const std::vector<Rail>& rails() const { return rails_; }
  /// How much is to follow `count` parameters so that every cut is at a multiple of parameter_pack,
  /// and parts that are to be equal are. None for one rank, nor where it may be above a million:
  /// nodes of many sizes.
  std::int64_t padding(std::int64_t count) const {
    return places_.size() == 1 || multiple_ > most_ ? 0 : (multiple_ - count % multiple_) % multiple_;
  }
  /// The part of its node's copy that the rank holds.
  std::vector<ParameterRange> slice(int rank, const std::vector<Run>& runs) const {
    return part(rank, runs, [](const Rail& rail, std::int64_t count, std::size_t) { return rail.of(count); });
  }
  /// The part that it holds of the one copy that all ranks share.
  std::vector<ParameterRange> shard(int rank, const std::vector<Run>& runs) const {
    if (!by_rank_) {
      return part(rank, runs, [](const Rail& rail, std::int64_t count, std::size_t node) { return rail.kept(count, node); });
    }
    const auto ranks = static_cast<std::int64_t>(places_.size());
    std::vector<ParameterRange> ranges;
    for (const Run& run : runs) run.append_part({run.count() * rank / ranks, run.count() * (rank + 1) / ranks}, ranges);
    return ranges;
  }

 private:
  /// A rank's position in a rail.
  struct Place {
    std::size_t rail;
    std::size_t node;
  };

  explicit ShardLayout(int ranks) : places_(static_cast<std::size_t>(ranks)) {}

  void add(Rail rail) {
    for (std::size_t g = 0; g < rail.members.size(); ++g) places_[index(rail.members[g])].push_back({rails_.size(), g});
    rails_.push_back(std::move(rail));
  }

  template <class Of>
  std::vector<ParameterRange> part(int rank, const std::vector<Run>& runs, Of&& of) const {
    std::vector<ParameterRange> ranges;
    for (const Run& run : runs) {
      for (const Place& place : places_[static_cast<std::size_t>(rank)])
        run.append_part(of(rails_[place.rail], run.count(), place.node), ranges);
    }
    return ranges;
  }

  std::vector<Rail> rails_;
  std::vector<std::vector<Place>> places_;  ///< [rank] in the rails' order
  static constexpr std::int64_t most_ = std::int64_t{1} << 20;
  std::int64_t multiple_ = 1;  ///< of which runs have as many numbers
  bool by_rank_ = false;
};

/// How a plan shards units. One ring gives all ranks equal shards; so do two levels where the
/// weights are in shards, because of the gathers. Shards that are in no rail follow the ring.
/// @param one_level  collectives over all ranks are one ring
inline ShardLayout layout_of(const ShardingPlan& plan, const DeviceGroups& groups, bool one_level) {
  const bool by_place = plan.weights == Scope::all || (plan.weights == Scope::replicated && !plan.two_level);
  ShardLayout layout = by_place ? ShardLayout::by_place(groups) : ShardLayout::by_slice(groups);
  if (one_level && plan.optimizer == Scope::replicated) layout = std::move(layout).without_padding();  // nothing is cut
  const bool one_ring = one_level && plan.weights != Scope::node && plan.gradients != Scope::node;
  return one_ring ? std::move(layout).with_shards_by_rank() : layout;
}

}  // namespace tawpipe::schedules::detail
