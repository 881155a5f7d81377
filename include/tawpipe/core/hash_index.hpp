// Finds the number of an item by its value: a hash table of numbers whose items are kept elsewhere.
// Not: a container; it holds only hashes and numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tawpipe::inline v0 {

/// Items numbered from 0 in the order in which they were added. Open addressing; at most half full.
class HashIndex {
 public:
  /// The number of the item that `same(number)` accepts, or that of the item that `add()` makes
  /// now.
  /// @param hash  equal for equal items; need not be mixed well
  template <class Same, class Add>
  std::int32_t find_or_add(std::uint64_t hash, Same&& same, Add&& add) {
    const auto mixed = static_cast<std::uint32_t>((hash * 0x9e3779b97f4a7c15U) >> 32);
    std::size_t slot = mixed & (slots_.size() - 1);
    for (; slots_[slot].number >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].hash == mixed && same(slots_[slot].number)) return slots_[slot].number;
    }
    const std::int32_t added = size_;
    add();
    slots_[slot] = {mixed, added};
    if (static_cast<std::size_t>(++size_) * 2 > slots_.size()) grow();
    return added;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t number = -1;  ///< -1: empty
  };

  void grow() {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(slots_.size() * 4));
    for (const Slot& filled : before) {
      if (filled.number < 0) continue;
      std::size_t at = filled.hash & (slots_.size() - 1);
      while (slots_[at].number >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = filled;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(256);
  std::int32_t size_ = 0;
};

}  // namespace tawpipe
