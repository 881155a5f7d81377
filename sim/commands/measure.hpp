// `tawpipe measure`, and what the command and its module for CUDA exchange.
// Not: the measurement (modules/measure.cpp).
#pragma once

#include <cstdint>
#include <string>

#include "tawpipe/analysis/fit_curves.hpp"

namespace tawpipe::sim {

struct MeasureRequest {
  std::int64_t gpu = 0;         ///< --gpu N, as CUDA numbers them
  std::int64_t largest = 8192;  ///< --largest N: rows of the largest products
  std::string device;           ///< --device NAME, the data sheet of the shares; "": by the driver's name
  std::string out;              ///< --out FILE|-
};

/// `tawpipe_measure` of the module. @throws DeviceError  if there is no such GPU, or it fails.
using MeasureDevice = void(int gpu, std::int64_t largest, MeasuredDevice& measured);

/// Times of kernels on a GPU, and the figures of its curves that follow. @throws InputError  for a
/// device that is not known.
int run_measure(const MeasureRequest& request);

}  // namespace tawpipe::sim
