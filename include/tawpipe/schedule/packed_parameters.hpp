// Parameters that are contiguous in memory, and where each of them is.
// Not: which buffer they are in (schedule/interpret.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"

namespace tawpipe::inline v0 {

/// Ranges of a model's parameters packed without gaps, in the given order.
class PackedParameters {
 public:
  PackedParameters() = default;
  explicit PackedParameters(std::vector<ParameterRange> ranges) : ranges_{std::move(ranges)} {
    for (const ParameterRange& range : ranges_) {
      offsets_.push_back(count_);
      count_ += range.count();
    }
  }

  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  std::int64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }

  /// Where `range` begins, if it lies here whole and contiguous; -1 otherwise.
  std::int64_t find(ParameterRange range) const {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      if (ranges_[i].begin <= range.begin && range.begin < ranges_[i].end) {
        const std::int64_t at = offsets_[i] + range.begin - ranges_[i].begin;
        // A range may continue in the next one.
        std::int64_t reached = ranges_[i].end;
        for (std::size_t next = i + 1; reached < range.end && next < ranges_.size() && ranges_[next].begin == reached; ++next) {
          reached = ranges_[next].end;
        }
        if (reached >= range.end) return at;
      }
    }
    return -1;
  }

  /// Calls `visit(part, offset)` for each part of `range` that lies here, `offset` counted from the
  /// start of the memory.
  template <class Visit>
  void for_each_part(ParameterRange range, Visit&& visit) const {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      const ParameterRange part{std::max(range.begin, ranges_[i].begin), std::min(range.end, ranges_[i].end)};
      if (part.begin < part.end) visit(part, offsets_[i] + part.begin - ranges_[i].begin);
    }
  }

  bool operator==(const PackedParameters& other) const { return ranges_ == other.ranges_; }

 private:
  std::vector<ParameterRange> ranges_;
  std::vector<std::int64_t> offsets_;
  std::int64_t count_ = 0;
};

}  // namespace tawpipe
