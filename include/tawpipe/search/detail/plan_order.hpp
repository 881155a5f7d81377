// In which order a search for a plan looks at candidates: prices of pipelines, estimates of others
// from a few microbatches, and what needs less memory in place of a candidate that is too large.
// Not: the search (plan_search.hpp); nothing here drops a candidate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/search/detail/pipeline_price.hpp"
#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/plan_result.hpp"
#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0::detail {

/// Microbatches of a replica.
inline double microbatches_of(const PlanRequest& request, const PlanLayout& layout) {
  return static_cast<double>(request.problem.global_batch) / static_cast<double>(layout.microbatch_size) /
         layout.mesh.batch_parts();
}

/// A layout with some of the schedules: those from `begin` to before `end`.
struct PlanGroup {
  static constexpr double deferred = 1e12;  ///< added to the key of a group that comes last

  std::size_t layout;
  std::size_t begin;
  std::size_t end;
  double key;  ///< seconds, estimated; the least come first

  std::int64_t size() const { return static_cast<std::int64_t>(end - begin); }
};

inline void sort_by_key(std::span<PlanGroup> groups) {
  std::stable_sort(groups.begin(), groups.end(), [](const PlanGroup& a, const PlanGroup& b) { return a.key < b.key; });
}

/// Whether the meshes of layouts differ in two axes, one of which is twice as large, or not at all; and
/// the layouts in nothing else but what is computed again.
inline bool is_near(const PlanLayout& a, const PlanLayout& b) {
  const bool exchanges = a.mesh.context > 1 && b.mesh.context > 1;
  if (a.microbatch_size != b.microbatch_size || (exchanges && a.exchange != b.exchange)) return false;
  const auto order = [](const Mesh& mesh, const Mesh& other) {  // of the axes that both have
    std::vector<MeshAxis> axes = places_of(mesh);
    std::erase_if(axes, [&](MeshAxis axis) { return other.size(axis) == 1; });
    return axes;
  };
  if (order(a.mesh, b.mesh) != order(b.mesh, a.mesh)) return false;
  int twice = 0;
  int half = 0;
  int equal = 0;
  for (int axis = 0; axis < mesh_axes; ++axis) {
    const int one = a.mesh.size(static_cast<MeshAxis>(axis));
    const int other = b.mesh.size(static_cast<MeshAxis>(axis));
    twice += one == 2 * other;
    half += 2 * one == other;
    equal += one == other;
  }
  return twice == half && twice <= 1 && twice + half + equal == mesh_axes;
}

