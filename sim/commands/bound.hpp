// The distance of a prediction from the bound of all schedules, for the commands that show it.
// Not: the command `bound` (plan.hpp) nor the bound itself (search/bound.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plan.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

/// A lower bound in seconds on the time of any schedule; none without a model, with noise, or with
/// given or measured times.
std::optional<double> bound_of(const Problem& problem);

/// Adds the keys `bound_s` and `gap`, if there is a bound.
void add_gap(nlohmann::ordered_json& json, Duration makespan, const std::optional<double>& bound);

/// A line with the distance of `best` from it.
std::string gap_text(const Summary& best, double bound);

/// The result of `bound`.
struct BoundAnswer {
  nlohmann::ordered_json json;  ///< the keys of docs/output.md
  std::string text;
  std::string complaint;  ///< if the model's states do not fit all devices together; otherwise ""
};
/// @throws InputError  for anything missing or impossible
BoundAnswer answer_bound(const PlanFlags& flags, const TableStyle& style);

}  // namespace tawpipe::sim
