// Predictions for the commands: the library's call, compiled once.
// Not: what is asked (request.hpp).
#include "tawpipe/search/predict.hpp"
#include "tawpipe/search/what_fits.hpp"

#include "request.hpp"

namespace tawpipe::sim {

std::optional<FittingLayout> find_fitting_layout(const Problem& problem) {
  return tawpipe::find_fitting_layout(problem, shipped());
}
Prediction predict(const Problem& problem) { return tawpipe::predict(problem, shipped()); }
Prediction predict(const Problem& problem, Schedule schedule) { return tawpipe::predict(problem, std::move(schedule)); }

Summary best_summary(const Predictor& predictor, const ScheduleChoice& choice) { return predictor.best(choice).summary; }

}  // namespace tawpipe::sim
