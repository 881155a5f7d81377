// Which plan of a search to use: what runs in a framework and is simple, of those that a prediction
// cannot tell apart.
// Not: the search (search/plan.hpp), nor the words of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "tawpipe/frameworks/runs_in.hpp"
#include "tawpipe/search/plan_result.hpp"

namespace tawpipe::inline v0 {

/// Indices are of PlanResult::plans.
struct Verdict {
  std::size_t use = 0;
  /// the frameworks that run it as predicted; none: none runs any plan that was found
  std::vector<Framework> runs;
  ExpectedError error;  ///< of its time
  /// Two plans that one software runs are told apart where the logarithm of the ratio of their times is
  /// above this (pair_error()).
  double apart = 0;
  /// Other plans that the same framework runs and that are not told apart from it, fastest first.
  std::vector<std::size_t> alike;
  std::optional<std::size_t> beyond;  ///< the fastest of all, where it is another and no framework runs it as predicted
  double beyond_apart = 0;            ///< the logarithm of the ratio of its time and that of `use`
  double beyond_error = 0;            ///< by the errors of both: the times are told apart where it is less
  bool beyond_is_told_apart() const { return beyond_apart > beyond_error; }
};

namespace detail {

/// How much there is to set up: axes of parallelism, and what is done to save memory.
inline int parts_of(const Plan& plan) {
  const PlanLayout& layout = plan.layout;
  const Mesh& mesh = layout.mesh;
  int parts = 0;
  for (const int size : {mesh.tensor, mesh.context, mesh.pipeline, mesh.batch_parts()}) parts += size > 1 ? 1 : 0;
  parts += static_cast<int>(plan.choice.options.count("chunks"));
  for (const bool more : {mesh.whole_experts, layout.recompute != Recompute::none, layout.offload && layout.offload->any(),
                          layout.balanced_stages, layout.loss_chunk > 0})
    parts += more ? 1 : 0;
  return parts;
}

inline double apart(const Plan& a, const Plan& b) { return std::abs(std::log(a.summary.makespan / b.summary.makespan)); }

}  // namespace detail

/// The plan to use, of a search's result.
///
/// Of the plans that a framework runs (`only`, where it is given) the fastest is taken, or a simpler one
/// that is the faster one with a chance of one in three at least: 0.43 standard deviations of pair_error()
/// from it. @pre not result.plans.empty()
inline Verdict verdict_of(const PlanRequest& request, const PlanResult& result, std::optional<Framework> only = {}) {
  const std::vector<Plan>& plans = result.plans;
  std::vector<std::vector<Framework>> runs(plans.size());
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    runs[i] = runs_as_predicted(problem_of(request, plans[i].layout, plans[i].choice), plans[i].layout, plans[i].choice);
    if (only) std::erase_if(runs[i], [&](Framework one) { return one != *only; });
    if (!first && !runs[i].empty()) first = i;
  }
  Verdict verdict;
  verdict.use = first.value_or(0);
  const auto class_of = [&](std::size_t i) { return error_class(request.problem, software_of(request.problem, runs[i])); };
  verdict.apart = pair_error(class_of(verdict.use));
  constexpr double one_in_three = 0.43 / detail::normal_90th;  // of what 80 % are below
  const std::size_t fastest = verdict.use;
  const auto shares = [&](std::size_t i) {
    return runs[i] == runs[fastest] ||
           std::find_first_of(runs[i].begin(), runs[i].end(), runs[fastest].begin(), runs[fastest].end()) != runs[i].end();
  };
  for (std::size_t i = fastest + 1; i < plans.size() && first; ++i) {
    if (detail::apart(plans[i], plans[fastest]) > one_in_three * verdict.apart) break;
    if (shares(i) && detail::parts_of(plans[i]) < detail::parts_of(plans[verdict.use])) verdict.use = i;
  }
  verdict.runs = runs[verdict.use];
  verdict.error = expected_error(class_of(verdict.use));
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (i != verdict.use && shares(i) && detail::apart(plans[i], plans[verdict.use]) <= verdict.apart) verdict.alike.push_back(i);
  }
  if (first && *first > 0) {
    verdict.beyond = 0;
    verdict.beyond_apart = detail::apart(plans[0], plans[verdict.use]);
    verdict.beyond_error = difference_error(expected_error(class_of(0)), verdict.error);
  }
  return verdict;
}

}  // namespace tawpipe
