// Names for stretches of the host's time, as Nsight Systems shows them.
// Not: times of tasks on the device (iteration.hpp).
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace tawpipe::inline v0::cuda {

/// A named stretch, from its making to its end; costs next to nothing where no profiler is attached.
class NvtxRange {
 public:
  explicit NvtxRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange() { nvtxRangePop(); }
};

}  // namespace tawpipe::cuda
