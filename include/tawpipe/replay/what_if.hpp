// What-if questions about a traced run: how long its steps would take without stragglers, with
// other speeds, without the host's gaps.
// Not: another schedule, cut or cluster, which the simulator answers from measured times
// (step_times.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/replay/traced_run.hpp"

namespace tawpipe::inline v0 {

/// Events whose own time changes by a factor. Unset members do not restrict them.
struct TimeScale {
  std::optional<Op> op{};
  std::optional<TraceKind> kind{};
  bool computations = false;  ///< any of the three kinds
  std::vector<char> names{};  ///< [name of TracedRun::names] whether it is selected; empty: all
  /// 0.5: twice as fast. For the host also applied to the delays of all events
  double factor = 1;

  bool takes(const TracedEvent& event) const {
    if (op && event.op != *op) return false;
    if (kind && event.kind != *kind) return false;
    if (computations && event.kind > TraceKind::attention) return false;
    return names.empty() || names[static_cast<std::size_t>(event.name)] != 0;
  }
};

/// The question; all its parts apply at once.
struct WhatIf {
  /// How events are replaced by typical events of their class.
  enum class Typical : std::uint8_t {
    none,
    /// a computation takes the mean of all ranks and steps, a communication the median: work is
    /// spread evenly
    shared,
    peers,  ///< the median over the other ranks: the selected ones are as fast as their peers
  };

  std::string name;  ///< name in results
  Typical typical = Typical::none;
  std::vector<char> ranks{};  ///< [rank] whether it is selected; empty: all
  std::vector<TimeScale> scales{};
};

/// The times that the steps would take.
struct WhatIfAnswer {
  std::string name;
  std::vector<Duration> steps;  ///< [step]
  Duration total;               ///< of all of them
};

namespace detail {

/// The typical time of each class of equal events, and the typical delay before them; negative:
/// none.
class TypicalTimes {
 public:
  TypicalTimes(const TracedRun& run, const WhatIf& question) {
    std::size_t classes = 0;
    for_each(run, [&](const TracedEvent& event) { classes = std::max(classes, static_cast<std::size_t>(event.alike) + 1); });
    std::vector<std::vector<std::int64_t>> times(classes);
    std::vector<std::vector<std::int64_t>> delays(classes);
    std::vector<char> computes(classes, 0);
    for_each(run, [&](const TracedEvent& event) {
      if (question.typical == WhatIf::Typical::peers && !question.ranks.empty() && question.ranks[index(event.rank)] != 0) return;
      times[static_cast<std::size_t>(event.alike)].push_back(event.own.value());
      delays[static_cast<std::size_t>(event.alike)].push_back(event.delay.value());
      if (event.kind != TraceKind::communication) computes[static_cast<std::size_t>(event.alike)] = 1;
    });
    for (std::size_t c = 0; c < classes; ++c) {
      const bool mean = computes[c] != 0 && question.typical == WhatIf::Typical::shared;
      typical_.push_back(times[c].empty() ? -1 : mean ? mean_of(times[c]) : median_of(times[c]));
      delays_.push_back(delays[c].empty() ? -1 : median_of(delays[c]));
    }
  }

  Duration of(const TracedEvent& event) const {
    const std::int64_t time = event.alike < 0 ? -1 : typical_[static_cast<std::size_t>(event.alike)];
    return time < 0 ? event.own : Duration{time};
  }
  /// Of what the host does before an event that the trace does not show: a slow loader without a
  /// name. What comes before a communication is not its rank's work.
  Duration delay_of(const TracedEvent& event) const {
    const bool works = event.kind != TraceKind::communication && event.alike >= 0;
    const std::int64_t delay = works ? delays_[static_cast<std::size_t>(event.alike)] : -1;
    return delay < 0 ? event.delay : Duration{delay};
  }

 private:
  template <class Visit>
  static void for_each(const TracedRun& run, Visit&& visit) {
    for (const TracedStep& step : run.steps) {
      for (const TracedEvent& event : step.events) {
        if (event.alike >= 0) visit(event);
      }
    }
  }
  static std::int64_t mean_of(const std::vector<std::int64_t>& times) {
    double sum = 0;
    for (const std::int64_t time : times) sum += static_cast<double>(time);
    return std::llround(sum / static_cast<double>(times.size()));
  }
  /// For an even number, the mean of the middle two.
  static std::int64_t median_of(std::vector<std::int64_t>& times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    if (times.size() % 2 == 1) return *middle;
    const std::int64_t below = *std::max_element(times.begin(), middle);
    return below + (*middle - below) / 2;
  }