/// Two iterations from which a long one is extrapolated, in rounds: microbatches, one for each of
/// the schedule's ranks. None where the long one has too few.
struct ShortIterations {
  std::int64_t shorter = 0;
  std::int64_t longer = 0;
};
inline ShortIterations short_iterations(std::int64_t rounds) {
  if (rounds < 8) return {};
  const std::int64_t longer = std::max<std::int64_t>(4, rounds / 8);
  return {longer / 2, longer};
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

/// Estimates a candidate: by its price, or where it has none, from the paths of 2 and of 4
/// microbatches for each of the schedule's ranks: the rest take as long as those in between. All must
/// outlive it; may be shared between threads.
class PlanProber {
 public:
  /// Of a price, that take as long as a task of a bound, about.
  static constexpr std::int64_t steps_of_task = 32;

  PlanProber(const PlanRequest& request, const Registry& registry, CollectiveTimes& known, PipelineCache& cache)
      : request_{request}, registry_{registry}, known_{known}, prices_{request, registry, known, cache} {}

  /// Whether it has a price, which costs a small part of its bound.
  bool has_price(const PlanLayout& layout, const ScheduleChoice& choice) const {
    return prices_.has(layout_of(layout, choice), choice);
  }
  /// Whether the paths of a few microbatches cost less than those of all.
  bool is_worth(const PlanLayout& layout) const { return microbatches_of(request_, layout) >= 2 * most * layout.mesh.pipeline; }
  /// Of a probe, about.
  static double computations(const Mesh& mesh, const Transformer& model) {
    return 2.0 * std::max(mesh.pipeline, model.layers) * (most + most / 2) * mesh.pipeline;
  }
  /// As the choice's schedule runs it.
  PlanLayout layout_of(const PlanLayout& layout, const ScheduleChoice& choice) const {
    return layout_for(registry_.info(choice.schedule).family, request_, layout);
  }
  bool allows(const PlanLayout& layout, const ScheduleChoice& choice) const {
    return request_.allows(layout_of(layout, choice), choice);
  }
  /// Whether ranks have stages without a layer or an edge, or all ranks such chunks: a shorter pipeline does the same.
  bool has_empty_stages(const PlanLayout& layout, const ScheduleChoice& choice) const {
    if (registry_.info(choice.schedule).family != ScheduleFamily::pipeline) return false;
    const int longest = request_.problem.model->layers + 2;
    const auto chunks = choice.options.find("chunks");
    const std::int64_t looped = chunks == choice.options.end() ? 1 : to_number<std::int64_t>(chunks->second).value_or(1);
    return layout.mesh.pipeline * (looped - 1) >= longest || layout.mesh.pipeline > longest;
  }
  /// Whether a shorter pipeline may take its place: its length was not asked for.
  bool may_be_shorter() const { return request_.axes[static_cast<std::size_t>(MeshAxis::pipeline)] == 0; }
  Problem problem_of(const PlanLayout& layout, const ScheduleChoice& choice) const {
    return v0::problem_of(request_, layout_of(layout, choice), choice);
  }
  PlanProbe probe(const PlanLayout& layout, const ScheduleChoice& choice) const {
    PlanProbe found;
    if (!allows(layout, choice)) return found;
    if (has_price(layout, choice)) return price(layout_of(layout, choice), choice);
    if (!is_worth(layout)) return found;
    const auto path = [&](int microbatches) {
      Problem few = problem_of(layout, choice);
      few.global_batch = layout.microbatch_size * layout.mesh.batch_parts() * microbatches * layout.mesh.pipeline;
      const MinNeed need = least(few, choice);
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
  /// What its price with all its microbatches proves. Its time is 0 where it has none, or cannot be.
  MinNeed least_by_price(const PlanLayout& layout, const ScheduleChoice& choice) const {
    constexpr double above_simulated = 1.02;  // at most (pipeline_price_test.cpp)
    MinNeed found{.ends = 100};
    if (!allows(layout, choice) || !has_price(layout, choice) || has_empty_stages(layout, choice)) return found;
    try {
      const auto all = static_cast<std::int64_t>(microbatches_of(request_, layout));
      const PipelinePrice price = prices_.price(layout_of(layout, choice), choice, all);
      found.usual = seconds(price.picoseconds * 1e-12);
      found.time = seconds(price.picoseconds * 1e-12 / above_simulated);
      found.memory = Bytes{static_cast<std::int64_t>(price.bytes)};
      found.fits = fits(price);
      found.ends += price.steps / steps_of_task;
    } catch (const InputError&) {  // not with so few microbatches, or not at all
    }
    return found;
  }
  MinNeed least(const Problem& problem, const ScheduleChoice& choice) const {
    return Predictor{problem, registry_}.least(choice, &known_);
  }
  /// Of 4 microbatches for each rank: no more memory than with all.
  MinNeed min_of_few(Problem problem, const ScheduleChoice& choice) const {
    problem.global_batch = problem.microbatch_sizes.front() * problem.mesh.batch_parts() * most * problem.mesh.pipeline;
    return least(problem, choice);
  }
  const PlanRequest& request() const { return request_; }
  const Registry& registry() const { return registry_; }

 private:
  static constexpr int most = 4;  ///< microbatches of a rank

  /// Of many microbatches from those of one and of two for each rank; or of two and of four, where the
  /// schedule has not so few, or its steady state has not begun: each microbatch then takes less than the
  /// busiest rank computes.
  PlanProbe price(const PlanLayout& layout, const ScheduleChoice& choice) const {
    PlanProbe found{.cost = 100};
    if (has_empty_stages(layout, choice)) {
      found.fits = false;  // comes last
      return found;
    }
    const auto all = static_cast<std::int64_t>(microbatches_of(request_, layout));
    double busiest = 0;
    const auto of = [&](std::int64_t microbatches) {
      const PipelinePrice price = prices_.price(layout, choice, microbatches);
      found.memory = Bytes{static_cast<std::int64_t>(price.bytes)};
      found.fits = fits(price);
      found.cost += price.steps / steps_of_task;
      busiest = price.busiest * 1e-12;
      return price.picoseconds * 1e-12;
    };
    const auto from = [&](std::int64_t few) {
      if (all <= 2 * few) return of(all);
      const double first = of(few);
      const double second = of(2 * few);
      const double each = (second - first) / static_cast<double>(few);
      const bool steady = each > busiest * (1 - 1e-3) || few > layout.mesh.pipeline;
      return steady ? second + each * static_cast<double>(all - 2 * few) : 0;
    };
    for (std::int64_t few = layout.mesh.pipeline; few <= 2 * layout.mesh.pipeline && found.seconds <= 0; few *= 2) {
      try {
        found.seconds = from(few);
      } catch (const InputError&) {  // not with so few, or not at all
      }
    }
    return found;
  }
  /// But for a price's error.
  bool fits(const PipelinePrice& price) const {
    const Bytes usable = usable_part(request_.problem.cluster.device(Rank{0}).memory, request_.problem.usable_memory);
    return price.bytes <= 1.02 * static_cast<double>(usable.value());
  }

  const PlanRequest& request_;
  const Registry& registry_;
  CollectiveTimes& known_;
  mutable PipelinePrices prices_;  ///< guarded by itself
};

/// A candidate with a bound, to be simulated unless something is faster.
struct PlanCandidate {
  std::size_t layout = 0;
  std::size_t choice = 0;
  MinNeed need = {};
  /// differs from an earlier one only in where ranks are, and not in its estimate
  bool repeats = false;
};

/// What became of a candidate, in a round.
struct PlanOutcome {
  PlanCandidate candidate;
  std::optional<Plan> plan = {};
  bool impossible = false;
  bool left = false;
  std::int64_t cost = 2000;  ///< of the budget
};

/// A layout that needs less memory, with the bounds of a schedule.
struct SavedMemory {
  PlanLayout layout;
  MinNeed need;
  std::int64_t cost = 0;  ///< tasks visited
};

/// Of the ways to need less memory the first that fits, else the last that is possible.
inline std::optional<SavedMemory> save_memory_of(const PlanLayout& layout, const ScheduleChoice& choice,
                                                 const PlanProber& prober) {
  const PlanRequest& request = prober.request();
  std::optional<SavedMemory> best;
  std::int64_t cost = 0;
  for (const PlanLayout& less : memory_savers(request, layout, prober.registry().info(choice.schedule).family)) {
    if (!prober.allows(less, choice)) continue;
    if (prober.is_worth(less) || prober.has_price(less, choice)) {
      const PlanProbe few = prober.probe(less, choice);
      cost += few.cost;
      if (few.seconds > 0 && !few.fits) continue;
    }
    try {
      const MinNeed need = prober.least(prober.problem_of(less, choice), choice);
      cost += need.ends;
      best = SavedMemory{less, need};
      if (need.fits) break;
    } catch (const InputError&) {  // the schedule cannot do that
    }
  }
  if (best) best->cost = cost;
  return best;
}

/// A candidate that does not fit with nothing computed again, and may with a part of each stage's
/// layers.
struct PlanPart {
  PlanLayout layout;  ///< with nothing computed again
  int most;           ///< layers of a stage, at most
  int first;          ///< the number to try first: about the least that cannot win
  int lost;           ///< of all layers, the least number that cannot win with any schedule
};

/// The least number of each stage's layers that must be computed again for a candidate to fit, with
/// its bounds: found by bisection, for memory only falls with the number, or, where the backward is
/// split, first falls and never again below what it was before it rises; which ends where what does
/// not fit cannot win either, nor with more layers.
/// @param wins  whether one with a greater number than that of the bound may be the best
/// @return  none if the schedule cannot do that; one that does not fit if all layers must be
/// computed again, or if one with fewer cannot win
template <class Wins>
std::optional<SavedMemory> min_recompute(const PlanPart& part, const ScheduleChoice& choice, const PlanProber& prober,
                                         Wins&& wins) {
  SavedMemory found{recomputing(part.layout, part.most), {.fits = false}, 0};
  std::int64_t cost = 2000;
  const auto need_of = [&](int layers, bool few) {
    const Problem problem = prober.problem_of(recomputing(part.layout, layers), choice);
    const MinNeed need = few ? prober.min_of_few(problem, choice) : prober.least(problem, choice);
    cost += need.ends;
    return need;
  };
  const auto is_enough = [](const MinNeed& need) { return need.fits || (need.kept == 0 && !need.splits_backward); };
  int least = 1;
  int enough = part.most;
  try {
    for (int layers = std::clamp(part.first, 1, std::max(1, part.most - 1)); least < enough;) {
      const MinNeed need = need_of(layers, false);
      const bool may_rise = need.splits_backward;
      if (!is_enough(need) && may_rise && layers < part.most && need_of(layers + 1, false).memory > need.memory) {
        enough = layers;  // with more layers nothing fits either
      } else if (!is_enough(need)) {
        least = layers + 1;
        const std::int64_t of_model = prober.request().problem.model->layers;
        const bool lost = (need.layers - need.kept) * of_model / std::max(1, need.layers) >= part.lost;
        if (lost || !wins(need.time)) return SavedMemory{recomputing(part.layout, layers), need, cost};
      } else {
        enough = layers;
        if (need.kept > 0) found = {recomputing(part.layout, layers), need, 0};
      }
      layers = (least + enough) / 2;
      if (may_rise || !prober.is_worth(part.layout)) continue;
      for (int most = enough; least < most; layers = least) {
        const int middle = (least + most) / 2;
        is_enough(need_of(middle, true)) ? most = middle : least = middle + 1;
      }
    }
  } catch (const InputError&) {
    return std::nullopt;
  }
  found.cost = cost;
  return found;
}

}  // namespace tawpipe::inline v0::detail
