// The discrete-event engine: a task graph of waits and flows, run in integer picoseconds.
// Not: what the tasks mean (simulate/simulate.hpp, simulate/task_graph.hpp), nor a schedule's order
// (simulate/lane_order.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/prefetch.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/simulate/event_queue.hpp"
#include "tawpipe/simulate/link_sharing.hpp"
#include "tawpipe/simulate/watch.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// A task as the engine sees it: after the last of its predecessors it waits `delay`, and then, if
/// it has a path, moves `bytes` as one flow over that path's loads.
struct EngineTask {
  std::int64_t delay = 0;  ///< picoseconds
  double bytes = 0;        ///< over each load of its path
  std::int32_t path = -1;  ///< as add_path() gave it; -1: no flow
  std::int32_t predecessors = 0;
};

/// A graph ready to run: fill `tasks`, `capacities` and the paths, then connect().
struct EngineGraph {
  std::vector<EngineTask> tasks;
  std::vector<std::uint32_t> successor_begin = {0};  ///< [task + 1]
  std::vector<std::int32_t> successors;
  std::vector<std::uint32_t> path_begin = {0};  ///< [path + 1]
  std::vector<LinkLoad> loads;                  ///< of the paths, one after another
  std::vector<double> capacities;               ///< [link] bytes a second
  /// The engine counts in picoseconds divided by two to this power. 0 spans 106 days; 10 keeps the
  /// error of coupled flows, whose rounding errors affect each other, a thousand times smaller, and
  /// spans two hours (finest_fraction_bits()).
  int fraction_bits = 0;

  std::int32_t add_path(std::span<const LinkLoad> path) {
    loads.insert(loads.end(), path.begin(), path.end());
    path_begin.push_back(static_cast<std::uint32_t>(loads.size()));
    return static_cast<std::int32_t>(path_begin.size() - 2);
  }
  std::span<const LinkLoad> path_loads(std::int32_t path) const {
    const auto p = static_cast<std::size_t>(path);
    return {loads.data() + path_begin[p], path_begin[p + 1] - path_begin[p]};
  }

  /// Sets the successors and counts the predecessors of all tasks.
  /// @param for_each_edge  called twice with a `visit(from, to)`, which it calls for each edge, the
  /// same edges both times
  template <class ForEachEdge>
  void connect(ForEachEdge&& for_each_edge) {
    // Counting sort; a row's end first counts its edges, then holds where the next edge goes, and
    // finally the next row's start.
    successor_begin.assign(tasks.size() + 2, 0);
    for_each_edge([&](std::size_t from, std::size_t to) {
      ++successor_begin[from + 2];
      ++tasks[to].predecessors;
    });
    for (std::size_t t = 2; t < successor_begin.size(); ++t) successor_begin[t] += successor_begin[t - 1];
    successors.resize(successor_begin.back());
    for_each_edge(
        [&](std::size_t from, std::size_t to) { successors[successor_begin[from + 1]++] = static_cast<std::int32_t>(to); });
    successor_begin.pop_back();
  }

  /// The largest number of fraction bits, up to 16, with which no run of this graph can overflow
  /// the range of time.
  /// Complexity: O(tasks + loads).
  int finest_fraction_bits() const {
    // While any task runs, a delay passes or a link is saturated, so a run takes no longer than all
    // of these one by one.
    std::vector<double> seconds_per_byte;
    for (std::size_t path = 0; path + 1 < path_begin.size(); ++path) {
      double sum = 0;
      for (const LinkLoad& load : path_loads(static_cast<std::int32_t>(path))) sum += load.weight / capacities[index(load.link)];
      seconds_per_byte.push_back(sum);
    }
    double longest = 0;
    for (const EngineTask& task : tasks) {
      longest += static_cast<double>(task.delay) + 1;
      if (task.path >= 0) longest += task.bytes * seconds_per_byte[static_cast<std::size_t>(task.path)] * 1e12;
    }
    int bits = 0;
    while (bits < 16 && longest * 2 < 4e18) {
      longest *= 2;
      ++bits;
    }
    return bits;
  }

  std::size_t memory_bytes() const {
    return tasks.capacity() * sizeof(EngineTask) + (successor_begin.capacity() + path_begin.capacity()) * sizeof(std::uint32_t) +
           successors.capacity() * sizeof(std::int32_t) + loads.capacity() * sizeof(LinkLoad) +
           capacities.capacity() * sizeof(double);
  }
};