  std::vector<std::int64_t> typical_;
  std::vector<std::int64_t> delays_;
};

}  // namespace detail

/// The times that the events of each step would take. Complexity: O(events).
/// Source of Typical::shared: Lin et al. 2025, Understanding Stragglers in Large Model Training
/// Using What-if Analysis, arXiv:2505.05713, section 3.2.
inline std::vector<EventTimes> event_times(const TracedRun& run, const WhatIf& question) {
  std::optional<detail::TypicalTimes> typical;
  if (question.typical != WhatIf::Typical::none) typical.emplace(run, question);
  std::vector<EventTimes> all;
  for (const TracedStep& step : run.steps) {
    EventTimes times = EventTimes::of(step);
    for (std::size_t e = 0; e < step.events.size(); ++e) {
      const TracedEvent& event = step.events[e];
      if (typical && (question.ranks.empty() || question.ranks[index(event.rank)] != 0)) {
        times.own[e] = typical->of(event);
        times.delay[e] = typical->delay_of(event);
      }
      for (const TimeScale& scale : question.scales) {
        if (scale.takes(event)) times.own[e] = scaled(times.own[e], scale.factor);
        if (scale.kind == TraceKind::host) times.delay[e] = scaled(times.delay[e], scale.factor);
      }
    }
    all.push_back(std::move(times));
  }
  return all;
}

/// Answers one question: replays every step.
inline WhatIfAnswer ask(const TracedRun& run, const WhatIf& question) {
  WhatIfAnswer answer{question.name, {}, {}};
  const std::vector<EventTimes> times = event_times(run, question);
  for (std::size_t s = 0; s < run.steps.size(); ++s) {
    answer.steps.push_back(replay(run.steps[s], times[s]).makespan());
    answer.total += answer.steps.back();
  }
  return answer;
}

/// The additional time of each rank's computations and host, and of the delays before them, over
/// those of the same class: seconds over all steps, from the median of each class of events. Waiting
/// and communication are not counted. @return [rank]
inline std::vector<double> excess_of_ranks(const TracedRun& run) {
  const detail::TypicalTimes typical{run, {.name = {}, .typical = WhatIf::Typical::peers}};
  std::vector<double> excess(run.ranks.size(), 0);
  for (const TracedStep& step : run.steps) {
    for (const TracedEvent& event : step.events) {
      if (event.kind == TraceKind::communication) continue;
      excess[index(event.rank)] += to_seconds(event.own - typical.of(event)) + to_seconds(event.delay - typical.delay_of(event));
    }
  }
  return excess;
}

/// What kept the host busy under a name of its own ("data loader", "garbage collector", a function
/// of Python).
struct HostCause {
  std::int32_t name = 0;        ///< index in TracedRun::names
  std::vector<double> seconds;  ///< [rank] over all steps

  double most() const { return *std::max_element(seconds.begin(), seconds.end()); }
};

/// The causes, the most costly on any rank first.
inline std::vector<HostCause> host_causes(const TracedRun& run) {
  std::vector<HostCause> causes;
  for (const TracedStep& step : run.steps) {
    for (const TracedEvent& event : step.events) {
      if (event.kind != TraceKind::host || run.names[static_cast<std::size_t>(event.name)] == name(TraceKind::host)) continue;
      auto found = std::find_if(causes.begin(), causes.end(), [&](const HostCause& one) { return one.name == event.name; });
      if (found == causes.end()) found = causes.insert(found, {event.name, std::vector<double>(run.ranks.size(), 0)});
      found->seconds[index(event.rank)] += to_seconds(event.own);
    }
  }
  std::stable_sort(causes.begin(), causes.end(), [](const HostCause& a, const HostCause& b) { return a.most() > b.most(); });
  return causes;
}

/// The ranks that exceed their peers most. @param count  their number @return [rank] whether it is
/// one of them
inline std::vector<char> worst_ranks(const TracedRun& run, std::size_t count) {
  const std::vector<double> excess = excess_of_ranks(run);
  std::vector<std::size_t> order(excess.size());
  for (std::size_t r = 0; r < order.size(); ++r) order[r] = r;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return excess[a] > excess[b]; });
  std::vector<char> worst(excess.size(), 0);
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i) worst[order[i]] = 1;
  return worst;
}

}  // namespace tawpipe
