// Device code of spin.hpp.
// Not: the measurement (beside.cpp).
#include "spin.hpp"

#include "tawpipe/execute/cuda/check.hpp"

namespace gpu {

namespace {

__device__ std::uint64_t now() {
  std::uint64_t nanoseconds = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

/// One thread looks at the flag, and the others of its block wait for it, as in a receive of NCCL.
__global__ void spin_until(const int* stop, int* begun, std::uint64_t nanoseconds) {
  if (threadIdx.x == 0) {
    const std::uint64_t begin = now();
    if (begun != nullptr) atomicAdd(begun, 1);
    while (*static_cast<const volatile int*>(stop) == 0 && now() - begin < nanoseconds) {
    }
  }
  __syncthreads();
}

}  // namespace

void spin(int ctas, int threads, const int* stop, int* begun, std::uint64_t nanoseconds, cudaStream_t stream) {
  cudaDeviceProp properties{};
  int device = 0;
  tawpipe::cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  tawpipe::cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  // A block has 1 KiB in addition to what it requests, so with the most that it may have an SM is
  // full.
  const int shared = threads > 32 ? static_cast<int>(properties.sharedMemPerBlockOptin) : 0;
  tawpipe::cuda::check(cudaFuncSetAttribute(spin_until, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                       "cudaFuncSetAttribute");
  spin_until<<<static_cast<unsigned>(ctas), static_cast<unsigned>(threads), static_cast<std::size_t>(shared), stream>>>(
      stop, begun, nanoseconds);
  tawpipe::cuda::check(cudaGetLastError(), "spin");
}

}  // namespace gpu
