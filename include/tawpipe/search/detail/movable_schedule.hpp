// A schedule whose tasks can be reordered: which must precede which, and the schedule of a new
// order.
// Not: the choice of an order (search/improve.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Tasks are numbered as in the original schedule. Two tasks keep their order if one needs the
/// other: by the schedule's dependencies, and if both use a buffer, unless both only read it or add
/// to it.
class MovableSchedule {
 public:
  /// Complexity: O(uses + dependencies), times the readers between two writes.
  explicit MovableSchedule(const Schedule& base) : parts_{base.parts()}, workload_{base.workload()} {
    const std::size_t count = parts_.tasks.size();
    order_.resize(count);
    for (std::size_t t = 0; t < count; ++t) order_[t] = static_cast<std::uint32_t>(t);
    position_ = order_;
    waits_.assign(count, nothing);
    find_needs();
  }

  std::size_t size() const { return order_.size(); }
  const Task& task(std::uint32_t number) const { return parts_.tasks[number]; }
  /// The task that is `place`-th, as numbered by build().
  std::uint32_t at(TaskId place) const { return order_[index(place)]; }

  /// Puts `task`, and what it needs, before `other`. False, without a change, if it needs `other`
  /// or is before it.
  bool hoist(std::uint32_t task, std::uint32_t other) {
    const std::size_t first = position_[other];
    const std::size_t last = position_[task];
    if (last <= first) return false;
    std::vector<char> needed(last - first + 1, 0);
    needed.back() = 1;
    for (std::size_t p = last; p > first; --p) {
      if (needed[p - first] == 0) continue;
      for_each_need(order_[p], [&](std::uint32_t need) {
        if (position_[need] >= first) needed[position_[need] - first] = 1;
      });
    }
    if (needed[0] != 0) return false;
    std::size_t at = 0;
    std::stable_partition(order_.begin() + static_cast<std::ptrdiff_t>(first),
                          order_.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                          [&](std::uint32_t) { return needed[at++] != 0; });
    for (std::size_t p = first; p <= last; ++p) position_[order_[p]] = static_cast<std::uint32_t>(p);
    return true;
  }

  /// Makes `task` wait for `other`, with which it shares a rank, replacing its previous added wait.
  /// False if `other` needs `task`.
  bool wait(std::uint32_t task, std::uint32_t other) {
    if (waits_[task] == other || !share_rank(task, other)) return false;
    if (position_[other] > position_[task] && !hoist(other, task)) return false;
    waits_[task] = other;
    return true;
  }

  /// Exchanges the work of two ranks. @pre a plain mesh
  void swap_ranks(Rank a, Rank b) {
    const auto swapped = [&](Rank rank) { return rank == a ? b : rank == b ? a : rank; };
    for (Task& task : parts_.tasks) {
      task.rank = swapped(task.rank);
      if (is_point_to_point(task.op)) task.peer = swapped(task.peer);
    }
    for (Buffer& buffer : parts_.buffers) buffer.rank = swapped(buffer.rank);
    std::vector<Rank> members = parts_.groups.items();
    for (Rank& member : members) member = swapped(member);
    parts_.groups = {parts_.groups.begins(), std::move(members)};
  }

  /// The schedule of the current order: its tasks are numbered by position. Complexity: O(tasks +
  /// needs).
  Schedule build() const {
    const std::size_t count = size();
    Schedule::Parts out = parts_;
    std::vector<std::vector<std::uint32_t>> chained(count);
    for (std::vector<std::uint32_t> sum : sums_) {  // additions to a buffer are ordered
      std::sort(sum.begin(), sum.end(), [&](std::uint32_t a, std::uint32_t b) { return position_[a] < position_[b]; });
      for (std::size_t i = 1; i < sum.size(); ++i) {
        if (!share_lane(sum[i - 1], sum[i])) chained[sum[i]].push_back(sum[i - 1]);
      }
    }
    std::vector<std::uint32_t> dependency_begin{0}, use_begin{0};
    std::vector<TaskId> dependencies;
    std::vector<Use> uses;
    std::vector<std::vector<TaskId>> program(parts_.program.size());
    const std::size_t lanes = parts_.lanes.size();
    for (std::size_t p = 0; p < count; ++p) {
      const std::uint32_t t = order_[p];
      out.tasks[p] = parts_.tasks[t];
      const std::size_t first = dependencies.size();
      const auto add = [&](std::uint32_t need) { dependencies.push_back(id<TaskId>(position_[need])); };
      for (std::size_t i = need_begin_[t]; i < need_begin_[t + 1]; ++i) {
        if (!share_lane(needs_[i], t)) add(needs_[i]);
      }
      std::for_each(chained[t].begin(), chained[t].end(), add);
      if (waits_[t] != nothing && !share_lane(waits_[t], t)) add(waits_[t]);
      std::sort(dependencies.begin() + static_cast<std::ptrdiff_t>(first), dependencies.end());
      dependencies.erase(std::unique(dependencies.begin() + static_cast<std::ptrdiff_t>(first), dependencies.end()),
                         dependencies.end());
      dependency_begin.push_back(static_cast<std::uint32_t>(dependencies.size()));
      const auto used = parts_.uses[t];
      uses.insert(uses.end(), used.begin(), used.end());
      use_begin.push_back(static_cast<std::uint32_t>(uses.size()));
      for_each_end(out.tasks[p], parts_.groups, [&](Rank rank, int lane) {
        program[index(rank) * lanes + static_cast<std::size_t>(lane)].push_back(id<TaskId>(p));
      });
    }
    for (Bucket& bucket : out.buckets) bucket.message = id<TaskId>(position_[index(bucket.message)]);
    std::sort(out.buckets.begin(), out.buckets.end(), [](const Bucket& a, const Bucket& b) { return a.message < b.message; });
    out.dependencies = {std::move(dependency_begin), std::move(dependencies)};
    out.uses = {std::move(use_begin), std::move(uses)};
    std::vector<std::uint32_t> row_begin{0};
    std::vector<TaskId> rows;
    for (const std::vector<TaskId>& row : program) {
      rows.insert(rows.end(), row.begin(), row.end());
      row_begin.push_back(static_cast<std::uint32_t>(rows.size()));
    }
    out.program = {std::move(row_begin), std::move(rows)};
    return Schedule{workload_, std::move(out)};
  }

