// How much of the devices' time is idle, by two measures.
// Not: the reasons (analysis/critical_path.hpp).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// The idle share of the devices.
struct Bubble {
  double ratio = 0;            ///< 1 - work of all ranks / (ranks * makespan)
  Duration span = {};          ///< the largest, first to last forward or backward
  Duration span_work = {};     ///< forwards and backwards of its rank
  std::vector<Duration> busy;  ///< [rank] work, optimizer included

  /// The idle share of the largest span. Source: Qi et al. 2024, Zero Bubble Pipeline Parallelism,
  /// arXiv:2401.10241 (bubble rate).
  double span_rate() const { return span > Duration{} ? 1.0 - span_work / span : 0; }
};

/// Idle time of `timeline`. Drawn idle units and transfers that hold the compute lane count as
/// idle.
/// @param same_as  [rank] an earlier rank that does the same (FoldedSchedule::same_as); empty: all
/// differ
/// Complexity: O(tasks).
inline Bubble bubble(const Schedule& schedule, const Timeline& timeline, std::span<const Rank> same_as = {}) {
  struct Span {
    TimePoint first = TimePoint{Duration::max()};
    TimePoint last;
    Duration work;
  };
  Bubble result;
  result.busy.resize(static_cast<std::size_t>(schedule.ranks()));
  std::vector<Span> spans(result.busy.size());
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!is_work(task.op)) continue;
    const Duration took = timeline.end[t] - timeline.start[t];
    result.busy[index(task.rank)] += took;
    if (task.op == Op::update) continue;
    Span& span = spans[index(task.rank)];
    span.first = std::min(span.first, timeline.start[t]);
    span.last = std::max(span.last, timeline.end[t]);
    span.work += took;
  }
  for (std::size_t rank = 0; rank < same_as.size(); ++rank) {
    result.busy[rank] = result.busy[index(same_as[rank])];
    spans[rank] = spans[index(same_as[rank])];
  }
  const Duration makespan = timeline.makespan();
  if (makespan <= Duration{}) return result;
  double work = 0;
  for (const Duration busy : result.busy) work += busy / makespan;
  result.ratio = 1.0 - work / static_cast<double>(schedule.ranks());
  for (const Span& span : spans) {
    if (span.work <= Duration{} || span.last - span.first <= result.span) continue;
    result.span = span.last - span.first;
    result.span_work = span.work;
  }
  return result;
}

}  // namespace tawpipe
