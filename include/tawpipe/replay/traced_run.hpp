// A traced training run: its steps as schedules that can be replayed, and the time that each event
// took by itself.
// Not: a trace's file (straggler_csv.hpp, report/kineto_run.hpp), nor its conversion
// (trace_recorder.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/simulate/engine.hpp"
#include "tawpipe/simulate/lane_order.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// The kinds of work in a trace's events.
enum class TraceKind : std::uint8_t {
  compute,        ///< a computation other than the next two
  matmul,         ///< a matrix product
  attention,      ///< a fused attention
  communication,  ///< a collective, or a message
  copy,           ///< a copy or fill of the device's memory
  host,           ///< the host, between two launches
};
inline constexpr int trace_kinds = 6;

constexpr std::string_view name(TraceKind kind) {
  constexpr std::string_view names[trace_kinds] = {"compute", "matmul", "attention", "communication", "copy", "host"};
  return names[static_cast<int>(kind)];
}

/// One event of one rank. A communication has one on each member.
///
/// It starts `delay` after its last dependency has ended, and a communication when its last member
/// has arrived; it then takes `own`. So the wait for a late peer is in neither.
struct TracedEvent {
  /// the pass of a computation; idle: none (the host); the operation of a communication
  Op op = Op::idle;
  TraceKind kind = TraceKind::compute;
  Rank rank{};
  LaneId lane{};
  std::int32_t name = 0;    ///< index in TracedRun::names
  std::int32_t alike = -1;  ///< events with the same number do the same work; -1: unlike all others
  StageId stage = none<StageId>;
  std::int32_t microbatch = -1;
  TimePoint start;  ///< as traced, from the step's first event
  TimePoint end;

  Duration delay{};  ///< set by the recorder, like all members below
  Duration own{};
  TaskId task = none<TaskId>;
  /// on its lane before `task`, as long as `delay`; none: no delay
  TaskId delay_task = none<TaskId>;
  /// after it: the additional time of this member over the fastest; none: nothing
  TaskId rest_task = none<TaskId>;
};

/// The events between two synchronisations of all ranks: usually one optimizer step.
struct TracedStep {
  std::string name;
  std::int32_t iterations = 1;  ///< optimizer steps in it
  Schedule schedule;
  std::vector<TracedEvent> events;
  /// events of several ranks that are one communication
  std::vector<std::vector<std::int32_t>> meetings;
  /// from the first event's start to the last one's end
  Duration traced;
};

/// A rank of a traced run.
struct TracedRank {
  std::int32_t number = 0;    ///< its number in the trace
  std::string label;          ///< "rank 3"
  std::int32_t stage = -1;    ///< of its pipeline; -1: unknown
  std::int32_t replica = -1;  ///< data-parallel; -1: unknown
};

struct TracedRun {
  std::vector<TracedRank> ranks;
  std::vector<std::string> names;  ///< of events
  std::vector<TracedStep> steps;
  /// the parts of the trace that were not understood, a sentence each
  std::vector<std::string> notes;

  std::int32_t iterations() const {
    std::int32_t sum = 0;
    for (const TracedStep& step : steps) sum += step.iterations;
    return sum;
  }
  /// The sum over all steps.
  Duration traced() const {
    Duration sum;
    for (const TracedStep& step : steps) sum += step.traced;
    return sum;
  }
};

/// The times of events in a replay, in the order of TracedStep::events.
struct EventTimes {
  std::vector<Duration> own;
  std::vector<Duration> delay;

  static EventTimes of(const TracedStep& step) {
    EventTimes times;
    for (const TracedEvent& event : step.events) {
      times.own.push_back(event.own);
      times.delay.push_back(event.delay);
    }
    return times;
  }
};

/// The time of each task of the step's schedule. A communication takes the time that its fastest
/// member needs after the last one has arrived; the additional time of others follows on their
/// lanes.
inline std::vector<Duration> task_times(const TracedStep& step, const EventTimes& times) {
  std::vector<Duration> of_task(step.schedule.tasks().size());
  for (std::size_t e = 0; e < step.events.size(); ++e) {
    const TracedEvent& event = step.events[e];
    of_task[index(event.task)] = times.own[e];
    if (event.delay_task != none<TaskId>) of_task[index(event.delay_task)] = times.delay[e];
  }
  for (const auto& members : step.meetings) {
    Duration least = Duration::max();
    for (const std::int32_t e : members) least = std::min(least, times.own[static_cast<std::size_t>(e)]);
    for (const std::int32_t e : members) {
      const TracedEvent& event = step.events[static_cast<std::size_t>(e)];
      of_task[index(event.task)] = least;
      if (event.rest_task != none<TaskId>) of_task[index(event.rest_task)] = times.own[static_cast<std::size_t>(e)] - least;
    }
  }
  return of_task;
}

/// The step's timeline if its events take `times`. Deterministic. Complexity: O(tasks log tasks).
inline Timeline replay(const TracedStep& step, const EventTimes& times) {
  EngineGraph graph;
  detail::TaskKinds known{graph};
  std::vector<std::int32_t> kinds;
  kinds.reserve(step.schedule.tasks().size());
  for (const Duration time : task_times(step, times)) kinds.push_back(known.find({time.value(), 0, -1, 0}));
  return detail::EngineRun{graph, detail::LaneOrder{step.schedule, graph, std::move(kinds)}}.run();
}
/// The times as traced.
inline Timeline replay(const TracedStep& step) { return replay(step, EventTimes::of(step)); }

}  // namespace tawpipe
