// The threads of a block of device code on a host: one at a time, each until it waits for others.
// Not: the code (device_code.hpp), nor blocks side by side.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// As in device code; reached without a call also from a shared library.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local uint3 threadIdx;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local uint3 blockIdx;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local dim3 blockDim;
[[gnu::tls_model("initial-exec")]] extern constinit thread_local dim3 gridDim;

namespace software_gpu {

/// How a block's threads have ended: none has waited, some have, some wait for ones that have ended.
enum class Threads { alone, together, stuck };

/// Calls run(argument) as each of blockDim.x threads. One that does not wait costs a call; who
/// waits gets a stack of its own. Thread sanitizer sees each as a thread, ordered by what they wait
/// for.
Threads run_threads(void (*run)(const void*), const void* argument);

/// From a thread: until all threads of the block are here.
void wait_for_block();
/// From a thread: until all of its warp are here. @return what lane `mine ^ distance` gave; all ones
/// where there is no such lane
std::uint64_t of_other_lane(std::uint64_t given, unsigned distance);

}  // namespace software_gpu