namespace detail {

/// The start order for the graph's own dependencies: each task counts those that it still waits
/// for.
class SuccessorOrder {
 public:
  explicit SuccessorOrder(const EngineGraph& graph) : graph_{graph}, waits_for_(graph.tasks.size()) {
    for (std::size_t t = 0; t < waits_for_.size(); ++t) waits_for_[t] = graph.tasks[t].predecessors;
  }

  std::size_t tasks() const { return graph_.tasks.size(); }
  const EngineTask& task(std::int32_t task) const { return graph_.tasks[static_cast<std::size_t>(task)]; }
  std::int32_t kind(std::int32_t task) const { return task; }

  /// Calls `ready(task)` for each task that waits for none.
  template <class Ready>
  void begin(Ready&& ready) {
    for (std::size_t t = 0; t < waits_for_.size(); ++t) {
      if (graph_.tasks[t].predecessors == 0) ready(static_cast<std::int32_t>(t));
    }
  }
  /// Calls `ready(other)` for each that waited only for `task`, which has ended.
  template <class Ready>
  void end(std::int32_t task, Ready&& ready) {
    const auto t = static_cast<std::size_t>(task);
    for (auto i = graph_.successor_begin[t]; i < graph_.successor_begin[t + 1]; ++i) {
      const std::int32_t next = graph_.successors[i];
      if (--waits_for_[static_cast<std::size_t>(next)] == 0) ready(next);
    }
  }

 private:
  const EngineGraph& graph_;
  std::vector<std::int32_t> waits_for_;
};

/// Processors that nothing slows: delays take exactly their time.
struct OwnProcessors {
  static constexpr bool shared = false;
};

/// One run of tasks over a graph's paths and links. `Order` has the tasks and determines which may
/// start, as SuccessorOrder does; the order in which it names tasks that may start at the same time
/// does not matter. `Processors` says which delays are slowed, and when (simulate/held_sms.hpp).
template <class Order, class Processors = OwnProcessors>
class EngineRun {
 public:
  EngineRun(const EngineGraph& graph, Order order, Processors processors = {})
      : graph_{graph},
        order_{std::move(order)},
        processors_{std::move(processors)},
        sharing_{graph.capacities, graph.fraction_bits},
        times_{std::vector<TimePoint>(order_.tasks(), never), std::vector<TimePoint>(order_.tasks(), never)} {}

  Timeline run() {
    order_.begin([&](std::int32_t task) { start(task); });
    tell_successors();
    settle();
    while (!events_.empty()) {
      set_now(events_.top().time);
      while (!events_.empty() && events_.top().time == now_) {
        const std::int32_t id = events_.top().id;
        events_.pop();
        if (!events_.empty()) look_ahead(events_.top().id);
        if (id < 0) {
          arrive(static_cast<LinkSharing::FlowIndex>(~id));
        } else if (!is_slowed(id)) {
          after_delay(id);
        }
      }
      settle();
      sharing_.solve(now_, [&](LinkSharing::FlowIndex flow, std::int32_t, std::int64_t finish) { expect(flow, finish); });
      if (ended_ >= tell_at_) tell();
    }
    require_all_ended();
    return std::move(times_);
  }

 private:
  /// When a flow will end at current rates, and its valid event. A flow that slows down keeps its
  /// event and gets a later one when that fires; one that becomes faster gets a new one, and the
  /// old one is void.
  struct Arrival {
    std::int64_t finish = -1;
    std::int64_t event = -1;  ///< -1: none
  };

  static constexpr TimePoint never{Duration{-1}};

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  void set_now(std::int64_t now) {
    now_ = now;
    now_point_ = TimePoint{Duration{(now + ((std::int64_t{1} << graph_.fraction_bits) >> 1)) >> graph_.fraction_bits}};
  }

  /// Loads what the end of a task of the next event needs.
  void look_ahead(std::int32_t id) const {
    if constexpr (requires { order_.look_ahead(id); }) {
      order_.look_ahead(id < 0 ? sharing_.task(static_cast<LinkSharing::FlowIndex>(~id)) : id);
    }
  }

  void start(std::int32_t task) {
    const EngineTask& started = order_.task(task);
    times_.start[at(task)] = now_point_;
    prefetch(&times_.end[at(task)]);
    if constexpr (Processors::shared) {
      const std::int32_t kind = order_.kind(task);
      processors_.start(task, kind);
      if (started.delay > 0 && processors_.computes(task, kind)) {
        processors_.compute(task, kind, after(started.delay) - now_, now_);
        return;
      }
    }
    if (started.delay == 0 && started.path < 0) {
      end(task);
    } else {
      events_.push({after(started.delay), task});
    }
  }

