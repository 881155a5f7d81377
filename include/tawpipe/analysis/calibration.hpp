// The result of a calibration: measured times, and how well they fit each class of tasks.
// Not: how it is found (calibrate.hpp from timelines, gpu_profile.hpp from a profiler's traces).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

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

}  // namespace tawpipe
