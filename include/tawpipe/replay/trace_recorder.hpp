// Turns events of a trace with their dependencies into a step that can be replayed.
// Not: the source of events and waits (straggler_csv.hpp, report/kineto_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/replay/traced_run.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

/// Collects the events of one step. Those of one lane of a rank wait for each other in the order of
/// their starts.
///
/// An event's delay is the time from the end of its last dependency to its start: the host, or
/// causes that the trace does not show. A communication of several members starts for all when its
/// last member starts; the time of each from then on is its own time, and its earlier waiting
/// counts for none. A wait that the trace contradicts, because the earlier event ended after the
/// later one started, is left out and counted.
class TraceRecorder {
 public:
  /// @param stages  number of stages that events name; at least 1
  TraceRecorder(int ranks, int stages, std::int64_t microbatches)
      : ranks_{ranks}, builder_{"trace", Workload::abstract(ranks, std::max<std::int64_t>(microbatches, 1)), ranks, {"compute"}} {
    builder_.stages(std::vector<StageWork>(static_cast<std::size_t>(std::max(stages, 1))));
  }

  /// The lane of that name; the first, "compute", exists from the start. @throws ScheduleError
  /// beyond 256 lanes.
  LaneId lane(std::string_view name) {
    const LaneId lane = builder_.lane(name);
    lanes_ = std::max(lanes_, index(lane) + 1);
    return lane;
  }

  /// @pre event.start <= event.end; a collective's events are on one lane
  /// @return its index, for wait() and meet()
  std::int32_t add(TracedEvent event) {
    events_.push_back(std::move(event));
    waits_.emplace_back();
    meeting_.push_back(-1);
    return static_cast<std::int32_t>(events_.size() - 1);
  }
  std::size_t size() const { return events_.size(); }
  const TracedEvent& event(std::int32_t event) const { return events_[at(event)]; }
  void wait(std::int32_t event, std::int32_t earlier) {
    if (earlier >= 0 && earlier != event) waits_[at(event)].push_back(earlier);
  }
  /// Declares that these events, each of another rank, are one communication. For a message: the
  /// sender's, then the receiver's; if it left before its receiver asked for it, nothing waited for
  /// the receiver, so the receiver depends on it as on any other event.
  void meet(std::vector<std::int32_t> members, Bytes bytes) {
    if (members.size() == 2 && event(members[0]).op == Op::pass && event(members[0]).end + tolerance < event(members[1]).start) {
      wait(members[1], members[0]);
      return;
    }
    for (const std::int32_t e : members) meeting_[at(e)] = static_cast<std::int32_t>(meetings_.size());
    meetings_.push_back(std::move(members));
    bytes_.push_back(bytes);
  }

  /// The number of waits that the trace contradicts; after build().
  std::size_t contradicted() const { return contradicted_; }
  /// The longest time, over all collectives, by which a member ended before the last member
  /// started; after build(). Large if the ranks' clocks are not aligned.
  Duration early_end() const { return early_end_; }

  /// The recorder is empty afterwards. Complexity: O(n log n) in events and waits.
  TracedStep build(std::string name, std::int32_t iterations = 1) {
    last_end_.assign(static_cast<std::size_t>(ranks_) * lanes_, TimePoint{});
    ended_.assign(events_.size(), TimePoint{});
    last_task_.assign(events_.size(), none<TaskId>);
    TimePoint last;
    for (const TracedEvent& event : events_) last = std::max(last, event.end);
    for (const std::int32_t first : order()) {
      const std::int32_t meeting = meeting_[at(first)];
      if (meeting < 0) {
        place({first}, Bytes{});
      } else {
        place(meetings_[at(meeting)], bytes_[at(meeting)]);
      }
    }
    return {std::move(name), iterations, builder_.build(), std::move(events_), std::move(meetings_), last.since_start()};
  }

 private:
  static std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

  /// One event of each communication or other event, in the order of their starts: a communication
  /// starts when its last member does.
  std::vector<std::int32_t> order() const {
    std::vector<std::int32_t> firsts;
    std::vector<TimePoint> start(events_.size());
    std::vector<TimePoint> end(events_.size());
    for (std::size_t e = 0; e < events_.size(); ++e) {
      start[e] = events_[e].start;
      end[e] = events_[e].end;
      if (meeting_[e] < 0) firsts.push_back(static_cast<std::int32_t>(e));
    }
    for (const auto& members : meetings_) {
      const std::size_t first = at(members.front());
      for (const std::int32_t e : members) {
        start[first] = std::max(start[first], events_[at(e)].start);
        end[first] = std::max(end[first], events_[at(e)].end);
      }
      firsts.push_back(members.front());
    }
    std::sort(firsts.begin(), firsts.end(), [&](std::int32_t a, std::int32_t b) {
      if (start[at(a)] != start[at(b)]) return start[at(a)] < start[at(b)];
      if (end[at(a)] != end[at(b)]) return end[at(a)] < end[at(b)];
      return a < b;
    });
    return firsts;
  }

