// The discrete-event engine: a task graph of waits and flows, run in integer picoseconds.
// Not: what the tasks mean (simulate/simulator.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/simulate/link_sharing.hpp"

namespace tawpipe {

/// A graph ready to run. A task starts when the last of its predecessors ends, waits `delay`, and then, if it has a path,
/// moves `bytes` as one flow over that path's loads.
struct EngineGraph {
  std::vector<std::uint32_t> successor_begin;  ///< [task + 1]
  std::vector<std::int32_t> successors;
  std::vector<std::int32_t> predecessors;  ///< [task] how many
  std::vector<std::int64_t> delay;         ///< [task] picoseconds
  std::vector<double> bytes;               ///< [task] over each load of its path
  std::vector<std::int32_t> path;          ///< [task] index into paths; -1: no flow
  std::vector<std::vector<LinkLoad>> paths;
  std::vector<double> capacities;  ///< [link] bytes a second

  std::size_t tasks() const { return delay.size(); }
};

/// Start and end of each task in picoseconds.
struct EngineTimes {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> end;
};

/// Runs a graph. Equal times are ordered by task, so the same graph gives the same times on every machine.
///
/// Complexity: O(tasks log tasks) plus, for each start or end of a flow, its connected component's solution.
/// @throws ScheduleError  if some tasks wait for each other and never start; the message names one.
inline EngineTimes run_engine(EngineGraph graph) {
  struct Event {
    std::int64_t time;
    std::int32_t id;        ///< a task whose delay ends, or ~flow whose bytes have arrived
    std::uint32_t version;  ///< of the flow
  };
  const auto later = [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : (a.id != b.id ? a.id > b.id : a.version > b.version);
  };
  const std::size_t count = graph.tasks();
  EngineTimes times{std::vector<std::int64_t>(count, -1), std::vector<std::int64_t>(count, -1)};
  LinkSharing sharing{graph.capacities};
  std::vector<Event> events;
  const auto push = [&](Event event) {
    events.push_back(event);
    std::push_heap(events.begin(), events.end(), later);
  };

  std::size_t ended = 0;
  std::int64_t now = 0;
  std::vector<std::int32_t> done;  // a stack: tasks that end now and whose successors are not yet told
  const auto start_task = [&](std::int32_t task) {
    const auto t = static_cast<std::size_t>(task);
    times.start[t] = now;
    if (graph.delay[t] == 0 && graph.path[t] < 0) {
      times.end[t] = now;
      done.push_back(task);
    } else {
      push({now + graph.delay[t], task, 0});
    }
  };
  const auto settle = [&] {
    while (!done.empty()) {
      const auto t = static_cast<std::size_t>(done.back());
      done.pop_back();
      ++ended;
      for (auto i = graph.successor_begin[t]; i < graph.successor_begin[t + 1]; ++i) {
        const std::int32_t next = graph.successors[i];
        if (--graph.predecessors[static_cast<std::size_t>(next)] == 0) start_task(next);
      }
    }
  };
  const auto end_task = [&](std::int32_t task) {
    times.end[static_cast<std::size_t>(task)] = now;
    done.push_back(task);
    settle();
  };

  for (std::size_t t = 0; t < count; ++t) {
    if (graph.predecessors[t] == 0) start_task(static_cast<std::int32_t>(t));
  }
  settle();
  while (!events.empty()) {
    now = events.front().time;
    while (!events.empty() && events.front().time == now) {
      const Event event = events.front();
      std::pop_heap(events.begin(), events.end(), later);
      events.pop_back();
      if (event.id < 0) {
        const auto flow = static_cast<LinkSharing::FlowIndex>(~event.id);
        if (sharing.version(flow) != event.version) continue;  // its rate has changed since
        const std::int32_t task = sharing.task(flow);
        sharing.finish(flow);
        end_task(task);
        continue;
      }
      const auto t = static_cast<std::size_t>(event.id);
      if (graph.path[t] >= 0 && graph.bytes[t] > 0) {
        sharing.start(event.id, graph.bytes[t], graph.paths[static_cast<std::size_t>(graph.path[t])], now);
      } else {
        end_task(event.id);
      }
    }
    sharing.solve(now, [&](LinkSharing::FlowIndex flow, std::int32_t, std::int64_t finish) {
      push({finish, ~flow, sharing.version(flow)});
    });
  }
  if (ended != count) {
    std::size_t stuck = 0;
    while (times.end[stuck] >= 0) ++stuck;
    throw ScheduleError(
        concat(count - ended, " of ", count, " tasks wait for each other and never start; the first is task ", stuck));
  }
  return times;
}

}  // namespace tawpipe
