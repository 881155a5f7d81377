// Computations slowed by SMs that overlapping communications hold, exact to fractions of a tick.
// Not: how many SMs are held (cost/held_sms.hpp), nor the engine's other half, links
// (simulate/link_sharing.hpp).
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
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/schedule/arrivals.hpp"
#include "tawpipe/simulate/engine.hpp"
#include "tawpipe/simulate/lane_order.hpp"

namespace tawpipe::inline v0 {

/// The devices whose SMs an engine's tasks share.
struct EngineDevices {
  std::vector<SpeedTable> tables;
  std::vector<std::int32_t> table_of;  ///< [device]
};

/// The SMs that tasks of an engine's graph hold, and which tasks' delays are computations on
/// devices: a hold begins with a task of its own, and another's end releases it.
struct EngineHolds : EngineDevices {
  /// SMs of a device, held from the start of one task to the end of another.
  struct Hold {
    std::int32_t device;
    std::int32_t sms;
  };
  /// [task] where its delay is a computation with a speed; -1: none
  std::vector<std::int32_t> device_of;
  /// hold h begins when task device_of.size() + h starts
  std::vector<Hold> holds;
  /// [task of device_of + 1] the holds that its end releases
  std::vector<std::uint32_t> hold_begin;
  bool waiting = true;  ///< off: the holds of a task of device_of begin when that starts

  std::int32_t device(std::int32_t task, std::int32_t) const {
    return index(task) < device_of.size() ? device_of[index(task)] : -1;
  }
  /// Calls `hold(device, sms)` for what starts being held with the task.
  template <class Visit>
  void start(std::int32_t task, std::int32_t, Visit&& hold) const {
    if (index(task) < device_of.size()) {
      if (!waiting) end(task, 0, hold);
    } else if (waiting) {
      const Hold& begun = holds[index(task) - device_of.size()];
      hold(begun.device, begun.sms);
    }
  }
  /// Calls `release(device, sms)` for what is held until the task's end.
  template <class Visit>
  void end(std::int32_t task, std::int32_t, Visit&& release) const {
    if (index(task) >= device_of.size()) return;
    for (auto h = hold_begin[index(task)]; h < hold_begin[index(task) + 1]; ++h) release(holds[h].device, holds[h].sms);
  }

 private:
  static std::size_t index(std::int32_t task) { return static_cast<std::size_t>(task); }
};

namespace detail {

/// The same of a schedule's tasks by their kinds, for holds that last as long as their task.
struct KindHolds : EngineDevices {
  const Schedule* schedule;
  std::vector<TaskHold> holds;  ///< [kind]

  std::int32_t device(std::int32_t, std::int32_t kind) const {
    const TaskHold& hold = holds[static_cast<std::size_t>(kind)];
    return hold.computes ? hold.rank : -1;
  }
  template <class Visit>
  void start(std::int32_t task, std::int32_t kind, Visit&& hold) const {
    const TaskHold& held = holds[static_cast<std::size_t>(kind)];
    if (held.sms == 0) return;
    if (held.rank < 0) {
      for (const Rank rank : schedule->group(schedule->task(TaskId{task}).group)) hold(number(rank), held.sms);
      return;
    }
    hold(held.rank, held.sms);
    if (held.peer >= 0) hold(held.peer, held.sms);
  }
  template <class Visit>
  void end(std::int32_t task, std::int32_t kind, Visit&& release) const {
    start(task, kind, release);
  }
};

/// Computations on devices whose SMs are shared: their progress, and when they will end at current
/// speeds. Models the Processors of an EngineRun.
///
/// The work left of a computation is kept in ticks at full speed and fractions of a tick, so that a
/// change of speed rounds nothing: it ends at the first tick with no work left.
template <class Holds>
class SharedProcessors {
 public:
  static constexpr bool shared = true;

  explicit SharedProcessors(Holds holds)
      : holds_{std::move(holds)}, held_(holds_.table_of.size(), 0), running_(held_.size()), changed_(held_.size(), false) {}

  bool computes(std::int32_t task, std::int32_t kind) const { return holds_.device(task, kind) >= 0; }

  void start(std::int32_t task, std::int32_t kind) {
    holds_.start(task, kind, [&](std::int32_t device, std::int32_t sms) { hold(device, sms); });
  }
  void end(std::int32_t task, std::int32_t kind) {
    holds_.end(task, kind, [&](std::int32_t device, std::int32_t sms) { hold(device, -sms); });
  }
  /// @param work  ticks at full speed, above 0
  void compute(std::int32_t task, std::int32_t kind, std::int64_t work, std::int64_t now) {
    const std::int32_t device = holds_.device(task, kind);
    running_[at(device)].push_back({.task = task, .left = work, .updated = now});
    change(device);
  }