  TimePoint& last_end(const TracedEvent& event) { return last_end_[index(event.rank) * lanes_ + index(event.lane)]; }

  /// Finds delays and own times of the members and adds their tasks.
  void place(const std::vector<std::int32_t>& members, Bytes bytes) {
    TimePoint begin;
    after_.clear();
    std::vector<std::pair<std::size_t, std::size_t>> after_of;  // [member] its range in after_
    for (const std::int32_t e : members) {
      TracedEvent& event = events_[at(e)];
      TimePoint floor = last_end(event);
      const std::size_t from = after_.size();
      for (const std::int32_t earlier : waits_[at(e)]) {
        if (last_task_[at(earlier)] == none<TaskId> || events_[at(earlier)].end > event.start + tolerance) {
          ++contradicted_;
          continue;
        }
        floor = std::max(floor, ended_[at(earlier)]);
        after_.push_back(last_task_[at(earlier)]);
      }
      after_of.emplace_back(from, after_.size());
      const TimePoint starts = std::max(event.start, floor);
      event.delay = starts - floor;
      begin = std::max(begin, starts);
    }
    for (const std::int32_t e : members) {
      TracedEvent& event = events_[at(e)];
      if (event.end < begin && event.op != Op::pass) early_end_ = std::max(early_end_, begin - event.end);
      event.own = std::max(event.end, begin) - begin;
    }
    std::vector<TaskId> all;
    for (std::size_t m = 0; m < members.size(); ++m) {
      TracedEvent& event = events_[at(members[m])];
      const auto waited = std::span<const TaskId>{after_}.subspan(after_of[m].first, after_of[m].second - after_of[m].first);
      if (event.delay > Duration{}) {
        event.delay_task = builder_.add(idle(event), {}, waited);
      } else {
        all.insert(all.end(), waited.begin(), waited.end());
      }
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    const TaskId task = builder_.add(task_of(members, bytes), {}, all);
    for (const std::int32_t e : members) {
      TracedEvent& event = events_[at(e)];
      event.task = last_task_[at(e)] = task;
      // All members have one, since another question may make another member the fastest.
      if (members.size() > 1) event.rest_task = last_task_[at(e)] = builder_.add(idle(event), {});
      last_end(event) = ended_[at(e)] = begin + event.own;
    }
  }

  static Task idle(const TracedEvent& event) {
    return {.op = Op::idle, .lane = event.lane, .rank = event.rank, .stage = event.stage, .microbatch = event.microbatch};
  }

  Task task_of(const std::vector<std::int32_t>& members, Bytes bytes) {
    const TracedEvent& first = events_[at(members.front())];
    Task task = idle(first);
    task.op = first.op;
    if (is_compute(first.op)) return task;
    task.payload = traits(first.op).payload;
    task.bytes = bytes;
    if (is_point_to_point(first.op) && members.size() == 2) {
      task.peer = events_[at(members.back())].rank;
      task.peer_lane = events_[at(members.back())].lane;
      return task;
    }
    if (is_point_to_point(first.op)) task.op = Op::broadcast;  // its other end was not traced
    std::vector<Rank> ranks;
    for (const std::int32_t e : members) ranks.push_back(events_[at(e)].rank);
    std::sort(ranks.begin(), ranks.end());
    task.rank = ranks.front();
    task.group = builder_.group(ranks);
    return task;
  }

  static constexpr Duration tolerance{1'000'000};  // 1 us, since the clocks of hosts and devices differ by that much

  int ranks_;
  std::size_t lanes_ = 1;
  ScheduleBuilder builder_;
  std::vector<TracedEvent> events_;
  std::vector<std::vector<std::int32_t>> waits_;
  std::vector<std::int32_t> meeting_;  ///< [event]; -1: none
  std::vector<std::vector<std::int32_t>> meetings_;
  std::vector<Bytes> bytes_;         ///< [meeting]
  std::vector<TimePoint> last_end_;  ///< [rank * lanes + lane] in the replay
  std::vector<TimePoint> ended_;     ///< [event] in the replay
  std::vector<TaskId> last_task_;    ///< [event]
  std::vector<TaskId> after_;
  std::size_t contradicted_ = 0;
  Duration early_end_;
};

}  // namespace tawpipe
