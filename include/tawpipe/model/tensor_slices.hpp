// Where the parameters of tensor-parallel ranks' parts are in the whole model's numbering.
// Not: what a part of a model is (model/tensor_part.hpp), nor which ranks have it (schedule/mesh.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"

namespace tawpipe::inline v0 {

/// A tensor of a model, and what one of several equal parts of the model has of it.
struct TensorSlice {
  enum class Cut : std::uint8_t { none, rows, columns };
  ParameterRange whole;
  ParameterRange part;
  Cut cut = Cut::none;
  int parts = 0;               ///< among which it is cut: of fewer than there are, each repeats
  std::int64_t row = 0;        ///< numbers of a row of a part
  std::int64_t whole_row = 0;  ///< and of the whole

  /// Which of its parts the `rank`-th part of the model has.
  int own(int rank) const { return cut == Cut::none ? 0 : rank % parts; }
};

/// The parameters of tensor-parallel ranks' parts in a numbering of their own, the same on each:
/// that of a decoder of a part's sizes. Each tensor of the whole model is cut by rows (queries, keys,
/// values, gate, up, embedding, output matrix), by columns (attention's output, down), or not (norms).
class TensorSlices {
 public:
  TensorSlices() = default;
  /// @param blocks  of a part. @param slices  of all tensors in order
  TensorSlices(ParameterBlocks blocks, int parts, std::vector<TensorSlice> slices)
      : parts_{parts}, blocks_{std::move(blocks)}, slices_{std::move(slices)} {}

  /// Whether there are any: otherwise each rank has whole tensors.
  bool empty() const { return slices_.empty(); }
  int parts() const { return parts_; }
  /// The blocks of a part.
  const ParameterBlocks& blocks() const { return blocks_; }
  /// The numbers of a part.
  std::int64_t count() const { return slices_.back().part.end; }

  /// A part's share of a range of the whole model's parameters. Ranges that do not overlap have
  /// shares that do not, together as much as the share of all of them; numbers beyond the model,
  /// which are padding (Schedule::is_padding), follow the part as they follow the model.
  ParameterRange share(const ParameterRange& range) const { return {place(range.begin), place(range.end)}; }
  std::vector<ParameterRange> share(std::span<const ParameterRange> ranges) const {
    std::vector<ParameterRange> shares;
    for (const ParameterRange& range : ranges) append(shares, share(range));
    return shares;
  }

  /// Calls `visit(whole, offset)` for each run of a range of the `rank`-th part that is contiguous in
  /// the whole model: the model's parameters, and how far into the range they begin. What pads the
  /// last part is in no run.
  template <class Visit>
  void for_each_run(const ParameterRange& range, int rank, Visit&& visit) const {
    for (auto at = find(range.begin); at != slices_.end() && at->part.begin < range.end; ++at) {
      const std::int64_t end = std::min(range.end, at->part.end);
      for (std::int64_t p = std::max(range.begin, at->part.begin); p < end;) {
        const std::int64_t inside = p - at->part.begin;
        std::int64_t whole = at->whole.begin + inside;
        std::int64_t count = end - p;
        std::int64_t there = count;
        const std::int64_t own = at->own(rank);
        if (at->cut == TensorSlice::Cut::rows) whole += own * at->part.count();
        if (at->cut == TensorSlice::Cut::columns) {
          const std::int64_t column = inside % at->row;
          const std::int64_t in_row = own * at->row + column;
          whole = at->whole.begin + inside / at->row * at->whole_row + in_row;
          count = std::min(count, at->row - column);
          there = std::min(count, at->whole_row - in_row);
        }
        there = std::min({there, count, at->whole.end - whole});  // the last part may be padded
        if (there > 0) visit(ParameterRange{whole, whole + there}, p - range.begin);
        p += count;
      }
    }
  }

  /// Of ranges of a part, what every rank has whole.
  std::vector<ParameterRange> replicated(std::span<const ParameterRange> ranges) const {
    std::vector<ParameterRange> found;
    for (const ParameterRange& range : ranges) {
      for_each_slice(range, [&](const TensorSlice& slice, const ParameterRange& inside) {
        if (slice.cut == TensorSlice::Cut::none) append(found, inside);
      });
    }
    return found;
  }
  /// Calls `visit(slice, range)` for what each tensor has of a range of a part.
  template <class Visit>
  void for_each_slice(const ParameterRange& range, Visit&& visit) const {
    for (auto at = find(range.begin); at != slices_.end() && at->part.begin < range.end; ++at)
      visit(*at, ParameterRange{std::max(range.begin, at->part.begin), std::min(range.end, at->part.end)});
  }

 private:
  /// The tensor that has a part's parameter; the last that begins before it.
  std::vector<TensorSlice>::const_iterator find(std::int64_t of_part) const {
    return std::lower_bound(slices_.begin(), slices_.end(), of_part,
                            [](const TensorSlice& slice, std::int64_t wanted) { return slice.part.end <= wanted; });
  }
  /// Where a part's numbering is when the whole one is at `at`: in proportion, in each tensor.
  std::int64_t place(std::int64_t at) const {
    if (at >= slices_.back().whole.end) return count() + at - slices_.back().whole.end;
    const auto slice = std::lower_bound(slices_.begin(), slices_.end(), at,
                                        [](const TensorSlice& one, std::int64_t wanted) { return one.whole.end <= wanted; });
    return slice->part.begin + (at - slice->whole.begin) * slice->part.count() / slice->whole.count();
  }

  int parts_ = 1;
  ParameterBlocks blocks_;
  std::vector<TensorSlice> slices_;  ///< in order
};

}  // namespace tawpipe
