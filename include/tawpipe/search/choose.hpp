// The one call: from a problem to the best choice of everything left open, with its timeline and
// summary.
// Not: prediction of a given choice (search/predict.hpp) nor the search for a layout
// (search/plan.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// The best choice of what `choice` and the problem leave open: options
/// (ScheduleChoice::automatic), recomputation, microbatch size: the fastest that fits, found like a
/// plan (PlanResult). If nothing fits, or everything exceeds the budget, the variant that needs the
/// least memory.
/// @throws InputError  for an unknown schedule or option, or an impossible size.
/// Complexity: that of a plan of at most 24 million tasks; if nothing is open, of one prediction
/// for each microbatch size; for Problem::stack and costs that no plan knows, of one for each size
/// of each variant.
TAWPIPE_INLINE Chosen choose(const Problem& problem, const ScheduleChoice& choice, const Registry& registry);

/// The problem with all choices for `choice` filled in.
inline Problem chosen_problem(Problem problem, const Chosen& chosen) {
  problem.schedules = {chosen.choice};
  problem.recomputes.clear();
  problem.recompute = chosen.recompute;
  if (problem.model && chosen.recompute_layers > 0) problem.model->recompute_layers = chosen.recompute_layers;
  if (problem.has_model()) problem.microbatch_sizes = {chosen.summary.microbatch_size};
  return problem;
}

/// The best over the problem's schedules and everything left open (choose(), Predictor::best): the
/// fastest of those that fit; if none fits, the first.
/// @param hopeless  as Predictor::best(), if nothing is open; null: nobody is told
/// @throws InputError  for an invalid problem, or an unknown schedule or option.
///
/// Example:
/// ```cpp
/// const tawpipe::Problem problem{.cluster = cluster, .model = model, .sequence = 4096, .global_batch = 512,
///                                .schedules = {{"tawpipe"}, {.schedule = "1f1b", .automatic = true}}};
/// const tawpipe::Prediction best = predict(problem, tawpipe::shipped_schedules());
/// ```
TAWPIPE_INLINE Prediction predict(const Problem& problem, const Registry& registry, const HopelessSchedule* hopeless = nullptr);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/plan.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The budget of tasks for one schedule (PlanRequest::budget).
inline constexpr std::int64_t choice_budget = 24'000'000;

/// The problem as a plan with its own mesh, if that is possible.
inline std::optional<PlanRequest> request_of(const Problem& problem, std::vector<ScheduleChoice> variants,
                                             std::vector<Recompute> recomputes) {
  const bool costs = std::holds_alternative<KernelCost>(problem.cost) || std::holds_alternative<RooflineCost>(problem.cost);
  if (!problem.model || !costs || !problem.noise.is_none() || problem.sequence < 1) return std::nullopt;
  const Mesh mesh = problem.mesh.over(problem.cluster.ranks());
  PlanRequest request{.problem = problem,
                      .axes = mesh.sizes(),
                      .orders = {mesh.order},
                      .microbatch_sizes = problem.candidate_sizes(),
                      .recompute = std::move(recomputes),
                      .schedules = std::move(variants),
                      .budget = choice_budget,
                      .cheapest_first = true};
  request.partial_recompute = problem.model->recompute_layers == 0;
  if (problem.microbatches > 0) {
    if (request.microbatch_sizes.size() != 1) return std::nullopt;
    request.problem.global_batch = problem.microbatches * request.microbatch_sizes[0];
    request.problem.microbatches = 0;
  }
  return request;
}

/// The options without chosen values that equal the defaults.
inline ScheduleChoice notable(ScheduleChoice chosen, const ScheduleChoice& asked, const Registry& registry) {
  for (const OptionInfo& option : registry.info(chosen.schedule).options) {
    const auto at = chosen.options.find(option.name);
    if (at == chosen.options.end()) continue;
    const auto given = asked.options.find(option.name);
    const bool open = given == asked.options.end() || given->second != at->second;
    if (open && at->second == option.standard) chosen.options.erase(at);
  }
  return chosen;
}

/// The problem with the last of its recomputations alone.
inline Problem with_last_recompute(Problem problem) {
  if (!problem.recomputes.empty()) problem.recompute = problem.recomputes.back();
  problem.recomputes.clear();
  return problem;
}

