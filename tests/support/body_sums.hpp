// What all steps of a stage's body do together.
#pragma once

#include "tawpipe/model/shared_stage.hpp"

namespace support {

inline double flops(const tawpipe::StageBody& body) {
  double sum = 0;
  for (const tawpipe::BodyStep& step : body) sum += step.flops.value();
  return sum;
}
/// Bytes.
inline double traffic(const tawpipe::StageBody& body) {
  double sum = 0;
  for (const tawpipe::BodyStep& step : body) sum += static_cast<double>(step.traffic.value());
  return sum;
}

}  // namespace support