  /// Whether the order itself already orders them.
  bool share_lane(std::uint32_t a, std::uint32_t b) const {
    return any_end(
        a, [&](Rank rank, int lane) { return any_end(b, [&](Rank other, int its) { return rank == other && lane == its; }); });
  }
  bool share_rank(std::uint32_t a, std::uint32_t b) const {
    return any_end(a, [&](Rank rank, int) { return any_end(b, [&](Rank other, int) { return rank == other; }); });
  }

 private:
  static constexpr std::uint32_t nothing = 0xffffffffU;

  template <class Is>
  bool any_end(std::uint32_t t, Is&& is) const {
    bool found = false;
    for_each_end(parts_.tasks[t], parts_.groups, [&](Rank rank, int lane) { found = found || is(rank, lane); });
    return found;
  }

  template <class Visit>
  void for_each_need(std::uint32_t t, Visit&& visit) const {
    for (std::size_t i = need_begin_[t]; i < need_begin_[t + 1]; ++i) visit(needs_[i]);
    if (waits_[t] != nothing) visit(waits_[t]);
  }

  /// The last uses of a buffer.
  struct Touched {
    /// the predecessors of the tasks of `changed`, if these add
    std::vector<std::uint32_t> before;
    std::vector<std::uint32_t> changed;  ///< a write, or additions, whose order is free
    std::vector<std::uint32_t> read;     ///< since then
    bool adding = false;
  };

  void find_needs() {
    std::vector<Touched> buffers(parts_.buffers.size());
    need_begin_.assign(1, 0);
    std::vector<std::uint32_t> found;
    const auto keep_sum = [&](Touched& buffer) {
      if (buffer.adding && buffer.changed.size() > 1) sums_.push_back(buffer.changed);
    };
    const auto append = [](std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (std::size_t t = 0; t < size(); ++t) {
      const auto number = static_cast<std::uint32_t>(t);
      found.clear();
      std::vector<std::uint32_t> free;  // earlier additions to a buffer that this one adds to
      for (const Use use : parts_.uses[t]) {
        Touched& buffer = buffers[index(static_cast<BufferId>(use.buffer))];
        if (use.access == Access::read) {
          append(found, buffer.changed);
          buffer.read.push_back(number);
          continue;
        }
        if (use.access == Access::accumulate && buffer.adding && buffer.read.empty()) {
          append(found, buffer.before);
          append(free, buffer.changed);
          buffer.changed.push_back(number);
          continue;
        }
        keep_sum(buffer);
        buffer.before = buffer.changed;
        append(buffer.before, buffer.read);
        append(found, buffer.before);
        buffer.changed.assign(1, number);
        buffer.read.clear();
        buffer.adding = use.access == Access::accumulate;
      }
      for (const TaskId needed : parts_.dependencies[t]) {
        const auto other = static_cast<std::uint32_t>(index(needed));
        if (std::find(free.begin(), free.end(), other) == free.end()) found.push_back(other);
      }
      std::sort(found.begin(), found.end());
      found.erase(std::unique(found.begin(), found.end()), found.end());
      append(needs_, found);
      need_begin_.push_back(needs_.size());
    }
    for (Touched& buffer : buffers) keep_sum(buffer);
  }

  Schedule::Parts parts_;
  Workload workload_;
  std::vector<std::size_t> need_begin_;           ///< [task], into needs_
  std::vector<std::uint32_t> needs_;              ///< tasks that must precede it
  std::vector<std::vector<std::uint32_t>> sums_;  ///< additions to one buffer whose order is free
  std::vector<std::uint32_t> order_;              ///< [place] task
  std::vector<std::uint32_t> position_;           ///< [task] place
  /// [task] the task of its added wait; nothing: none
  std::vector<std::uint32_t> waits_;
};

}  // namespace tawpipe
