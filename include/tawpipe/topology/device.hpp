// What one device (GPU) is: memory and peak rates, from its data sheet.
// Not: where it sits (topology/cluster.hpp) nor how well it is used (cost/roofline.hpp).
#pragma once

#include <string>

#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// More multiprocessors than this no device has.
inline constexpr int max_device_sms = 4096;

/// A device as its data sheet states it.
struct DeviceSpec {
  std::string name{};
  Bytes memory{};                     ///< total device memory
  FlopsPerSecond peak{};              ///< dense 16-bit matrix peak (no sparsity)
  FlopsPerSecond peak_fp8{};          ///< dense 8-bit one; 0: it has none
  FlopsPerSecond peak_fp4{};          ///< dense 4-bit one; 0: it has none
  BytesPerSecond memory_bandwidth{};  ///< device memory, read plus write
  int sms = 0;                        ///< multiprocessors; 0: not known

  bool operator==(const DeviceSpec&) const = default;
};

}  // namespace tawpipe
