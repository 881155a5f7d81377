// In which order a search for a plan looks at candidates: estimates from a few microbatches, and
// what needs less memory in place of a candidate that is too large.
// Not: the search (plan_search.hpp); nothing here drops a candidate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/plan_result.hpp"
#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0::detail {

/// Schedules that are looked at first: one of each family.
inline bool is_leading_schedule(std::string_view name) {
  constexpr std::string_view names[] = {"tawpipe", "fsdp", "hfsdp",  "1f1b", "interleaved-1f1b",
                                        "zb-h2",   "zb-v", "v-half", "v-min"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// Microbatches of a replica.
inline double microbatches_of(const PlanRequest& request, const PlanLayout& layout) {
  return static_cast<double>(request.problem.global_batch) / static_cast<double>(layout.microbatch_size) / layout.mesh.data;
}

/// A layout with some of the schedules: those from `begin` to before `end`.
struct PlanGroup {
  static constexpr double deferred = 1e12;  ///< added to the key of a group that comes last

  std::size_t layout;
  std::size_t begin;
  std::size_t end;
  double key;  ///< seconds, estimated; the least come first

  std::int64_t size() const { return static_cast<std::int64_t>(end - begin); }
  std::vector<std::size_t> choices() const {
    std::vector<std::size_t> found;
    for (std::size_t i = begin; i < end; ++i) found.push_back(i);
    return found;
  }
};

inline void sort_by_key(std::vector<PlanGroup>& groups) {
  std::stable_sort(groups.begin(), groups.end(), [](const PlanGroup& a, const PlanGroup& b) { return a.key < b.key; });
}

/// What a few microbatches of a candidate tell about all.
struct PlanProbe {
  double seconds = 0;  ///< 0: unknown
  Bytes memory = {};
  bool fits = true;
  std::int64_t cost = 2000;  ///< tasks visited
};

/// Whether another of the probes takes as long in less memory, or one before it in as much.
inline bool is_matched(const std::vector<PlanProbe>& probes, std::size_t which) {
  const PlanProbe& one = probes[which];
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const PlanProbe& other = probes[i];
    const bool smaller = i < which ? other.memory <= one.memory : other.memory < one.memory;
    if (smaller && other.seconds > 0 && std::abs(other.seconds - one.seconds) <= 1e-9 * one.seconds) return true;
  }
  return false;
}

/// Estimates a candidate from the paths of 2 and of 4 microbatches for each of the schedule's ranks:
/// the rest take as long as those in between. All must outlive it; may be shared between threads.
class PlanProber {
 public:
  PlanProber(const PlanRequest& request, const Registry& registry, CollectiveTimes& known)
      : request_{request}, registry_{registry}, known_{known} {}

  /// Whether that costs less than the paths of all microbatches.
  bool is_worth(const PlanLayout& layout) const { return microbatches_of(request_, layout) >= 2 * most * layout.mesh.pipeline; }
  PlanProbe probe(const PlanLayout& layout, const ScheduleChoice& choice) const {
    PlanProbe found;
    if (!request_.allows(layout, choice)) return found;
    const auto path = [&](int microbatches) {
      Problem few = problem_of(request_, layout, choice);
      few.global_batch = layout.microbatch_size * layout.mesh.data * microbatches * layout.mesh.pipeline;
      const LeastNeed need = least(few, choice);
      found.cost += need.ends;
      found.memory = need.memory;
      found.fits = need.fits;
      return to_seconds(need.usual);
    };
    try {
      const double first = path(most / 2);
      const double second = path(most);
      const double more = microbatches_of(request_, layout) / layout.mesh.pipeline - most;
      found.seconds = second + std::max(0.0, second - first) / (most - most / 2) * more;
    } catch (const InputError&) {  // not with so few
    }
    return found;
  }
  LeastNeed least(const Problem& problem, const ScheduleChoice& choice) const {
    return Predictor{problem, registry_}.least(choice, &known_);
  }
  const PlanRequest& request() const { return request_; }

 private:
  static constexpr int most = 4;  ///< microbatches of a rank

  const PlanRequest& request_;
  const Registry& registry_;
  CollectiveTimes& known_;
};

/// A layout that needs less memory, with the bounds of a schedule.
struct SavedMemory {
  PlanLayout layout;
  LeastNeed need;
  std::int64_t cost = 0;  ///< tasks visited
};

/// Of the ways to need less memory, by recomputation of a part and by others, the first of each that
/// fits, and of these the faster by the estimate; else the last that is possible.
inline std::optional<SavedMemory> save_memory_of(const PlanLayout& layout, const ScheduleChoice& choice,
                                                 const PlanProber& prober) {
  const PlanRequest& request = prober.request();
  std::optional<SavedMemory> best;
  std::int64_t cost = 0;
  std::vector<std::vector<PlanLayout>> kinds{memory_savers(request, layout)};
  if (layout.recompute == Recompute::none) kinds.push_back(partly_recomputed(request, layout, 4));
  for (const std::vector<PlanLayout>& ways : kinds) {
    for (const PlanLayout& less : ways) {
      if (!request.allows(less, choice)) continue;
      if (prober.is_worth(less)) {
        const PlanProbe few = prober.probe(less, choice);
        cost += few.cost;
        if (few.seconds > 0 && !few.fits) continue;
      }
      try {
        const LeastNeed need = prober.least(problem_of(request, less, choice), choice);
        cost += need.ends;
        if (!best || !best->need.fits || (need.fits && need.usual < best->need.usual)) best = SavedMemory{less, need};
        if (need.fits) break;
      } catch (const InputError&) {  // the schedule cannot do that
      }
    }
  }
  if (best) best->cost = cost;
  return best;
}

}  // namespace tawpipe::inline v0::detail
