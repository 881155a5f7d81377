// Local search over the task graph of a schedule: orders of transfers, added waits, places of
// ranks.
// Not: the search for a layout (search/plan.hpp) nor for a pipeline's order
// (schedules/order_search.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/analysis/critical_path.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/search/detail/movable_schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// A change that was kept.
struct ImproveStep {
  std::string what;
  std::int64_t count = 1;  ///< number of such changes in a row
  Duration makespan;       ///< with the change
};

/// The progress of the search, for a display.
struct ImproveProgress {
  std::int64_t timed = 0;  ///< tasks, of the budget
  std::int64_t tried = 0;  ///< changes
  Duration before, now;    ///< makespans
};

/// The best schedule found, and its steps.
struct Improvement {
  Schedule schedule;
  Timeline timeline;
  Duration before;                 ///< the makespan of the start
  std::vector<ImproveStep> steps;  ///< in order
  std::int64_t tried = 0;          ///< changes that were timed
  /// no single change tried is better; otherwise the budget or the caller ended it
  bool finished = false;

  /// The reduction of the makespan, as a fraction of the original.
  double gain() const { return before == Duration{} ? 0 : 1 - to_seconds(timeline.makespan()) / to_seconds(before); }
};

struct ImproveOptions {
  /// [rank] the same number for indistinguishable ranks; none: no exchanges
  std::vector<int> places = {};
  std::int64_t budget = 50'000'000;  ///< tasks that are timed
};

namespace detail {

template <class Time, class Accepts, class GoesOn>
class ImproveSearch {
 public:
  ImproveSearch(const Schedule& start, const ImproveOptions& options, Time& time, Accepts& accepts, GoesOn& goes_on)
      : options_{options},
        time_{time},
        accepts_{accepts},
        goes_on_{goes_on},
        now_{start},
        found_{start, time(start), {}, {}, 0, false},
        score_{score(found_.timeline)} {
    found_.before = found_.timeline.makespan();
  }

  Improvement run() {
    swap_ranks();
    while (change_alike() || change_one()) {
    }
    found_.finished = !ended_;
    return std::move(found_);
  }

 private:
  /// Makespan first; ties: the one whose tasks end earlier.
  using Score = std::pair<Duration, std::uint64_t>;
  static Score score(const Timeline& timeline) {
    std::uint64_t sum = 0;
    for (const TimePoint end : timeline.end) sum += static_cast<std::uint64_t>(end.since_start().value()) >> 12;
    return {timeline.makespan(), sum};
  }

  /// Tasks of one kind.
  using Kind = std::tuple<Op, Payload, int>;
  static Kind kind_of(const Task& task) { return {task.op, task.payload, number(task.lane)}; }
  static std::string text(const Kind& kind) {
    const auto [op, payload, lane] = kind;
    return payload == Payload::nothing ? std::string{name(op)} : concat(name(op), " of ", name(payload));
  }

  bool over() {
    if (ended_) return true;
    ended_ =
        timed_ >= options_.budget || !goes_on_(ImproveProgress{timed_, found_.tried, found_.before, found_.timeline.makespan()});
    return ended_;
  }

  /// Takes `changed` if it is better, and valid.
  bool take(MovableSchedule changed, const std::string& what) {
    Schedule schedule = changed.build();
    Timeline timeline = time_(schedule);
    ++found_.tried;
    timed_ += static_cast<std::int64_t>(changed.size());
    const Score next = score(timeline);
    if (next >= score_ || !accepts_(schedule, timeline)) return false;
    score_ = next;
    now_ = std::move(changed);
    found_.schedule = std::move(schedule);
    found_.timeline = std::move(timeline);
    if (found_.steps.empty() || found_.steps.back().what != what) found_.steps.push_back({what, 0, {}});
    ++found_.steps.back().count;
    found_.steps.back().makespan = next.first;
    return true;
  }

  void swap_ranks() {
    if (!found_.schedule.parts().mesh.is_plain()) return;
    const auto ranks = std::min<std::size_t>(options_.places.size(), static_cast<std::size_t>(found_.schedule.ranks()));
    for (std::size_t a = 0; a < ranks; ++a) {
      for (std::size_t b = a + 1; b < ranks; ++b) {
        if (options_.places[a] == options_.places[b]) continue;
        if (over()) return;
        MovableSchedule changed = now_;
        changed.swap_ranks(id<Rank>(a), id<Rank>(b));
        take(std::move(changed), "two ranks' parts exchanged");
      }
    }
  }

