// Who holds which part of a unit when it is cut inside nodes and between them, and the rails along which parts travel.
// Not: buffers (detail/sharded_states.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::schedules::detail {

/// A part of something, exact.
struct Fraction {
  std::int64_t part = 1;
  std::int64_t whole = 1;

  constexpr std::int64_t floor_of(std::int64_t amount) const { return amount * part / whole; }
  constexpr std::int64_t ceil_of(std::int64_t amount) const { return (amount * part + whole - 1) / whole; }
};

/// Ranks that hold like parts, one a node, and what their parts make up.
struct Rail {
  std::vector<Rank> members;  ///< [node]
  std::vector<char> keeps;    ///< [node] some of the rail is in the member's shard
  Fraction share;             ///< of a unit; all rails together make up the unit
};

/// A unit cut on two levels: each node holds all of it, a rank its *slice*; along a rail the like parts of slices are cut
/// again, so that all ranks together hold it once, a rank its *shard*.
///
/// Nodes of one size G (D nodes, P ranks): slices of 1/G, shards of 1/P, G rails of D members. Two ways to treat others:
///   by_place  every shard is 1/P. The slice of the rank at place l of a node of s holds the shards of all ranks whose place
///             is l modulo s: 8+8+4 gives slices of 3/20 and 2/20 in the nodes of 8, of 5/20 in the node of 4.
///   by_slice  every slice is 1/s of its node's size s. The rails are the pieces between all nodes' cuts, each divided evenly
///             among its members, so that every node holds 1/D of the shards: 8+8+4 gives shards of 1/24 and 1/12.
/// Either way a rank of a smaller node stands in several rails.
class ShardLayout {
 public:
  static ShardLayout by_place(const DeviceGroups& nodes) {
    ShardLayout layout;
    layout.slices_.assign(static_cast<std::size_t>(nodes.ranks()), {0, nodes.ranks()});
    layout.shards_.assign(static_cast<std::size_t>(nodes.ranks()), {1, nodes.ranks()});
    for (int place = 0; place < nodes.largest(); ++place) {
      Rail rail{{}, {}, {0, nodes.ranks()}};
      for (int g = 0; g < nodes.count(); ++g) {
        rail.members.push_back(Rank{nodes.first(g) + place % nodes.size(g)});
        rail.keeps.push_back(place < nodes.size(g) ? 1 : 0);
        rail.share.part += rail.keeps.back();
      }
      for (const Rank rank : rail.members) layout.slices_[index(rank)].part += rail.share.part;
      layout.rails_.push_back(std::move(rail));
    }
    return layout;
  }

  static ShardLayout by_slice(const DeviceGroups& nodes) {
    ShardLayout layout;
    std::vector<Fraction> cuts{{1, 1}};
    for (int g = 0; g < nodes.count(); ++g) {
      const int size = nodes.size(g);
      for (int l = 0; l < size; ++l) {
        layout.slices_.push_back({1, size});
        layout.shards_.push_back({1, std::int64_t{size} * nodes.count()});
        cuts.push_back({l, size});
      }
    }
    const auto before = [](const Fraction& a, const Fraction& b) { return a.part * b.whole < b.part * a.whole; };
    const auto equal = [](const Fraction& a, const Fraction& b) { return a.part * b.whole == b.part * a.whole; };
    std::sort(cuts.begin(), cuts.end(), before);
    cuts.erase(std::unique(cuts.begin(), cuts.end(), equal), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Fraction& from = cuts[i];
      const Fraction& to = cuts[i + 1];
      Rail rail{{}, {}, {to.part * from.whole - from.part * to.whole, from.whole * to.whole}};
      for (int g = 0; g < nodes.count(); ++g) {
        rail.members.push_back(Rank{nodes.first(g) + static_cast<int>(from.floor_of(nodes.size(g)))});
        rail.keeps.push_back(1);
      }
      layout.rails_.push_back(std::move(rail));
    }
    return layout;
  }

  const std::vector<Rail>& rails() const { return rails_; }
  /// What the rank holds of its node's copy.
  const Fraction& slice(int rank) const { return slices_[static_cast<std::size_t>(rank)]; }
  /// What it holds of the one copy that all ranks share.
  const Fraction& shard(int rank) const { return shards_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<Rail> rails_;
  std::vector<Fraction> slices_;  ///< [rank]
  std::vector<Fraction> shards_;  ///< [rank]
};

}  // namespace tawpipe::schedules::detail
