// Rows of a table of which no two that are added are equal: groups, pieces, splits.
// Not: the tables themselves (schedule/schedule.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Rows of which no two are equal, but those taken.
template <class T>
class DistinctRows {
 public:
  /// The row with these items, added if it does not exist.
  template <class Id>
  Id find(const std::vector<T>& row) {
    const auto [at, added] = ids_.try_emplace(row, next());
    if (added) append(row);
    return id<Id>(at->second);
  }
  /// Takes rows with their numbers, equal ones too, before any other is added.
  void take(const Rows<T>& rows) {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::vector<T> row{rows[r].begin(), rows[r].end()};
      append(row);
      ids_.try_emplace(std::move(row), next() - 1);
    }
  }
  std::span<const T> operator[](std::size_t row) const {
    return std::span<const T>{items_}.subspan(begin_[row], begin_[row + 1] - begin_[row]);
  }
  /// Empty afterwards.
  Rows<T> rows() {
    begin_.shrink_to_fit();
    items_.shrink_to_fit();
    return Rows<T>{std::move(begin_), std::move(items_)};
  }

 private:
  std::int32_t next() const { return static_cast<std::int32_t>(begin_.size()) - 1; }
  void append(const std::vector<T>& row) {
    items_.insert(items_.end(), row.begin(), row.end());
    begin_.push_back(static_cast<std::uint32_t>(items_.size()));
  }

  std::vector<std::uint32_t> begin_{0};
  std::vector<T> items_;
  std::map<std::vector<T>, std::int32_t> ids_;
};

}  // namespace tawpipe::v0::detail
