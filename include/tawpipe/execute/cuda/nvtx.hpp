// Named ranges of the host's time, shown by Nsight Systems.
// Not: times of tasks on the device (iteration.hpp).
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace tawpipe::inline v0::cuda {

/// A named range, for the object's lifetime; costs next to nothing if no profiler is attached.
class NvtxRange {
 public:
  explicit NvtxRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange() { nvtxRangePop(); }
};

}  // namespace tawpipe::cuda
