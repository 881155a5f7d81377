// Predictions for the commands: the library's call, compiled once.
// Not: the request (request.hpp).
#include "tawpipe/search/predict.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/what_fits.hpp"

#include "request.hpp"

namespace tawpipe::sim {

std::optional<FittingLayout> find_fitting_layout(const Problem& problem) {
  return tawpipe::find_fitting_layout(problem, shipped());
}
Prediction predict(const Problem& problem, const HopelessSchedule* hopeless) {
  return tawpipe::predict(problem, shipped(), hopeless);
}

Chosen choose(const Problem& problem, const ScheduleChoice& choice) { return tawpipe::choose(problem, choice, shipped()); }

}  // namespace tawpipe::sim
