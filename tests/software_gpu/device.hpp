// What CUDA's functions on the software GPU share: this thread's device, its last error, memory,
// the way into a stream.
// Not: the functions (devices.cpp, cudart.cpp, launches.cpp).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "software_gpu/streams.hpp"

namespace software_gpu {

int current_device();
/// Keeps it as the thread's last error.
cudaError_t fail(cudaError_t error);
/// Something that a stream has met: all calls fail from now on, as on a GPU.
void fault(cudaError_t error);
/// What `fault` was told last.
cudaError_t broken();
/// Bytes.
std::size_t memory_of_device();

/// The thread's stream where none is named.
Stream& default_stream();
inline Stream& stream_of(cudaStream_t stream) {
  return stream == nullptr ? default_stream() : *reinterpret_cast<Stream*>(stream);
}

/// Puts work into a stream or, where that is captured, into the graph.
cudaError_t put(cudaStream_t stream, Work work);

}  // namespace software_gpu
