// The bound of all schedules as an answer, and the distance of a prediction from it.
// Not: the bound itself (search/bound.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tawpipe/answers/plan_question.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::inline v0::answers {

/// A lower bound in seconds on the time of any schedule; none without a model, with noise, or with
/// given or measured times.
std::optional<double> bound_of(const Problem& problem);

/// Adds the keys `bound_s` and `gap`, if there is a bound.
void add_gap(nlohmann::ordered_json& json, Duration makespan, const std::optional<double>& bound);

/// A line with the distance of `best` from it.
std::string gap_text(const Summary& best, double bound);

/// What no schedule is faster than, and what that follows from.
struct BoundAnswer {
  nlohmann::ordered_json json;  ///< the keys of docs/output.md
  std::string text;
  std::string complaint;  ///< if the model's states do not fit all devices together; otherwise ""
};
/// @throws InputError  for anything missing or impossible
BoundAnswer answer_bound(const PlanQuestion& question, const TableStyle& style);

}  // namespace tawpipe::answers
