// How far a prediction is from what any schedule can reach, for the commands that show it.
// Not: the command `bound` (plan.hpp) nor the bound itself (search/bound.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plan.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

/// Seconds that no schedule of any kind is faster than; none without a model, with noise, or with given or measured times.
std::optional<double> bound_of(const Problem& problem);

/// A line that says how far `best` is from it.
std::string gap_text(const Summary& best, double bound);

/// What `bound` says.
struct BoundAnswer {
  nlohmann::ordered_json json;  ///< the keys of docs/output.md
  std::string text;
  std::string complaint;  ///< where the model's states do not fit all devices together; "" where they do
};
/// @throws InputError  for anything missing or impossible
BoundAnswer answer_bound(const PlanFlags& flags, const TableStyle& style);

}  // namespace tawpipe::sim