  /// Sets the speeds of computations on shared processors from now on.
  void settle() {
    if constexpr (Processors::shared) {
      processors_.settle(now_, [&](std::int32_t task, std::int64_t finish) { events_.push({finish, task}); });
    }
  }
  /// Whether the task's event is void because it is still running.
  bool is_slowed(std::int32_t task) {
    if constexpr (Processors::shared) {
      return processors_.goes_on(task, order_.kind(task), now_, [&](std::int64_t finish) { events_.push({finish, task}); });
    } else {
      return false;
    }
  }

  /// The time `delay` picoseconds from now, in the graph's fractions. @throws InputError  if that
  /// overflows.
  std::int64_t after(std::int64_t delay) const {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    if (delay >= (most - now_) >> graph_.fraction_bits) {
      throw InputError("the run takes longer than the 106 days that a time can hold; give shorter times or fewer microbatches");
    }
    return now_ + (delay << graph_.fraction_bits);
  }

  void end(std::int32_t task) {
    times_.end[at(task)] = now_point_;
    if constexpr (Processors::shared) processors_.end(task, order_.kind(task));
    ended_now_.push_back(task);
  }

  void after_delay(std::int32_t task) {
    const EngineTask& delayed = order_.task(task);
    if (delayed.path >= 0 && delayed.bytes > 0) {
      sharing_.start(task, delayed.bytes, graph_.path_loads(delayed.path), now_);
    } else {
      end(task);
      tell_successors();
    }
  }

  void expect(LinkSharing::FlowIndex flow, std::int64_t finish) {
    if (at(flow) >= arrivals_.size()) arrivals_.resize(at(flow) + 1);
    Arrival& arrival = arrivals_[at(flow)];
    arrival.finish = finish;
    if (arrival.event >= 0 && arrival.event <= finish) return;
    arrival.event = finish;
    events_.push({finish, ~flow});
  }

  void arrive(LinkSharing::FlowIndex flow) {
    Arrival& arrival = arrivals_[at(flow)];
    if (arrival.event != now_) return;  // void
    if (arrival.finish > now_) {        // it has slowed down
      arrival.event = arrival.finish;
      events_.push(EventQueue::Event{arrival.finish, ~flow});
      return;
    }
    arrival.event = -1;
    const std::int32_t task = sharing_.task(flow);
    sharing_.finish(flow);
    end(task);
    tell_successors();
  }

  /// Without recursion: a chain of tasks of zero length may be long.
  void tell_successors() {
    while (!ended_now_.empty()) {
      const std::int32_t ended = ended_now_.back();
      ended_now_.pop_back();
      ++ended_;
      order_.end(ended, [&](std::int32_t task) { start(task); });
    }
  }

  void tell() {
    tell_at_ = ended_ + std::max<std::size_t>(1, order_.tasks() / 100);
    check_stop();
    if (told_ != nullptr) (*told_)(ended_, order_.tasks());
  }

  void require_all_ended() const {
    const std::size_t count = order_.tasks();
    if (ended_ == count) return;
    if constexpr (Processors::shared) processors_.require_none_stopped();
    std::size_t stuck = 0;
    while (times_.end[stuck] != never) ++stuck;
    throw ScheduleError(
        concat(count - ended_, " of ", count, " tasks wait for each other and never start; the first is task ", stuck));
  }

  const EngineGraph& graph_;
  Order order_;
  [[no_unique_address]] Processors processors_;
  LinkSharing sharing_;
  EventQueue events_;
  std::vector<Arrival> arrivals_;        ///< [flow]
  std::vector<std::int32_t> ended_now_;  ///< a stack: tasks whose successors are not yet notified
  Timeline times_;
  const SimulationProgress* told_ = told_progress;
  std::size_t tell_at_ = 0;
  std::size_t ended_ = 0;
  std::int64_t now_ = 0;  ///< in the graph's fractions of a picosecond
  TimePoint now_point_;   ///< rounded to the nearest picosecond
};

}  // namespace detail

/// Runs a graph. Equal times are ordered by task number, so the same graph gives the same times on
/// every machine and with every compiler (that does not fuse multiplications and additions:
/// -ffp-contract=off).
///
/// Complexity: O(tasks log tasks) plus, for each start or end of a flow, the links whose flows
/// change their rates.
/// @throws ScheduleError  if some tasks wait for each other and never start; the message names one.
/// @throws InputError  if a flow would last longer than the range of time.
TAWPIPE_INLINE Timeline run_engine(const EngineGraph& graph);

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE Timeline run_engine(const EngineGraph& graph) {
  return detail::EngineRun{graph, detail::SuccessorOrder{graph}}.run();
}

}  // namespace tawpipe
#endif
