// When a rank arrives at a communication: the ends of communications, and what each end waits for
// on its rank.
// Not: what a rank launches (execute/program.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Whether a task is a communication between ranks: neither a copy on one device nor of a group of
/// one.
inline bool is_between_ranks(const Schedule& schedule, const Task& task) {
  if (is_local(task.op)) return false;
  return !is_collective(task.op) || schedule.group(task.group).size() > 1;
}

/// The ends of communications, numbered by task and then as for_each_end() visits them. A rank
/// arrives at its end of a task when the task before it in the end's lane has ended, and all
/// dependencies in which the rank takes part. A task of other ranks is waited for only where its
/// end is signalled: at Task::rank.
class Arrivals {
 public:
  /// @param wanted  called with each communication: whether its ends are numbered
  /// Complexity: O(tasks + members log members).
  template <class Wanted>
  Arrivals(const Schedule& schedule, Wanted&& wanted)
      : schedule_{&schedule}, places_(static_cast<std::size_t>(schedule.groups())) {
    begin_.reserve(schedule.tasks().size() + 1);
    for (const Task& task : schedule.tasks()) {
      begin_.push_back(static_cast<std::uint32_t>(ranks_.size()));
      if (is_compute(task.op) || !wanted(task)) continue;
      for_each_end(task, schedule.parts().groups, [&](Rank rank, int) { ranks_.push_back(rank); });
      if (is_collective(task.op)) sort_members(task.group);
    }
    begin_.push_back(static_cast<std::uint32_t>(ranks_.size()));
  }

  std::size_t size() const { return ranks_.size(); }
  std::size_t begin(TaskId task) const { return begin_[index(task)]; }
  std::size_t end(TaskId task) const { return begin_[index(task) + 1]; }
  Rank rank(std::size_t arrival) const { return ranks_[arrival]; }

  /// Calls `visit(task, arrival)` for each task that an arrival waits for, some of them twice.
  /// Complexity: O((edges + members) log members).
  template <class Visit>
  void for_each_predecessor(Visit&& visit) const {
    for (std::size_t t = 0; t + 1 < begin_.size(); ++t) {
      if (begin_[t] == begin_[t + 1]) continue;
      const Task& task = schedule_->tasks()[t];
      for (const TaskId earlier : schedule_->dependencies(id<TaskId>(t))) {
        bool met = false;
        for_each_end(*schedule_, earlier, [&](Rank rank, int) {
          const std::size_t place = place_of(task, rank);
          if (place == absent) return;
          met = true;
          visit(earlier, begin_[t] + place);
        });
        if (!met) visit(earlier, begin_[t] + place_of(task, task.rank));
      }
    }
    for (int r = 0; r < schedule_->ranks(); ++r) {
      for (int lane = 0; lane < static_cast<int>(schedule_->lanes().size()); ++lane) {
        const auto program = schedule_->program(Rank{r}, lane);
        for (std::size_t i = 1; i < program.size(); ++i) {
          if (begin(program[i]) == end(program[i])) continue;
          visit(program[i - 1], begin(program[i]) + place_of(schedule_->task(program[i]), Rank{r}));
        }
      }
    }
  }
  /// Calls `visit(earlier, arrival)` for each arrival but the first of its rank, where ranks arrive
  /// in the order of `calls`. Complexity: O(tasks + members).
  template <class Visit>
  void for_each_launch(std::span<const TaskId> calls, Visit&& visit) const {
    std::vector<std::size_t> last(static_cast<std::size_t>(schedule_->ranks()), absent);
    for (const TaskId task : calls) {
      for (std::size_t a = begin(task); a < end(task); ++a) {
        std::size_t& earlier = last[index(rank(a))];
        if (earlier != absent) visit(earlier, a);
        earlier = a;
      }
    }
  }

 private:
  using Place = std::pair<Rank, std::size_t>;
  static constexpr std::size_t absent = static_cast<std::size_t>(-1);

  void sort_members(GroupId group) {
    std::vector<Place>& places = places_[index(group)];
    if (!places.empty()) return;
    for (const Rank rank : schedule_->group(group)) places.emplace_back(rank, places.size());
    std::sort(places.begin(), places.end());
  }

  /// The place of `rank` among the ends of `task`.
  std::size_t place_of(const Task& task, Rank rank) const {
    if (!is_collective(task.op)) return rank == task.rank ? 0 : rank == task.peer ? 1 : absent;
    const std::vector<Place>& places = places_[index(task.group)];
    const auto found = std::lower_bound(places.begin(), places.end(), Place{rank, 0});
    return found == places.end() || found->first != rank ? absent : found->second;
  }

  const Schedule* schedule_;
  std::vector<std::uint32_t> begin_;        ///< [task] its first arrival; last their number
  std::vector<Rank> ranks_;                 ///< [arrival]
  std::vector<std::vector<Place>> places_;  ///< [group] by rank, of groups with arrivals
};

}  // namespace tawpipe
