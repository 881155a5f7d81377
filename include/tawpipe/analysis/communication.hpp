// How long ranks communicate, and how much of that no computation hides.
// Not: how many bytes (analysis/traffic.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/intervals.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// Time in transfers and collectives, means over the ranks.
struct Communication {
  double busy_s = 0;                ///< at least one in flight
  double exposed_s = 0;             ///< at least one in flight while the rank computes nothing
  std::vector<double> lane_busy_s;  ///< [lane] in flight on that lane
  /// [lane] in flight on that lane while the rank computes nothing
  std::vector<double> lane_exposed_s;
};

/// Communication time of `timeline`.
/// @param same_as  [rank] an earlier rank that does the same (FoldedSchedule::same_as); empty: all
/// differ
/// Complexity: O(tasks log tasks), one rank's intervals in memory at a time.
TAWPIPE_INLINE Communication communication(const Schedule& schedule, const Timeline& timeline,
                                           std::span<const Rank> same_as = {});

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/core/prefetch.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Communication communication(const Schedule& schedule, const Timeline& timeline, std::span<const Rank> same_as) {
  Communication result;
  const std::size_t lanes = schedule.lanes().size();
  result.lane_busy_s.assign(lanes, 0);
  result.lane_exposed_s.assign(lanes, 0);
  const double scale = 1e-12 / static_cast<double>(schedule.ranks());
  detail::Intervals work;
  detail::Intervals all;
  std::vector<detail::Intervals> in_flight(lanes);
  const auto seconds_of = [&](std::int64_t picoseconds) { return static_cast<double>(picoseconds) * scale; };
  const auto exposed = [&](const detail::Intervals& busy) { return detail::length(busy) - detail::overlap(busy, work); };
  std::vector<bool> works(schedule.tasks().size());  // these stay in the cache, unlike the tasks
  std::vector<bool> communicates(works.size());
  for (std::size_t t = 0; t < works.size(); ++t) {
    works[t] = is_work(schedule.tasks()[t].op);
    communicates[t] = !is_compute(schedule.tasks()[t].op);
  }
  constexpr std::size_t ahead = 16;  // the tasks of a lane are far from each other in memory
  const std::size_t figures = 2 * lanes + 2;
  std::vector<std::int64_t> of_rank(same_as.size() * figures);  // of ranks that others repeat
  std::vector<std::int64_t> own(figures);                       // [busy and exposed for each lane, then for all]
  const auto measure = [&](int rank) {
    work.clear();
    all.clear();
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      in_flight[lane].clear();
      const std::span<const TaskId> program = schedule.program(Rank{rank}, static_cast<int>(lane));
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (i + ahead < program.size()) {
          const TaskId later = program[i + ahead];
          detail::prefetch(&timeline.start[index(later)]);
          detail::prefetch(&timeline.end[index(later)]);
        }
        const TaskId task = program[i];
        const std::pair interval{timeline.start_of(task).picoseconds(), timeline.end_of(task).picoseconds()};
        if (interval.first == interval.second) continue;
        if (works[index(task)]) work.push_back(interval);
        if (communicates[index(task)]) in_flight[lane].push_back(interval);
      }
      detail::unite(in_flight[lane]);
      const auto merged = static_cast<std::ptrdiff_t>(all.size());
      all.insert(all.end(), in_flight[lane].begin(), in_flight[lane].end());
      std::inplace_merge(all.begin(), all.begin() + merged, all.end());
    }
    detail::unite(work);
    detail::unite(all);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      own[2 * lane] = detail::length(in_flight[lane]);
      own[2 * lane + 1] = exposed(in_flight[lane]);
    }
    own[2 * lanes] = detail::length(all);
    own[2 * lanes + 1] = exposed(all);
  };
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (same_as.empty()) {
      measure(rank);
    } else {
      const auto kept = of_rank.begin() + static_cast<std::ptrdiff_t>(index(same_as[static_cast<std::size_t>(rank)]) * figures);
      if (same_as[static_cast<std::size_t>(rank)] == Rank{rank}) {
        measure(rank);
        std::copy(own.begin(), own.end(), kept);
      } else {
        std::copy_n(kept, figures, own.begin());
      }
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      result.lane_busy_s[lane] += seconds_of(own[2 * lane]);
      result.lane_exposed_s[lane] += seconds_of(own[2 * lane + 1]);
    }
    result.busy_s += seconds_of(own[2 * lanes]);
    result.exposed_s += seconds_of(own[2 * lanes + 1]);
  }
  return result;
}

}  // namespace tawpipe
#endif
