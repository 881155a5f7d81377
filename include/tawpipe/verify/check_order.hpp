// Findings about order (V2xx, V6xx): tasks that wait for each other, communicators used in
// different orders, and launches that block each other.
// Not: unordered accesses to data (verify/check_races.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/hash_index.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/task_graph.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline std::string list_cycle(const Schedule& schedule, const std::vector<Digraph::Vertex>& cycle) {
  constexpr std::size_t most = 12;
  std::string out;
  for (std::size_t i = 0; i < cycle.size() && i < most; ++i) {
    out += concat(i == 0 ? "" : "; then ", describe(schedule, id<TaskId>(cycle[i])));
  }
  if (cycle.size() > most) out += concat("; then ", cycle.size() - most, " more");
  return out;
}

/// Whether the cycle exists because a communication blocks the lane in which it waits.
inline bool blocks_a_lane(const Schedule& schedule, const std::vector<Digraph::Vertex>& cycle) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    const TaskId from = id<TaskId>(cycle[i]);
    const TaskId to = id<TaskId>(cycle[(i + 1) % cycle.size()]);
    if (is_compute(schedule.task(from).op)) continue;
    const auto known = schedule.dependencies(to);
    if (std::find(known.begin(), known.end(), from) == known.end()) return true;
  }
  return false;
}

/// The launches of each rank, in the order of ids, as edges in addition to the schedule's own.
inline Digraph launch_graph(const Schedule& schedule) {
  std::vector<std::size_t> last(static_cast<std::size_t>(schedule.ranks()));
  constexpr auto nothing = static_cast<std::size_t>(-1);
  return Digraph{schedule.tasks().size(), [&](auto&& visit) {
                   for_each_wait(schedule, visit);
                   last.assign(last.size(), nothing);
                   for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
                     if (is_local(schedule.tasks()[t].op)) continue;
                     for_each_end(schedule, id<TaskId>(t), [&](Rank rank, int) {
                       if (last[index(rank)] != nothing) visit(last[index(rank)], t);
                       last[index(rank)] = t;
                     });
                   }
                 }};
}

}  // namespace detail

/// Adds a finding for tasks that wait for each other, named by one shortest cycle, and for ids that
/// are not a topological order.
///
/// A transfer or collective is one vertex: it holds the heads of all its lanes until all its ends
/// are there, which is how NCCL's kernels in streams and MPI's blocking calls behave. A cycle is a
/// deadlock, and every deadlock is a cycle.
/// @return an order in which the tasks can run; shorter than the tasks if there is a cycle
inline std::vector<TaskId> check_cycles(const Schedule& schedule, Diagnostics& out) {
  std::vector<TaskId> order = detail::run_order(schedule);
  if (order.size() < schedule.tasks().size()) {
    const auto cycle = shortest_cycle(detail::task_graph(schedule));
    const TaskId first = id<TaskId>(cycle.front());
    const bool blocked = detail::blocks_a_lane(schedule, cycle);
    out.error(
        blocked ? "V602" : "V201", first, schedule.task(first).rank,
        [&] {
          return concat(cycle.size(), cycle.size() == 1 ? " task waits for itself: " : " tasks wait for each other: ",
                        detail::list_cycle(schedule, cycle));
        },
        blocked ? "issue these communications in one order on all their ranks, or put them on different lanes"
                : "take away one of the dependencies between them");
    return order;
  }
  if (detail::ids_in_order(schedule)) return order;
  const Digraph launches = detail::launch_graph(schedule);
  const bool hangs = topological_order(launches).size() < schedule.tasks().size();
  const auto cycle = hangs ? shortest_cycle(launches) : std::vector<Digraph::Vertex>{};
  out.error(
      "V202", hangs ? id<TaskId>(cycle.front()) : none<TaskId>, none<Rank>,
      [&] {
        std::string message = "the ids of the tasks are not an order in which they can run";
        if (hangs) {
          message +=
              concat("; ranks that launch communications in that order block each other: ", detail::list_cycle(schedule, cycle));
        }
        return message;
      },
      "number the tasks in an order in which each comes after what it waits for");
  return order;
}

/// Adds a finding for each communicator whose operations two of its ranks issue in different
/// orders. The graph may have cycles.
///
/// The communicator of a collective is its group and lane; that of a transfer, its two ends in
/// order with their lanes.
/// Complexity: O(communications * log communicators).
inline void check_communicator_order(const Schedule& schedule, Diagnostics& out) {
  struct Communicator {
    Task like;                   // of its kind
    std::vector<TaskId> issued;  // by the first end
    Rank rank = none<Rank>;      // the rank that issues now
    std::size_t next = 0;        // index into the issues of the first end
    bool reported = false;
  };
  std::vector<Communicator> communicators;
  HashIndex numbers;
  const auto communicator = [&](const Task& task) -> Communicator& {
    const bool group = is_collective(task.op);
    const auto lanes =
        static_cast<std::uint64_t>(number(task.lane)) << 8 | static_cast<std::uint64_t>(group ? 0 : number(task.peer_lane));
    const auto ends =
        static_cast<std::uint64_t>(group ? -1 : number(task.rank)) << 32 | static_cast<std::uint32_t>(task.partner());
    const std::int32_t found = numbers.find_or_add(
        (ends * 0x9e3779b97f4a7c15U + lanes) * 0x9e3779b97f4a7c15U,
        [&](std::int32_t one) {
          const Task& like = communicators[static_cast<std::size_t>(one)].like;
          return group == is_collective(like.op) && task.partner() == like.partner() && task.lane == like.lane &&
                 (group || (task.rank == like.rank && task.peer_lane == like.peer_lane));
        },
        [&] {
          communicators.push_back({task, {}});
        });
    return communicators[static_cast<std::size_t>(found)];
  };
  const auto for_each_issue = [&](auto&& visit) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
        for (const TaskId t : schedule.program(Rank{rank}, lane)) {
          if (!is_local(schedule.task(t).op)) visit(Rank{rank}, t);
        }
      }
    }
  };
  const auto first_end = [&](const Task& task) { return is_collective(task.op) ? schedule.group(task.group)[0] : task.rank; };
  for_each_issue([&](Rank rank, TaskId t) {
    if (rank == first_end(schedule.task(t))) communicator(schedule.task(t)).issued.push_back(t);
  });
  for_each_issue([&](Rank rank, TaskId t) {
    const Task& task = schedule.task(t);
    if (rank == first_end(task)) return;
    Communicator& own = communicator(task);
    if (own.rank != rank) {
      own.rank = rank;
      own.next = 0;
      own.reported = false;
    }
    const TaskId other = own.next < own.issued.size() ? own.issued[own.next] : none<TaskId>;
    ++own.next;
    if (other == t || other == none<TaskId> || own.reported) return;
    own.reported = true;
    out.error(
        "V601", t, rank,
        [&] {
          return concat("rank ", number(rank), " issues ", detail::describe(schedule, t), " where rank ", number(first_end(task)),
                        " issues ", detail::describe(schedule, other));
        },
        "issue the operations of one communicator in one order on all its ranks");
  });
}

}  // namespace tawpipe
