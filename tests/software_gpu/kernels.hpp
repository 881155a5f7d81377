// What tawpipe's kernels do on the software GPU, by their names.
// Not: how a launch comes here (launches.cpp).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "software_gpu/streams.hpp"

namespace software_gpu {

/// One launch: what `<<<grid, block, shared>>>` says, and the addresses of the arguments, which are
/// gone after the call.
struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  void** arguments;
};

/// The work of a launch; none if there is no such kernel. @param name  demangled
Work kernel_work(const std::string& name, const Launch& launch);

}  // namespace software_gpu
