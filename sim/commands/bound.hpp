// How far a prediction is from what any schedule can reach, for the commands that show it.
// Not: the command `bound` (plan.hpp) nor the bound itself (search/bound.hpp).
#pragma once

#include <optional>
#include <string>

#include "../request.hpp"

namespace tawpipe::sim {

/// Seconds that no schedule of any kind is faster than; none without a model, with noise, or with given or measured times.
std::optional<double> bound_of(const Problem& problem);

/// A line that says how far `best` is from it.
std::string gap_text(const Summary& best, double bound);

}  // namespace tawpipe::sim
