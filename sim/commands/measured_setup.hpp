// What was measured, for files of measured times: the model, sequence and microbatch of the run.
// Not: the times (calibrate.cpp, what_if.cpp).
#pragma once

#include <cstdint>
#include <string>

#include "tawpipe/cost/measured.hpp"

namespace tawpipe::sim {

struct MeasuredSetup {
  std::string model;               ///< --model
  std::int64_t sequence = 0;       ///< --sequence
  std::int64_t microbatch = 1;     ///< --microbatch
  std::string recompute = "none";  ///< --recompute

  bool given() const { return !model.empty() && sequence > 0; }
};

/// @throws InputError  naming the flag that is missing
MeasuredWork work_of(const MeasuredSetup& setup);
/// The layers of its model. @throws InputError  as work_of()
int layers_of(const MeasuredSetup& setup);

}  // namespace tawpipe::sim
