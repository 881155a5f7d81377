// A kernel that holds SMs and waits, as a communication's does whose peer has not come; to be
// called from plain C++.
// Not: a communication: it moves nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gpu {

/// Puts `ctas` thread blocks on the stream that spin until *stop is not 0, or until `nanoseconds`
/// have passed since each began. Where `threads` is more than 32, each takes all shared memory of
/// an SM, so that nothing else runs there.
/// @param stop  in device memory
/// @param begun  in device memory: one more for each block that has begun; null: not counted
void spin(int ctas, int threads, const int* stop, int* begun, std::uint64_t nanoseconds, cudaStream_t stream);

}  // namespace gpu
