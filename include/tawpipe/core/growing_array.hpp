// An array that grows to gigabytes without ever being held twice.
// Not: a container to keep: take() gives a vector.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace tawpipe::inline v0 {

/// Items of a plain type, added one by one and taken as one vector of exactly their size. A vector
/// that grows is held twice while it moves, and half empty afterwards; this one grows by pieces,
/// each freed as soon as it is copied into the vector taken.
template <class T>
class GrowingArray {
 public:
  void push_back(const T& item) {
    if (pieces_.empty() || pieces_.back().size() == piece_items) add_piece();
    pieces_.back().push_back(item);
  }
  const T& operator[](std::size_t i) const { return pieces_[i / piece_items][i % piece_items]; }
  std::size_t size() const { return pieces_.empty() ? 0 : (pieces_.size() - 1) * piece_items + pieces_.back().size(); }

  /// The array is empty afterwards.
  std::vector<T> take() {
    const std::size_t count = size();
    std::vector<std::vector<T>> pieces = std::move(pieces_);
    pieces_.clear();
    std::vector<T> all;
    if (pieces.size() == 1) {
      all = std::move(pieces[0]);
      all.shrink_to_fit();
      return all;
    }
    all.reserve(count);
    for (std::vector<T>& piece : pieces) {
      all.insert(all.end(), piece.begin(), piece.end());
      piece = std::vector<T>{};  // {} by itself would keep its memory
    }
    return all;
  }

  /// A power of two, at least 32 MiB: the C library returns such a block to the system when it is
  /// freed.
  static constexpr std::size_t piece_items = std::bit_ceil((std::size_t{32} << 20) / sizeof(T));

 private:
  /// The first piece grows as it is filled; the others are made full size.
  void add_piece() {
    pieces_.emplace_back();
    if (pieces_.size() > 1) pieces_.back().reserve(piece_items);
  }

  std::vector<std::vector<T>> pieces_;
};

}  // namespace tawpipe
