// What libcudart of the software GPU does for its other libraries in addition to CUDA's functions;
// C names, found at run time.
// Not: CUDA's functions (cudart.cpp).
#pragma once

#include <cuda_runtime_api.h>

extern "C" {

/// Waits until the device's processors (SOFTWARE_GPU_SMS, 132) let the caller have `wanted` of
/// them, and keeps those that it has got meanwhile: what runs holds them to its end. Who comes
/// first is served first, whose stream has a higher priority before.
/// @param all  0: one is enough, and as many as are free up to `wanted` are taken. @return how many
/// the caller has now
int software_gpu_take_processors(int device, int wanted, int all);
void software_gpu_give_processors(int device, int count);

/// Frees device memory without waiting for anything.
void software_gpu_free(void* at);

/// The number of the capture that the stream is in, from 1; 0: none.
unsigned long long software_gpu_capture(cudaStream_t stream);
/// Calls `release(held)` once the graph that is being captured, and all that was made of it, is
/// gone and no launch of it runs.
void software_gpu_hold(cudaStream_t stream, void (*release)(void*), void* held);
}
