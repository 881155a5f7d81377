// What SMs held by communications cost overlapping computations, and how much of that was waiting.
// Not: the simulation of it (simulate/held_sms.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/schedule/arrivals.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// Seconds by which held SMs made computations longer.
struct HeldTime {
  std::vector<double> slowed_s;  ///< [rank] by all communications
  /// [rank] of that, by communications that had not begun because a rank had not arrived
  std::vector<double> waiting_s;
  std::vector<double> task_s;  ///< [task] by all communications; 0 for communications

  /// The mean over ranks.
  static double mean(const std::vector<double>& ranks) {
    double sum = 0;
    for (const double one : ranks) sum += one;
    return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
  }
};

namespace detail {

/// The change in a rank's held SMs from `time` on.
struct HeldChange {
  std::int64_t time;
  std::int32_t waiting;
  std::int32_t moving;
};

/// [rank] the changes in its held SMs, in time order.
inline std::vector<std::vector<HeldChange>> held_changes(const Schedule& schedule, const Cluster& cluster,
                                                         const Timeline& timeline, const HeldSms& held,
                                                         std::span<const TaskId> calls) {
  HeldCtas ctas{held, schedule, cluster};
  const Arrivals arrivals = ctas.arrivals(!calls.empty());
  std::vector<std::int64_t> come;  // [arrival] if ranks that wait hold SMs
  if (held.waiting) {
    come.resize(arrivals.size(), 0);
    arrivals.for_each_predecessor([&](TaskId earlier, std::size_t arrival) {
      come[arrival] = std::max(come[arrival], timeline.end_of(earlier).picoseconds());
    });
    arrivals.for_each_launch(
        calls, [&](std::size_t earlier, std::size_t arrival) { come[arrival] = std::max(come[arrival], come[earlier]); });
  }
  std::vector<std::vector<HeldChange>> changes(static_cast<std::size_t>(schedule.ranks()));
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const std::int32_t sms = ctas.of(schedule.tasks()[t]);
    const std::int64_t start = timeline.start[t].picoseconds();
    for (auto a = arrivals.begin(id<TaskId>(t)); a < arrivals.end(id<TaskId>(t)); ++a) {
      auto& rank = changes[index(arrivals.rank(a))];
      if (held.waiting) rank.push_back({std::min(come[a], start), sms, 0});
      rank.push_back({start, held.waiting ? -sms : 0, sms});
      rank.push_back({timeline.end[t].picoseconds(), 0, -sms});
    }
  }
  for (auto& rank : changes) {
    std::stable_sort(rank.begin(), rank.end(), [](const HeldChange& a, const HeldChange& b) { return a.time < b.time; });
  }
  return changes;
}

}  // namespace detail

/// The cost of `held` in `timeline`. Where several communications hold SMs at once, each is charged
/// for its share of them.
/// @param same_as  [rank] an earlier rank that does the same (FoldedSchedule::same_as); empty: all
/// differ
/// @param calls  that the timeline was simulated with (order_of_calls)
/// Complexity: O((tasks + members) log members), and for each computation the changes during it.
inline HeldTime held_time(const Schedule& schedule, const Cluster& cluster, const Timeline& timeline, const HeldSms& held,
                          std::span<const Rank> same_as = {}, std::span<const TaskId> calls = {}) {
  const auto changes = detail::held_changes(schedule, cluster, timeline, held, calls);
  HeldTime result{std::vector<double>(changes.size()), std::vector<double>(changes.size()),
                  std::vector<double>(schedule.tasks().size())};
  std::vector<std::vector<std::size_t>> computations(changes.size());  // [rank] by start
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (is_work(task.op) && timeline.end[t] > timeline.start[t]) computations[index(task.rank)].push_back(t);
  }
  for (std::size_t rank = 0; rank < changes.size(); ++rank) {
    auto& own = computations[rank];
    std::stable_sort(own.begin(), own.end(), [&](std::size_t a, std::size_t b) { return timeline.start[a] < timeline.start[b]; });
    const SpeedTable speeds = held.table(held.sms_of(cluster.device(id<Rank>(rank))));
    std::size_t next = 0;  // the first change after the start of the computation
    std::int64_t waiting = 0;
    std::int64_t moving = 0;
    for (const std::size_t t : own) {
      std::int64_t at = timeline.start[t].picoseconds();
      const std::int64_t end = timeline.end[t].picoseconds();
      for (; next < changes[rank].size() && changes[rank][next].time <= at; ++next) {
        waiting += changes[rank][next].waiting;
        moving += changes[rank][next].moving;
      }
      std::int64_t now_waiting = waiting;
      std::int64_t now_moving = moving;
      for (std::size_t i = next; at < end; ++i) {
        const std::int64_t until = i < changes[rank].size() ? std::min(end, changes[rank][i].time) : end;
        const std::int64_t all = now_waiting + now_moving;
        const double lost = (1 - speeds.speed(all)) * to_seconds(Duration{until - at});
        result.task_s[t] += lost;
        if (all > 0) result.waiting_s[rank] += lost * static_cast<double>(now_waiting) / static_cast<double>(all);
        at = until;
        if (at == end) break;
        now_waiting += changes[rank][i].waiting;
        now_moving += changes[rank][i].moving;
      }
      result.slowed_s[rank] += result.task_s[t];
    }
  }
  for (std::size_t rank = 0; rank < same_as.size(); ++rank) {
    result.slowed_s[rank] = result.slowed_s[index(same_as[rank])];
    result.waiting_s[rank] = result.waiting_s[index(same_as[rank])];
  }
  return result;
}

}  // namespace tawpipe
