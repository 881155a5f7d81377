// Enqueues a kernel's body in a stream: declared for any compiler, defined in launch.cuh.
// Not: the bodies (norm_bodies.hpp etc.).
#pragma once

#include <cuda_runtime_api.h>

namespace tawpipe::inline v0::layers::cuda {

/// Runs `body` with the blocks of its grid(). It is compiled by nvcc where launch.cuh is included,
/// for the bodies listed there and the numbers float, Bfloat16 and Half: link one file that
/// includes it.
/// @throws DeviceError  if the launch fails.
template <class Body>
void launch(const Body& body, cudaStream_t stream);

}  // namespace tawpipe::layers::cuda
