// The result of a calibration: measured times, and how well they fit each class of tasks.
// Not: how it is found (calibrate.hpp from timelines, gpu_profile.hpp from a profiler's traces).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tawpipe/analysis/detail/nonnegative_fit.hpp"
#include "tawpipe/cost/measured.hpp"

namespace tawpipe::inline v0 {

/// How well the tasks of one class are fitted.
struct CalibrationClass {
  std::string name;       ///< of an op, "messages inside a node" or "messages between nodes"
  std::size_t tasks = 0;  ///< measured
  /// of them, in the fit; only messages that shared no link, if there are any
  std::size_t used = 0;
  double mean = 0;   ///< seconds, of those used
  double error = 0;  ///< sum of |measured - fitted| over the sum of measured, of those used
};

struct Calibration {
  MeasuredCost cost;
  std::vector<CalibrationClass> classes;  ///< the classes that occur, computations before messages
};

namespace detail {

/// Of the times of one pass: a layer's, and that of the embedding and of the head.
using PassFit = NonnegativeFit<3>;

template <std::size_t n>
void add_class(Calibration& found, Op op, const NonnegativeFit<n>& fit,
               const typename NonnegativeFit<n>::Features& coefficients) {
  found.classes.push_back({std::string{name(op)}, fit.size(), fit.size(), fit.mean(), fit.relative_error(coefficients)});
}

/// Solves the fit of one pass, if it was measured.
inline void finish_pass(Calibration& found, Op op, PassFit& fit, std::optional<MeasuredPass>& pass) {
  if (fit.empty()) return;
  const auto parts = fit.solve();
  pass = MeasuredPass{.layer = parts[0], .embedding = parts[1], .head = parts[2]};
  add_class(found, op, fit, parts);
}

}  // namespace detail

}  // namespace tawpipe
