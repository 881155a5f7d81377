// Parts of weights and gradients while a schedule is run on symbols: sets of parameters, and sums that arrive in pieces.
// Not: the buffers they lie in (contents_walk.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/verify/detail/contents.hpp"

namespace tawpipe::inline v0::detail {

/// Sets of parameters, each stored once, as ranges in order that do not touch. 0 stands for all, and holds every other set.
class ParameterSets {
 public:
  std::int32_t find(std::vector<ParameterRange> ranges) {
    std::sort(ranges.begin(), ranges.end());
    std::vector<ParameterRange> apart;
    for (const ParameterRange& range : ranges) {
      if (!apart.empty() && range.begin <= apart.back().end) {
        apart.back().end = std::max(apart.back().end, range.end);
      } else {
        apart.push_back(range);
      }
    }
    const auto [at, added] = ids_.try_emplace(apart, static_cast<std::int32_t>(sets_.size()));
    if (added) sets_.push_back(std::move(apart));
    return at->second;
  }
  std::int32_t unite(std::int32_t a, std::int32_t b) {
    if (a == 0 || b == 0) return 0;
    std::vector<ParameterRange> both = set(a);
    both.insert(both.end(), set(b).begin(), set(b).end());
    return find(std::move(both));
  }
  /// Whether every parameter of `b` is in `a`.
  bool contains(std::int32_t a, std::int32_t b) { return a == 0 || (b != 0 && unite(a, b) == a); }
  bool overlap(std::int32_t a, std::int32_t b) { return a == 0 || b == 0 || count(unite(a, b)) < count(a) + count(b); }
  /// @pre `a` is not 0
  std::int64_t count(std::int32_t a) const {
    std::int64_t count = 0;
    for (const ParameterRange& range : set(a)) count += range.count();
    return count;
  }

 private:
  const std::vector<ParameterRange>& set(std::int32_t id) const { return sets_[static_cast<std::size_t>(id)]; }

  std::vector<std::vector<ParameterRange>> sets_{{}};
  std::map<std::vector<ParameterRange>, std::int32_t> ids_;
};

/// Gradients to which sums are added piece by piece: a sum counts once all its pieces are there.
class PartialSums {
 public:
  /// Whether pieces have been added of which the others are missing, or have been added twice.
  bool contains(BufferId buffer) const { return sums_.contains(buffer); }
  void forget(BufferId buffer) { sums_.erase(buffer); }

  /// Adds a piece. @param is_all  says of a set of parameters whether it is all of the buffer's stage
  /// @return whether its sum is whole now
  template <class IsAll>
  bool add(BufferId buffer, const Held& gradient, ParameterSets& parts, IsAll&& is_all) {
    std::vector<Held>& sums = sums_[buffer];
    std::size_t i = 0;
    const auto fits = [&](const Held& sum) {
      return sum.sum == gradient.sum && sum.edge_sum == gradient.edge_sum && !parts.overlap(sum.part, gradient.part);
    };
    while (i < sums.size() && !fits(sums[i])) ++i;
    if (i == sums.size()) {
      sums.push_back(gradient);
      return false;
    }
    sums[i].part = parts.unite(sums[i].part, gradient.part);
    if (!is_all(sums[i].part)) return false;
    sums.erase(sums.begin() + static_cast<std::ptrdiff_t>(i));
    if (sums.empty()) sums_.erase(buffer);
    return true;
  }

 private:
  std::map<BufferId, std::vector<Held>> sums_;
};

}  // namespace tawpipe::detail
