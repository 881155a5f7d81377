// A GPU's block of threads, and the launches of all bodies for float, Bfloat16 and Half: include it
// in one .cu file of a program.
// Not: the bodies themselves (norm_bodies.hpp and the others in this folder).
#pragma once

#include <cuda_runtime.h>

#include "tawpipe/layers/cuda/adamw_bodies.hpp"
#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/check.hpp"
#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/embedding_bodies.hpp"
#include "tawpipe/layers/cuda/launch.hpp"
#include "tawpipe/layers/cuda/loss_bodies.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// Models the block of block.hpp on a GPU, of at most max_threads. Threads are whole warps, or
/// one.
class DeviceBlock {
 public:
  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ std::int64_t count() const { return gridDim.x; }
  __device__ int row() const { return static_cast<int>(blockIdx.y); }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  __device__ float* shared() const {
    extern __shared__ float4 shared_memory[];
    return reinterpret_cast<float*>(shared_memory);
  }
  template <class F>
  __device__ F sum(F x) const {
    return over_block(x, [](F a, F b) { return a + b; });
  }
  __device__ float largest(float x) const {
    return over_block(x, [](float a, float b) { return fmaxf(a, b); });
  }

 private:
  template <class F>
  __device__ static F of_other(F x, int distance) {
    return __shfl_xor_sync(0xffffffffU, x, distance);
  }
  __device__ static Pair of_other(Pair x, int distance) { return {of_other(x.first, distance), of_other(x.second, distance)}; }
  /// In the same order in every run, and the same bits in all threads.
  template <class F, class Join>
  __device__ F over_block(F x, Join join) const {
    alignas(F) __shared__ unsigned char memory[32 * sizeof(F)];  // a Pair is not made in shared memory
    F* const of_warp = reinterpret_cast<F*>(memory);
    for (int distance = 16; distance > 0; distance /= 2) x = join(x, of_other(x, distance));
    const unsigned warp = threadIdx.x / 32;
    __syncthreads();  // the last call's numbers have been read
    if (threadIdx.x % 32 == 0) of_warp[warp] = x;
    __syncthreads();
    F joined = of_warp[0];
    for (unsigned w = 1; w < blockDim.x / 32; ++w) joined = join(joined, of_warp[w]);
    return joined;
  }
};

/// The number of blocks of a body that a processor must at least be able to hold.
template <class Body>
constexpr int blocks_together() {
  if constexpr (requires { Body::together; }) return Body::together;
  return 1;
}

template <class Body>
__global__ void __launch_bounds__(max_threads, blocks_together<Body>()) run_body(const Body body) {
  body(DeviceBlock{});
}

template <class Body>
void launch(const Body& body, cudaStream_t stream) {
  const Grid grid = body.grid();
  if (grid.blocks == 0) return;
  cudaLaunchConfig_t config{};  // in place of <<<>>>, which a host's compiler does not know
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.rows));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.shared) * sizeof(float);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, run_body<Body>, body), "launch of a kernel");
}

#define TAWPIPE_LAUNCHES_OF(T)                                         \
  template void launch(const RmsNorm<T>&, cudaStream_t);               \
  template void launch(const RmsNormBackward<T>&, cudaStream_t);       \
  template void launch(const Rotate<T>&, cudaStream_t);                \
  template void launch(const Swiglu<T>&, cudaStream_t);                \
  template void launch(const SwigluBackward<T>&, cudaStream_t);        \
  template void launch(const CopyNumbers<T>&, cudaStream_t);           \
  template void launch(const LookUp<T>&, cudaStream_t);                \
  template void launch(const LogSumExp<T>&, cudaStream_t);             \
  template void launch(const CrossEntropyBackward<T>&, cudaStream_t);  \
  template void launch(const PlainAttention<T>&, cudaStream_t);        \
  template void launch(const PlainAttentionQueries<T>&, cudaStream_t); \
  template void launch(const PlainAttentionKeys<T>&, cudaStream_t);    \
  template void launch(const AddTo<T>&, cudaStream_t);                 \
  template void launch(const SumRuns<T, T>&, cudaStream_t);            \
  template void launch(const AddRuns<T>&, cudaStream_t);               \
  template void launch(const AdamWBody<T, T>&, cudaStream_t);
#define TAWPIPE_LAUNCHES_WITH_FLOAT_GRADIENTS(T)                \
  template void launch(const SumRuns<T, float>&, cudaStream_t); \
  template void launch(const AdamWBody<T, float>&, cudaStream_t);

TAWPIPE_LAUNCHES_OF(float)
TAWPIPE_LAUNCHES_OF(Bfloat16)
TAWPIPE_LAUNCHES_OF(Half)
TAWPIPE_LAUNCHES_WITH_FLOAT_GRADIENTS(Bfloat16)
TAWPIPE_LAUNCHES_WITH_FLOAT_GRADIENTS(Half)
template void launch(const SortTokens&, cudaStream_t);
template void launch(const SumRows&, cudaStream_t);
template void launch(const MeanLoss&, cudaStream_t);
template void launch(const PrepareAdamW&, cudaStream_t);

#undef TAWPIPE_LAUNCHES_OF
#undef TAWPIPE_LAUNCHES_WITH_FLOAT_GRADIENTS

}  // namespace tawpipe::layers::cuda
