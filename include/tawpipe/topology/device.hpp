// A device (GPU): memory and peak rates, from its data sheet.
// Not: its place in a cluster (topology/cluster.hpp) nor its utilization (cost/roofline.hpp).
#pragma once

#include <string>

#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// An upper limit on the multiprocessors of any device.
inline constexpr int max_device_sms = 4096;

/// A device according to its data sheet.
struct DeviceSpec {
  std::string name{};
  Bytes memory{};                     ///< total device memory
  FlopsPerSecond peak{};              ///< dense 16-bit matrix peak (no sparsity)
  FlopsPerSecond peak_fp8{};          ///< dense 8-bit one; 0: none
  FlopsPerSecond peak_fp4{};          ///< dense 4-bit one; 0: none
  BytesPerSecond memory_bandwidth{};  ///< device memory, read plus write
  int sms = 0;                        ///< multiprocessors; 0: unknown
  bool assumed = false;               ///< the machine's description did not name it

  /// The same numbers, however they were found.
  bool operator==(const DeviceSpec& other) const {
    return name == other.name && memory == other.memory && peak == other.peak && peak_fp8 == other.peak_fp8 &&
           peak_fp4 == other.peak_fp4 && memory_bandwidth == other.memory_bandwidth && sms == other.sms;
  }
};

}  // namespace tawpipe