  /// Calls `visit(first, second)` for tasks of different kinds that are next to each other on a
  /// lane.
  template <class Visit>
  void for_each_neighbours(Visit&& visit) const {
    const Rows<TaskId>& program = found_.schedule.parts().program;
    for (std::size_t row = 0; row < program.size(); ++row) {
      for (std::size_t i = 1; i < program[row].size(); ++i) visit(program[row][i - 1], program[row][i]);
    }
  }

  /// Calls `visit(first, second)` for communications of one rank that run at once, the earlier one
  /// first.
  template <class Visit>
  void for_each_overlap(Visit&& visit) const {
    const Schedule& schedule = found_.schedule;
    const Timeline& timeline = found_.timeline;
    std::vector<TaskId> mine;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      mine.clear();
      for (int lane = 1; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
        const auto program = schedule.program(Rank{rank}, lane);
        mine.insert(mine.end(), program.begin(), program.end());
      }
      std::sort(mine.begin(), mine.end(), [&](TaskId a, TaskId b) {
        return std::pair{timeline.start_of(a), a} < std::pair{timeline.start_of(b), b};
      });
      for (std::size_t i = 0; i < mine.size(); ++i) {
        for (std::size_t j = i + 1; j < mine.size() && timeline.start_of(mine[j]) < timeline.end_of(mine[i]); ++j) {
          visit(mine[i], mine[j]);
        }
      }
    }
  }

  /// All adjacent tasks of two kinds are swapped, or all communications of a kind wait for those of
  /// another that run at once.
  bool change_alike() {
    bool better = false;
    for (bool again = true; again && !over();) {
      again = false;
      std::set<std::pair<Kind, Kind>> neighbours, overlaps;
      const auto note = [&](auto& kinds) {
        return [&](TaskId a, TaskId b) {
          const Kind first = kind_of(found_.schedule.task(a)), second = kind_of(found_.schedule.task(b));
          if (first != second) kinds.insert({first, second});
        };
      };
      for_each_neighbours(note(neighbours));
      for_each_overlap(note(overlaps));
      for (const auto& kinds : neighbours) {
        if (over()) return better;
        again = take_all(kinds, false, concat("each ", text(kinds.second), " before the ", text(kinds.first), " ahead of it")) ||
                again;
      }
      for (const auto& kinds : overlaps) {
        for (const auto& [one, other] : {kinds, std::pair{kinds.second, kinds.first}}) {
          if (over()) return better;
          again = take_all({one, other}, true, concat("each ", text(other), " after the concurrent ", text(one))) || again;
        }
      }
      better = better || again;
    }
    return better;
  }

  bool take_all(const std::pair<Kind, Kind>& kinds, bool waits, const std::string& what) {
    MovableSchedule changed = now_;
    bool any = false;
    const auto is = [&](TaskId task, const Kind& kind) { return kind_of(found_.schedule.task(task)) == kind; };
    if (waits) {
      for_each_overlap([&](TaskId a, TaskId b) {
        if (is(a, kinds.first) && is(b, kinds.second)) any = changed.wait(now_.at(b), now_.at(a)) || any;
        if (is(b, kinds.first) && is(a, kinds.second)) any = changed.wait(now_.at(a), now_.at(b)) || any;
      });
    } else {
      for_each_neighbours([&](TaskId a, TaskId b) {
        if (is(a, kinds.first) && is(b, kinds.second)) any = changed.hoist(now_.at(b), now_.at(a)) || any;
      });
    }
    return any && take(std::move(changed), what);
  }

  /// When `task` could start without `ahead`, which precedes it on a lane.
  TimePoint start_without(TaskId task, TaskId ahead) const {
    TimePoint latest;
    const auto after = [&](TaskId other) {
      if (other != ahead) latest = std::max(latest, found_.timeline.end_of(other));
    };
    for (const TaskId need : found_.schedule.dependencies(task)) after(need);
    for_each_end(found_.schedule, task, [&](Rank rank, int lane) {
      const auto program = found_.schedule.program(rank, lane);
      const auto at = std::lower_bound(program.begin(), program.end(), task);
      if (at != program.begin()) after(*(at - 1));
    });
    return latest;
  }
  bool keeps_waiting(TaskId ahead, TaskId task) const {
    return found_.timeline.start_of(task) == found_.timeline.end_of(ahead) &&
           start_without(task, ahead) < found_.timeline.start_of(task);
  }

