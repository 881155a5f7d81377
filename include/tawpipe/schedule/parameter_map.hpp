// Values of parameters as ranges of equal value.
// Not: where parameters lie in memory (schedule/packed_parameters.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"

namespace tawpipe::inline v0 {

/// A value for each of some parameters. Its size and the cost of a change grow with the number of
/// ranges.
template <class Value>
class ParameterMap {
 public:
  struct Piece {
    ParameterRange range;
    Value value;
  };

  /// In order; adjacent ranges have different values.
  std::span<const Piece> pieces() const { return pieces_; }
  bool empty() const { return pieces_.empty(); }
  void clear() { pieces_.clear(); }

  /// Calls `visit(part, value)` for each part of `range` in order; `value` is a pointer, null where
  /// there is none.
  template <class Visit>
  void visit(const ParameterRange& range, Visit&& visit) const {
    const auto ends_before = [](const Piece& piece, std::int64_t begin) { return piece.range.end <= begin; };
    std::int64_t reached = range.begin;
    for (auto at = std::lower_bound(pieces_.begin(), pieces_.end(), range.begin, ends_before);
         at != pieces_.end() && at->range.begin < range.end; ++at) {
      if (at->range.begin > reached) visit(ParameterRange{reached, at->range.begin}, static_cast<const Value*>(nullptr));
      const ParameterRange part{std::max(reached, at->range.begin), std::min(range.end, at->range.end)};
      visit(part, &at->value);
      reached = part.end;
    }
    if (reached < range.end) visit(ParameterRange{reached, range.end}, static_cast<const Value*>(nullptr));
  }

  /// Gives each part of `range` the value that `change(part, old)` returns, a std::optional; `old`
  /// is a pointer, null where there is none.
  template <class Change>
  void change(const ParameterRange& range, Change&& change) {
    if (pieces_.size() == 1 && pieces_[0].range == range) {
      const std::optional<Value> value = change(range, static_cast<const Value*>(&pieces_[0].value));
      if (!value) return pieces_.clear();
      pieces_[0].value = *value;
      return;
    }
    changed_.clear();
    for (const Piece& piece : pieces_) add(changed_, {piece.range.begin, std::min(piece.range.end, range.begin)}, piece.value);
    visit(range, [&](const ParameterRange& part, const Value* old) {
      if (const std::optional<Value> value = change(part, old)) add(changed_, part, *value);
    });
    for (const Piece& piece : pieces_) add(changed_, {std::max(piece.range.begin, range.end), piece.range.end}, piece.value);
    pieces_.swap(changed_);
  }
  void set(const ParameterRange& range, const Value& value) {
    if (pieces_.empty() || pieces_.back().range.end <= range.begin) return add(pieces_, range, value);
    change(range, [&](const ParameterRange&, const Value*) { return std::optional{value}; });
  }

 private:
  static void add(std::vector<Piece>& pieces, const ParameterRange& range, const Value& value) {
    if (range.begin >= range.end) return;
    if (!pieces.empty() && pieces.back().range.end == range.begin && pieces.back().value == value) {
      pieces.back().range.end = range.end;
    } else {
      pieces.push_back({range, value});
    }
  }

  std::vector<Piece> pieces_;
  std::vector<Piece> changed_;  ///< under construction
};

}  // namespace tawpipe