  /// Sets the speed of each computation on a changed device from `now` on: calls
  /// `expect(task, finish)` if that needs a new event. @throws InputError  if a computation would
  /// last longer than the range of time.
  template <class Expect>
  void settle(std::int64_t now, Expect&& expect) {
    for (const std::int32_t device : changes_) {
      changed_[at(device)] = false;
      const SpeedTable& table = holds_.tables[at(holds_.table_of[at(device)])];
      const std::int64_t speed = table.at(held_[at(device)]);
      for (Running& running : running_[at(device)]) {
        if (running.speed == speed) continue;
        advance(running, now, table.whole);
        running.speed = speed;
        running.finish = finish_of(running, table.whole);
        if (running.finish < 0 || (running.event >= 0 && running.event <= running.finish)) continue;
        running.event = running.finish;
        expect(running.task, running.finish);
      }
    }
    changes_.clear();
  }

  /// Whether the event of a task is void: the task has slowed down since, and `again(finish)` is
  /// its next event, or it has ended. Otherwise the computation ends now.
  template <class Again>
  bool goes_on(std::int32_t task, std::int32_t kind, std::int64_t now, Again&& again) {
    const std::int32_t device = holds_.device(task, kind);
    if (device < 0) return false;
    auto& all = running_[at(device)];
    const auto found = std::find_if(all.begin(), all.end(), [&](const Running& running) { return running.task == task; });
    if (found == all.end() || found->event != now) return true;
    if (found->finish != now) {
      found->event = found->finish;
      if (found->finish >= 0) again(found->finish);
      return true;
    }
    all.erase(found);
    return false;
  }

  /// @throws ScheduleError  if a computation cannot proceed because others hold all SMs.
  void require_none_stopped() const {
    for (std::size_t device = 0; device < running_.size(); ++device) {
      for (const Running& running : running_[device]) {
        if (running.speed != 0) continue;
        throw ScheduleError(concat("communications that wait hold ", held_[device], " SMs of rank ", device,
                                   ", which are all that it has, so task ", running.task,
                                   " never ends and the iteration hangs; give communications fewer CTAs"));
      }
    }
  }

 private:
  struct Running {
    std::int32_t task = -1;
    std::int64_t left = 0;        ///< ticks at full speed, at `updated`
    std::int64_t left_parts = 0;  ///< and fractions of one
    std::int64_t updated = 0;
    std::int64_t speed = -1;   ///< as a fraction of full speed
    std::int64_t finish = -1;  ///< at the current speed; -1: never
    std::int64_t event = -1;   ///< its valid one; -1: none
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  void hold(std::int32_t device, std::int32_t sms) {
    held_[at(device)] += sms;
    change(device);
  }

  void change(std::int32_t device) {
    if (changed_[at(device)]) return;
    changed_[at(device)] = true;
    changes_.push_back(device);
  }

  /// Subtracts the work done since `updated`: exact, and without a product that could overflow.
  static void advance(Running& running, std::int64_t now, std::int64_t whole) {
    const std::int64_t passed = now - running.updated;
    running.updated = now;
    if (running.speed <= 0 || passed == 0) return;
    const std::int64_t rest = passed % whole * running.speed;
    running.left -= passed / whole * running.speed + rest / whole;
    running.left_parts -= rest % whole;
    if (running.left_parts < 0) {
      running.left_parts += whole;
      --running.left;
    }
  }
  static std::int64_t finish_of(const Running& running, std::int64_t whole) {
    if (running.speed == 0) return -1;
    const std::int64_t turns = running.left / running.speed;
    if (turns >= (std::numeric_limits<std::int64_t>::max() - running.updated) / whole - 2) {
      throw InputError(concat("the computation of task ", running.task,
                              " would take too long with so many held SMs: ", "a simulation may span 106 days"));
    }
    const std::int64_t rest = running.left % running.speed * whole + running.left_parts;
    return running.updated + turns * whole + (rest + running.speed - 1) / running.speed;
  }

  Holds holds_;
  std::vector<std::int64_t> held_;             ///< [device] SMs
  std::vector<std::vector<Running>> running_;  ///< [device]
  std::vector<bool> changed_;                  ///< [device] is in changes_
  std::vector<std::int32_t> changes_;          ///< since the last settle()
};

/// Visits each edge of dependencies and program order.
template <class Visit>
void for_each_edge(const Schedule& schedule, Visit&& visit) {
  const std::size_t count = schedule.tasks().size();
  for (std::size_t t = 0; t < count; ++t) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) visit(index(earlier), t);
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      const auto program = schedule.program(Rank{rank}, lane);
      for (std::size_t i = 1; i < program.size(); ++i) visit(index(program[i - 1]), index(program[i]));
    }
  }
}

