// Data races (V4xx): two tasks that use one buffer, at least one changing it, unordered; two
// computations of a rank at once.
// Not: tasks that are ordered wrongly (verify/check_contents.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"
#include "tawpipe/verify/reachability.hpp"

namespace tawpipe::inline v0 {

/// Adds each pair of unordered uses of a buffer, the last writer against its next users, and
/// readers against the next writer. A buffer's tasks all take part on its rank, so "before" is one
/// comparison with a clock. A rank computes one thing at a time: two unordered computations of it
/// are also such a pair. So is a buffer that one task names twice.
///
/// @param order  all tasks, each after what it waits for (check_cycles gives one)
/// Complexity: for_each_clock plus O(uses * lanes).
/// Source: Flanagan and Freund 2009, FastTrack, for keeping only the last write and the readers
/// since.
inline void check_races(const Schedule& schedule, std::span<const TaskId> order, Diagnostics& out) {
  struct Visit {
    TaskId task = none<TaskId>;
    std::int32_t at = 0;  // its own lane's clock when it ended
    std::uint32_t chain = 0;
  };
  struct Reader {
    Visit place;
    std::int32_t next;
  };
  struct State {
    Visit writer;
    bool accumulated = false;
    std::int32_t first_reader = -1;
  };
  std::vector<State> states(schedule.buffers().size());
  std::vector<Reader> readers;
  std::vector<std::int32_t> free;
  const std::size_t lanes = schedule.lanes().size();
  std::vector<Visit> computing(static_cast<std::size_t>(schedule.ranks()));  // [rank] the last computation
  for_each_clock(schedule, order, [&](TaskId t, auto clock) {
    const Task& task = schedule.task(t);
    if (is_work(task.op)) {
      Visit& last = computing[index(task.rank)];
      if (last.task != none<TaskId> && clock[last.chain] < last.at) {
        out.error(
            "V403", t, task.rank,
            [&] {
              return concat(detail::describe(schedule, last.task), " and ", detail::describe(schedule, t), ", in no order");
            },
            "a rank computes one thing at a time: put its computations into one lane, or let one wait for the other");
      }
      const auto chain = static_cast<std::uint32_t>(index(task.rank) * lanes + static_cast<std::size_t>(task.lane_on(task.rank)));
      last = {t, clock[chain], chain};
    }
    for (const Use& use : schedule.uses(t)) {
      const Rank rank = schedule.buffer(use.buffer).rank;
      State& state = states[index(use.buffer)];
      const auto chain = static_cast<std::uint32_t>(index(rank) * lanes + static_cast<std::size_t>(schedule.lane_on(t, rank)));
      const Visit here{t, clock[chain], chain};
      const auto twice = [&] {
        out.error(
            "V404", t, rank,
            [&] { return concat(detail::describe(schedule, t), " names ", detail::describe(schedule, use.buffer), " twice"); },
            "name each buffer once, with the one access that the task has to it");
      };
      const auto check = [&](const Visit& earlier, bool earlier_writes) {
        if (earlier.task == t) return twice();
        if (earlier.task == none<TaskId> || clock[earlier.chain] >= earlier.at) return;
        const bool sums = use.access == Access::accumulate && earlier_writes && state.accumulated;
        out.error(
            sums ? "V402" : "V401", t, rank,
            [&] {
              return concat(detail::describe(schedule, earlier.task), earlier_writes ? " changes " : " reads ",
                            detail::describe(schedule, use.buffer), " and ", detail::describe(schedule, t),
                            use.access == Access::read ? " reads it" : " changes it", ", in no order");
            },
            sums ? "make one addition wait for the other" : "add a dependency from the first to the second");
      };
      check(state.writer, true);
      if (use.access == Access::read) {
        std::int32_t* link = &state.first_reader;
        while (*link >= 0 && readers[static_cast<std::size_t>(*link)].place.chain != chain) {
          link = &readers[static_cast<std::size_t>(*link)].next;
        }
        if (*link >= 0) {  // the lane's later reader replaces the earlier one
          if (readers[static_cast<std::size_t>(*link)].place.task == t) twice();
          readers[static_cast<std::size_t>(*link)].place = here;
        } else if (!free.empty()) {
          readers[static_cast<std::size_t>(free.back())] = {here, state.first_reader};
          state.first_reader = free.back();
          free.pop_back();
        } else {
          readers.push_back({here, state.first_reader});
          state.first_reader = static_cast<std::int32_t>(readers.size() - 1);
        }
        continue;
      }
      for (auto i = state.first_reader; i >= 0; i = readers[static_cast<std::size_t>(i)].next) {
        check(readers[static_cast<std::size_t>(i)].place, false);
        free.push_back(i);
      }
      state = {here, use.access == Access::accumulate, -1};
    }
  });
}

}  // namespace tawpipe
