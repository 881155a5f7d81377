// What comes before what: for each task, how far each lane of each rank has come when the task ends.
// Not: when (timeline).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Visits the tasks in `order` with their vector clocks: `visit(TaskId, std::span<const std::uint32_t> clock)`, where
/// `clock[rank * lanes + lane]` counts the tasks of that lane that have ended when the task ends, itself included. So an
/// earlier task at place p of a lane comes before this one, by dependencies and lanes, exactly if clock[lane] > p.
///
/// A clock is kept until the task's last successor has been visited, so memory is O(tasks in flight * ranks * lanes).
/// @param order  all tasks, each after what it waits for
/// Complexity: O(edges * ranks * lanes) additions of integers that lie side by side.
/// Source: Mattern 1989, Virtual time and global states of distributed systems (vector clocks).
template <class Visit>
void for_each_clock(const Schedule& schedule, std::span<const TaskId> order, Visit&& visit) {
  const std::size_t lanes = schedule.lanes().size();
  const std::size_t chains = static_cast<std::size_t>(schedule.ranks()) * lanes;
  constexpr std::uint32_t nowhere = ~std::uint32_t{0};
  std::vector<std::uint32_t> waiting(schedule.tasks().size(), 0);  // successors by dependency that are still to come
  for (std::size_t t = 0; t < waiting.size(); ++t) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) ++waiting[index(earlier)];
  }
  const Rows<TaskId>& program = schedule.parts().program;
  for (std::size_t row = 0; row < program.size(); ++row) {
    for (std::size_t i = 1; i < program[row].size(); ++i) ++waiting[index(program[row][i - 1])];
  }
  std::vector<std::uint32_t> slot_of(waiting.size(), nowhere);
  std::vector<std::uint32_t> free;
  std::vector<std::vector<std::uint32_t>> slots;
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
    // A predecessor that nobody else waits for gives its clock away.
    std::uint32_t slot = nowhere;
    for (const TaskId earlier : before) {
      if (--waiting[index(earlier)] == 0 && slot == nowhere) slot = slot_of[index(earlier)];
    }
    const bool inherited = slot != nowhere;
    if (!inherited) {
      if (free.empty()) {
        free.push_back(static_cast<std::uint32_t>(slots.size()));
        slots.emplace_back(chains);
      }
      slot = free.back();
      free.pop_back();
      std::fill(slots[slot].begin(), slots[slot].end(), 0U);
    }
    std::uint32_t* const clock = slots[slot].data();
    for (const TaskId earlier : before) {
      const std::uint32_t from = slot_of[index(earlier)];
      if (from == nowhere || from == slot) continue;
      const std::uint32_t* const other = slots[from].data();
      for (std::size_t c = 0; c < chains; ++c) clock[c] = std::max(clock[c], other[c]);
    }
    for (const TaskId earlier : before) {
      std::uint32_t& from = slot_of[index(earlier)];
      if (waiting[index(earlier)] != 0 || from == nowhere) continue;
      if (from != slot) free.push_back(from);
      from = nowhere;
    }
    slot_of[index(t)] = slot;
    for_each_end(schedule, t, [&](Rank rank, int lane) { ++clock[index(rank) * lanes + static_cast<std::size_t>(lane)]; });
    visit(t, std::span<const std::uint32_t>{clock, chains});
    if (waiting[index(t)] == 0) {
      free.push_back(slot);
      slot_of[index(t)] = nowhere;
    }
  }
}

}  // namespace tawpipe