/// The one way of running `choice` that the problem leaves, but for the microbatch size; none if it
/// leaves several.
inline std::optional<ScheduleChoice> only_variant(const Problem& problem, const ScheduleChoice& choice,
                                                  const Registry& registry) {
  if (problem.recomputes.size() > 1) return std::nullopt;
  std::vector<ScheduleChoice> variants = variants_of(registry, choice, problem.cluster);
  return variants.size() == 1 ? std::optional{std::move(variants[0])} : std::nullopt;
}

/// The best over the microbatch sizes for one variant.
inline Chosen best_of(const Problem& problem, const ScheduleChoice& variant, const ScheduleChoice& asked,
                      const Registry& registry) {
  return {notable(variant, asked, registry), problem.recompute, 0, Predictor{problem, registry}.best(variant).summary};
}

/// choose(); with `any`, the first found that fits.
inline Chosen choose(const Problem& problem, const ScheduleChoice& choice, const Registry& registry, bool any) {
  if (problem.stack) problem.check();
  const std::vector<ScheduleChoice> variants = variants_of(registry, choice, problem.cluster);
  const std::vector<Recompute> recomputes =
      problem.recomputes.empty() ? std::vector<Recompute>{problem.recompute} : problem.recomputes;
  Problem fixed = with_last_recompute(problem);
  if (variants.size() == 1 && recomputes.size() == 1) return best_of(fixed, variants[0], choice, registry);
  if (const std::optional<PlanRequest> request = request_of(fixed, variants, recomputes)) {
    PlanResult found = plan(*request, registry, one_by_one, [&](const PlanProgress& now) { return !any || now.best == nullptr; });
    check_stop();  // the best so far is not what was asked for
    const auto chosen = [&](Plan& plan) -> Chosen {
      return {notable(std::move(plan.choice), choice, registry), plan.layout.recompute, plan.layout.recompute_layers,
              std::move(plan.summary)};
    };
    if (!found.plans.empty()) return chosen(found.plans[0]);
    if (found.counts.left == 0 && !found.closest.empty()) return chosen(found.closest[0]);
    return best_of(fixed, variants[0], choice, registry);
  }
  std::optional<Chosen> best;
  for (const Recompute recompute : recomputes) {
    fixed.recompute = recompute;
    const Predictor predictor{fixed, registry};
    for (const ScheduleChoice& variant : variants) {
      if (any && best && best->summary.fits()) break;
      keep_better(best, Chosen{variant, recompute, 0, predictor.best(variant).summary});
    }
  }
  best->choice = notable(std::move(best->choice), choice, registry);
  return *std::move(best);
}

/// choose(), or with `any` the first found, if that fits; without Summary::held where bounds decide.
inline std::optional<Chosen> choose_fitting(const Problem& problem, const ScheduleChoice& choice, const Registry& registry,
                                            bool any) {
  const std::optional<ScheduleChoice> variant = only_variant(problem, choice, registry);
  if (!variant) {
    Chosen found = choose(problem, choice, registry, any);
    return found.summary.fits() ? std::optional{std::move(found)} : std::nullopt;
  }
  const Problem fixed = with_last_recompute(problem);
  std::optional<Prediction> found = Predictor{fixed, registry}.best_that_may_fit(*variant);
  if (!found || !found->fits()) return std::nullopt;
  return Chosen{notable(*variant, choice, registry), fixed.recompute, 0, std::move(found->summary)};
}

}  // namespace detail

TAWPIPE_INLINE Chosen choose(const Problem& problem, const ScheduleChoice& choice, const Registry& registry) {
  return detail::choose(problem, choice, registry, false);
}

TAWPIPE_INLINE Prediction predict(const Problem& problem, const Registry& registry, const HopelessSchedule* hopeless) {
  const auto is_fixed = [&](const ScheduleChoice& choice) { return detail::only_variant(problem, choice, registry).has_value(); };
  if (std::all_of(problem.schedules.begin(), problem.schedules.end(), is_fixed)) {
    const Problem fixed = detail::with_last_recompute(problem);
    return Predictor{fixed, registry}.best(hopeless);
  }
  std::optional<Chosen> best;
  for (const ScheduleChoice& choice : problem.schedules) detail::keep_better(best, choose(problem, choice, registry));
  if (!best) throw InputError("the problem names no schedule to predict");
  const Problem fixed = chosen_problem(problem, *best);
  return Predictor{fixed, registry}.best();
}

}  // namespace tawpipe
#endif
