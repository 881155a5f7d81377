// Which task precedes which: for each task, the progress of each lane of each rank when the task
// ends.
// Not: when (timeline).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// for_each_clock() with counts of that type.
template <class Count, class Visit>
void walk_clocks(const Schedule& schedule, std::span<const TaskId> order, Visit&& visit) {
  const std::size_t lanes = schedule.lanes().size();
  const std::size_t chains = static_cast<std::size_t>(schedule.ranks()) * lanes;
  constexpr std::uint32_t nowhere = ~std::uint32_t{0};
  std::vector<std::uint32_t> waiting(schedule.tasks().size(), 0);  // successors by dependency not yet visited
  for (std::size_t t = 0; t < waiting.size(); ++t) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) ++waiting[index(earlier)];
  }
  const Rows<TaskId>& program = schedule.parts().program;
  for (std::size_t row = 0; row < program.size(); ++row) {
    for (std::size_t i = 1; i < program[row].size(); ++i) ++waiting[index(program[row][i - 1])];
  }
  std::vector<std::uint32_t> slot_of(waiting.size(), nowhere);
  std::vector<std::uint32_t> free;
  struct Slot {
    std::vector<Count> clock;
    std::size_t chain;  ///< a lane of the clock's task
    Count at;           ///< and the task's index there
  };
  std::vector<Slot> slots;
  std::vector<TaskId> last(chains, none<TaskId>);
  std::vector<TaskId> before;
  for (const TaskId t : order) {
    before.clear();
    for (const TaskId earlier : schedule.dependencies(t)) before.push_back(earlier);
    for_each_end(schedule, t, [&](Rank rank, int lane) {
      TaskId& tip = last[index(rank) * lanes + static_cast<std::size_t>(lane)];
      if (tip != none<TaskId>) before.push_back(tip);
      tip = t;
    });
    // A predecessor without other successors gives up its clock.
    std::uint32_t slot = nowhere;
    for (const TaskId earlier : before) {
      if (--waiting[index(earlier)] == 0 && slot == nowhere) slot = slot_of[index(earlier)];
    }
    bool knows = slot != nowhere;
    if (!knows) {
      if (free.empty()) {
        free.push_back(static_cast<std::uint32_t>(slots.size()));
        slots.push_back({std::vector<Count>(chains), 0, 0});
      }
      slot = free.back();
      free.pop_back();
    }
    Count* const clock = slots[slot].clock.data();
    for (const TaskId earlier : before) {
      const std::uint32_t from = slot_of[index(earlier)];
      if (from == nowhere || from == slot) continue;
      const Slot& other = slots[from];
      if (!knows) {
        std::copy_n(other.clock.data(), chains, clock);
      } else if (clock[other.chain] < other.at) {
        const Count* const known = other.clock.data();
        for (std::size_t c = 0; c < chains; ++c) clock[c] = std::max(clock[c], known[c]);
      }
      knows = true;
    }
    if (!knows) std::fill_n(clock, chains, Count{0});
    for (const TaskId earlier : before) {
      std::uint32_t& from = slot_of[index(earlier)];
      if (waiting[index(earlier)] != 0 || from == nowhere) continue;
      if (from != slot) free.push_back(from);
      from = nowhere;
    }
    slot_of[index(t)] = slot;
    for_each_end(schedule, t, [&](Rank rank, int lane) {
      slots[slot].chain = index(rank) * lanes + static_cast<std::size_t>(lane);
      slots[slot].at = ++clock[slots[slot].chain];
    });
    visit(t, std::span<const Count>{clock, chains});
    if (waiting[index(t)] == 0) {
      free.push_back(slot);
      slot_of[index(t)] = nowhere;
    }
  }
}

}  // namespace detail

/// Visits the tasks in `order` with their vector clocks:
/// `visit(TaskId, auto clock)`, a span of integers, where `clock[rank * lanes + lane]` counts
/// the tasks of that lane that have ended when the task ends, itself included. So an earlier task
/// at index p of a lane precedes this one, by dependencies and lanes, if and only if clock[lane] >
/// p.
///
/// A clock is kept until the task's last successor has been visited, so memory is O(tasks in
/// flight * ranks * lanes). Counts that a task already includes are not merged again.
/// @param order  all tasks, each after what it waits for
/// Complexity: O(edges * ranks * lanes) comparisons of contiguous integers, of 16 bits where no lane
/// has more tasks than these count.
/// Source: Mattern 1989, Virtual time and global states of distributed systems (vector clocks).
template <class Visit>
void for_each_clock(const Schedule& schedule, std::span<const TaskId> order, Visit&& visit) {
  std::size_t longest = 0;
  const Rows<TaskId>& program = schedule.parts().program;
  for (std::size_t row = 0; row < program.size(); ++row) longest = std::max(longest, program[row].size());
  if (longest <= std::size_t{std::numeric_limits<std::int16_t>::max()}) {
    detail::walk_clocks<std::int16_t>(schedule, order, visit);
  } else {
    detail::walk_clocks<std::int32_t>(schedule, order, visit);
  }
}

}  // namespace tawpipe
