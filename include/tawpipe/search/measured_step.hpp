// One measured step of a run, and what it says of other layouts of the same model and software.
// Not: the times of its parts (tawpipe calibrate, analysis/calibrate.hpp).
#pragma once

#include <variant>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/cost/device_curves.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// Of --cost kernels:speed=..., with which a step is predicted to take what was measured.
///
/// Example: `speed_of_step(problem, prediction.summary.makespan, seconds(9.1))`
/// @param predicted  of the run that was measured, by `problem`'s cost
/// @throws InputError  for other costs, for several sizes of microbatches or recomputations, and for times
/// that are no step of that run
inline double speed_of_step(const Problem& problem, Duration predicted, Duration measured) {
  const auto* const cost = std::get_if<KernelCost>(&problem.cost);
  if (cost == nullptr) throw InputError("--step-time is set against --cost kernels; leave the other cost out");
  if (problem.microbatch_sizes.size() != 1 || problem.recomputes.size() > 1) {
    throw InputError(
        "--step-time is of a run with one size of microbatches and one recomputation; give --microbatch and --recompute as it "
        "had them");
  }
  if (measured <= Duration{}) throw InputError("--step-time must be above 0: the time that one step was measured to take");
  const double speed = cost->speed() * (predicted / measured);
  if (speed < 0.05 || speed > 10) {
    throw InputError(concat("a step of ", to_seconds(measured), " s is not one of this run, which is predicted to take ",
                            to_seconds(predicted), " s; give its model, batch and layout as they were"));
  }
  return speed;
}

}  // namespace tawpipe