  /// Changes on the critical path: a task delayed by its lane goes first, either for all of these
  /// two kinds or for it only; a communication that overlaps one on the path waits for it.
  bool change_one() {
    bool better = false;
    for (bool again = true; again && !over();) {
      again = false;
      const std::vector<TaskId> path = critical_path(found_.schedule, found_.timeline).tasks;
      std::vector<char> critical(found_.schedule.tasks().size(), 0);
      for (const TaskId task : path) critical[index(task)] = 1;
      std::vector<std::pair<Kind, Kind>> known;
      for (std::size_t i = 1; i < path.size() && !again && !over(); ++i) {
        if (!keeps_waiting(path[i - 1], path[i])) continue;
        const std::pair kinds{kind_of(found_.schedule.task(path[i - 1])), kind_of(found_.schedule.task(path[i]))};
        if (std::find(known.begin(), known.end(), kinds) == known.end()) {
          known.push_back(kinds);
          again = take_waiting(kinds);
          if (again || over()) break;
        }
        MovableSchedule changed = now_;
        if (changed.hoist(now_.at(path[i]), now_.at(path[i - 1])))
          again = take(std::move(changed), "a task before one that kept it waiting");
      }
      if (!again) again = delay_one(critical);
      better = better || again;
    }
    return better;
  }

  /// Each task delayed by a neighbour of these kinds goes before it.
  bool take_waiting(const std::pair<Kind, Kind>& kinds) {
    MovableSchedule changed = now_;
    int count = 0;
    for_each_neighbours([&](TaskId a, TaskId b) {
      if (kind_of(found_.schedule.task(a)) != kinds.first || kind_of(found_.schedule.task(b)) != kinds.second) return;
      if (keeps_waiting(a, b) && changed.hoist(now_.at(b), now_.at(a))) ++count;
    });
    return count > 1 && take(std::move(changed),
                             concat("each ", text(kinds.second), " that a ", text(kinds.first), " kept waiting before it"));
  }

  bool delay_one(const std::vector<char>& critical) {
    std::vector<std::pair<TaskId, TaskId>> pairs;  // on the path, overlapping it
    for_each_overlap([&](TaskId a, TaskId b) {
      if (critical[index(a)] != 0 && critical[index(b)] == 0) pairs.push_back({a, b});
      if (critical[index(b)] != 0 && critical[index(a)] == 0) pairs.push_back({b, a});
    });
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    for (const auto& [first, second] : pairs) {
      if (over()) return false;
      MovableSchedule changed = now_;
      if (!changed.wait(now_.at(second), now_.at(first))) continue;
      if (take(std::move(changed), "a communication after a concurrent one that all wait for")) return true;
    }
    return false;
  }

  const ImproveOptions& options_;
  Time& time_;
  Accepts& accepts_;
  GoesOn& goes_on_;
  MovableSchedule now_;
  Improvement found_;
  Score score_;
  std::int64_t timed_ = 0;
  bool ended_ = false;
};

}  // namespace detail

/// A faster schedule of the same work, by changes to the task graph of `start`: two ranks exchange
/// their work; tasks are swapped on their lanes; a communication waits for another. First all pairs
/// of two kinds at once, then single tasks on the critical path, each kept if the makespan falls
/// (or stays, and tasks end earlier) and `accepts` agrees. Deterministic.
/// @param time     `time(schedule)`: its Timeline
/// @param accepts  `accepts(schedule, timeline)`: whether it is acceptable: valid, and within the
/// devices' memory
/// @param goes_on  `goes_on(ImproveProgress)` before each change; false ends the search with the
/// best so far
/// Complexity: by the budget, and O(tasks) for each change.
///
/// Example:
/// ```cpp
/// const tawpipe::Improvement found = tawpipe::improve(
///     schedule, {}, [&](const Schedule& one) { return simulate(one, cluster, cost); },
///     [](const Schedule& one, const Timeline&) { return validate(one).ok(); }, [](const auto&) { return true; });
/// ```
template <class Time, class Accepts, class GoesOn>
Improvement improve(const Schedule& start, const ImproveOptions& options, Time&& time, Accepts&& accepts, GoesOn&& goes_on) {
  return detail::ImproveSearch<Time, Accepts, GoesOn>{start, options, time, accepts, goes_on}.run();
}

}  // namespace tawpipe
