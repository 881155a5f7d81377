// The engine's queue of events: the earliest first, equal times in the order of their ids.
// Not: what the events mean (simulate/engine.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tawpipe::inline v0 {

/// A heap of (time, id) with four children a node: half as deep as a binary heap, and the children
/// share a cache line.
class EventQueue {
 public:
  struct Event {
    std::int64_t time;
    std::int32_t id;
  };

  bool empty() const { return events_.empty(); }
  std::size_t size() const { return events_.size(); }
  const Event& top() const { return events_.front(); }

  /// Complexity: O(log size). Inline in an engine for shared processors too, which calls it in more
  /// places.
  [[gnu::always_inline]] void push(Event event) {
    std::size_t hole = events_.size();
    events_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!before(event, events_[parent])) break;
      events_[hole] = events_[parent];
      hole = parent;
    }
    events_[hole] = event;
  }

  /// Complexity: O(log size).
  void pop() {
    const Event last = events_.back();
    events_.pop_back();
    const std::size_t size = events_.size();
    if (size == 0) return;
    std::size_t hole = 0;
    for (std::size_t first = 1; first < size; first = 4 * hole + 1) {
      std::size_t least = first;
      const std::size_t end = first + 4 < size ? first + 4 : size;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (before(events_[child], events_[least])) least = child;
      }
      if (!before(events_[least], last)) break;
      events_[hole] = events_[least];
      hole = least;
    }
    events_[hole] = last;
  }

 private:
  static bool before(const Event& a, const Event& b) { return a.time != b.time ? a.time < b.time : a.id < b.id; }

  std::vector<Event> events_;
};

}  // namespace tawpipe
