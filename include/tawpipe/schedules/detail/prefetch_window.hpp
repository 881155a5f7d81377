// How far gathers may run ahead of the computations that use them.
// Not: what is gathered (detail/sharded_builder.hpp).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// A gather waits for the unit computed `prefetch` + 1 units before, on the nodes it spans, so that
/// no more than `prefetch` units are ready in addition to the one being computed.
class PrefetchWindow {
 public:
  PrefetchWindow(int nodes, int prefetch)
      : ahead_{static_cast<std::size_t>(prefetch) + 1}, computed_(static_cast<std::size_t>(nodes)) {}

  /// Records that a node has computed one more unit.
  void computed(std::size_t node, std::vector<TaskId> tasks) {
    auto& units = computed_[node];
    units.push_back(std::move(tasks));
    if (units.size() > ahead_) units.erase(units.begin());
  }

  /// The task that a gather inside a node must wait for.
  std::vector<TaskId> of(std::size_t node) const {
    return computed_[node].size() < ahead_ ? std::vector<TaskId>{} : computed_[node].front();
  }
  /// The tasks that a gather over all nodes must wait for.
  std::vector<TaskId> all() const {
    std::vector<TaskId> tasks;
    for (std::size_t node = 0; node < computed_.size(); ++node) {
      const std::vector<TaskId> more = of(node);
      tasks.insert(tasks.end(), more.begin(), more.end());
    }
    return tasks;
  }

 private:
  std::size_t ahead_;
  /// [node] as many of the last units as matter
  std::vector<std::vector<std::vector<TaskId>>> computed_;
};

}  // namespace tawpipe::schedules::detail