/// The timeline of a schedule whose communications hold SMs.
/// @param calls  communications of a rank start in this order; empty: as their lanes allow
/// @param graph  whose tasks are the distinct kinds of task
/// @param kinds, ends  as for LaneOrder
/// @param task_holds   [kind]
TAWPIPE_INLINE Timeline simulate_holding(const Schedule& schedule, const Cluster& cluster, const HeldSms& held, EngineGraph graph,
                                         std::vector<std::int32_t> kinds, std::vector<LaneEnds> ends,
                                         std::vector<TaskHold> task_holds, std::span<const TaskId> calls);

}  // namespace detail

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0::detail {

inline EngineDevices devices_that_hold(const Schedule& schedule, const Cluster& cluster, const HeldSms& held) {
  EngineDevices devices;
  std::vector<int> sizes;  // of tables
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const int sms = held.sms_of(cluster.device(Rank{rank}));
    const auto known = std::find(sizes.begin(), sizes.end(), sms);
    devices.table_of.push_back(static_cast<std::int32_t>(known - sizes.begin()));
    if (known != sizes.end()) continue;
    sizes.push_back(sms);
    devices.tables.push_back(held.table(sms));
  }
  return devices;
}

TAWPIPE_INLINE Timeline simulate_holding(const Schedule& schedule, const Cluster& cluster, const HeldSms& held, EngineGraph graph,
                                         std::vector<std::int32_t> kinds, std::vector<LaneEnds> ends,
                                         std::vector<TaskHold> task_holds, std::span<const TaskId> calls) {
  EngineDevices devices = devices_that_hold(schedule, cluster, held);
  if (!held.waiting && calls.empty()) {
    KindHolds holds{std::move(devices), &schedule, std::move(task_holds)};
    return EngineRun{graph, LaneOrder{schedule, graph, std::move(kinds), std::move(ends)}, SharedProcessors{std::move(holds)}}
        .run();
  }
  // Each arrival is a task too.
  const std::size_t count = kinds.size();
  const auto hold_of = [&](std::size_t t) -> const TaskHold& { return task_holds[static_cast<std::size_t>(kinds[t])]; };
  const Arrivals arrivals = HeldCtas{held, schedule, cluster}.arrivals(!calls.empty());
  EngineHolds holds{std::move(devices), {}, {}, {}, held.waiting};
  for (std::size_t t = 0; t < count; ++t) {
    holds.device_of.push_back(hold_of(t).computes ? hold_of(t).rank : -1);
    holds.hold_begin.push_back(static_cast<std::uint32_t>(arrivals.begin(id<TaskId>(t))));
    for (auto a = arrivals.begin(id<TaskId>(t)); a < arrivals.end(id<TaskId>(t)); ++a) {
      holds.holds.push_back({number(arrivals.rank(a)), hold_of(t).sms});
    }
  }
  holds.hold_begin.push_back(static_cast<std::uint32_t>(arrivals.size()));
  std::vector<EngineTask> tasks;
  tasks.reserve(count + arrivals.size());
  for (const std::int32_t kind : kinds) tasks.push_back(graph.tasks[static_cast<std::size_t>(kind)]);
  tasks.resize(count + arrivals.size());
  graph.tasks = std::move(tasks);
  graph.connect([&](auto&& visit) {
    for_each_edge(schedule, [&](std::size_t from, std::size_t to) {
      if (arrivals.begin(id<TaskId>(to)) == arrivals.end(id<TaskId>(to))) visit(from, to);
    });
    arrivals.for_each_predecessor([&](TaskId from, std::size_t arrival) { visit(index(from), count + arrival); });
    arrivals.for_each_launch(calls, [&](std::size_t from, std::size_t arrival) { visit(count + from, count + arrival); });
    for (std::size_t t = 0; t < count; ++t) {
      for (auto a = arrivals.begin(id<TaskId>(t)); a < arrivals.end(id<TaskId>(t)); ++a) visit(count + a, t);
    }
  });
  Timeline timeline = EngineRun{graph, SuccessorOrder{graph}, SharedProcessors{std::move(holds)}}.run();
  timeline.start.resize(count);
  timeline.end.resize(count);
  return timeline;
}

}  // namespace tawpipe::detail
#endif
