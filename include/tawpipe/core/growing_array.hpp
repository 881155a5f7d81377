// An array that grows to gigabytes without ever being held twice.
// Not: a container to keep: take() gives a vector.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace tawpipe::inline v0 {

/// Items of a plain type, added one by one and taken as one vector of exactly their size. A vector
/// that grows is held twice while it moves, and half empty afterwards; this one grows in pieces,
/// each freed as soon as it is copied into the vector taken. Where the number of items is known,
/// reserve() saves the copy too.
template <class T>
class GrowingArray {
 public:
  /// Makes the first piece hold `items` items: if exactly that many are added, take() copies none.
  /// @pre it has not grown beyond the first piece
  void reserve(std::size_t items) {
    if (items > piece_items) first_items_ = items;
    if (pieces_.empty()) pieces_.emplace_back();
    pieces_[0].reserve(items);
  }
  /// Makes room in the first piece, no more than it would grow to, where about `items` will be added:
  /// it is then not moved as it grows.
  void expect(std::size_t items) {
    if (pieces_.size() == 1) pieces_[0].reserve(std::min(items, piece_items));
  }
  void push_back(const T& item) {
    if (pieces_.empty() || pieces_.back().size() == (pieces_.size() == 1 ? first_items_ : piece_items)) add_piece();
    pieces_.back().push_back(item);
  }
  const T& operator[](std::size_t i) const {
    if (i < first_items_) return pieces_[0][i];
    return pieces_[1 + (i - first_items_) / piece_items][(i - first_items_) % piece_items];
  }
  std::size_t size() const {
    if (pieces_.size() < 2) return pieces_.empty() ? 0 : pieces_[0].size();
    return first_items_ + (pieces_.size() - 2) * piece_items + pieces_.back().size();
  }

  /// The array is empty afterwards.
  std::vector<T> take() {
    const std::size_t count = size();
    std::vector<std::vector<T>> pieces = std::move(pieces_);
    pieces_.clear();
    first_items_ = piece_items;
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
  std::size_t first_items_ = piece_items;  ///< of the first piece when it is full
};

}  // namespace tawpipe
