// A vector that accepts only its own kind of id as an index.
// Not: owning a range of ids (a Schedule or Cluster does).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/ids.hpp"

namespace tawpipe::inline v0 {

/// std::vector indexed by `Id`. Bounds are checked in debug builds.
template <IdType Id, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size, const T& value = T{}) : items_(size, value) {}
  explicit IdVector(std::vector<T> items) : items_{std::move(items)} {}

  decltype(auto) operator[](Id i) {
    TAWPIPE_ASSERT(index(i) < items_.size(), "an id within the vector");
    return items_[index(i)];
  }
  decltype(auto) operator[](Id i) const {
    TAWPIPE_ASSERT(index(i) < items_.size(), "an id within the vector");
    return items_[index(i)];
  }

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  Id push_back(T value) {
    items_.push_back(std::move(value));
    return id<Id>(items_.size() - 1);
  }
  void reserve(std::size_t count) { items_.reserve(count); }
  void resize(std::size_t count, const T& value = T{}) { items_.resize(count, value); }

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const std::vector<T>& items() const { return items_; }

  bool operator==(const IdVector&) const = default;

 private:
  std::vector<T> items_;
};

}  // namespace tawpipe
