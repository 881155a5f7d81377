// Device code of execute/cuda/kernels.hpp: sums and the norm of the gradient.
// Not: layers (src/layers/cuda/).
#include "tawpipe/execute/cuda/kernels.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <type_traits>

#include "tawpipe/execute/cuda/check.hpp"

namespace tawpipe::inline v0::cuda::kernels {

namespace {

constexpr int threads = 256;  // of a block

template <class T>
struct Wide {  // numbers are added in this
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};

template <class T>
__device__ T sum_of(T a, T b) {
  using W = typename Wide<T>::type;
  return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
}

/// 16 bytes at a time.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T of[size];
};

template <class T>
__global__ void add_packs(Pack<T>* to, const Pack<T>* from, std::int64_t packs) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += step) {
    Pack<T> a = to[i];
    const Pack<T> b = from[i];
#pragma unroll
    for (int k = 0; k < Pack<T>::size; ++k) a.of[k] = sum_of(a.of[k], b.of[k]);
    to[i] = a;
  }
}

template <class T>
__global__ void add_numbers(T* to, const T* from, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = sum_of(to[i], from[i]);
  }
}

/// Numbers before the first that is aligned to a pack.
template <class T>
__host__ __device__ std::int64_t before_packs(const T* from, std::int64_t count) {
  const auto offset = reinterpret_cast<std::uintptr_t>(from) % 16;
  const auto head = offset == 0 ? 0 : static_cast<std::int64_t>((16 - offset) / sizeof(T));
  return head < count ? head : count;
}

/// Enqueues a kernel: in place of <<<>>>, which a host's compiler does not know.
template <class... P>
void launch(void (*kernel)(P...), unsigned blocks, unsigned block_threads, cudaStream_t stream,
            const std::type_identity_t<P>&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(block_threads);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "launch of a kernel");
}

/// The sum over a block, right in its thread 0, in one order.
__device__ double block_sum(double mine) {
  using Reduce = cub::BlockReduce<double, threads>;
  __shared__ typename Reduce::TempStorage storage;
  return Reduce{storage}.Sum(mine);
}

template <class T>
__device__ double square(T x) {
  const auto value = static_cast<double>(static_cast<typename Wide<T>::type>(x));
  return value * value;
}

template <class T>
__global__ void square_parts(double* partials, const T* from, std::int64_t count) {
  double sum = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t head = before_packs(from, count);
  const std::int64_t packs = (count - head) / Pack<T>::size;
  const std::int64_t packed = packs * Pack<T>::size;
  for (std::int64_t i = first; i < packs; i += step) {
    const Pack<T> pack = reinterpret_cast<const Pack<T>*>(from + head)[i];
#pragma unroll
    for (int k = 0; k < Pack<T>::size; ++k) sum += square(pack.of[k]);
  }
  for (std::int64_t i = first; i < count - packed; i += step) sum += square(from[i < head ? i : i + packed]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void add_partials(float* sum, const double* partials, int parts) {
  double mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += threads) mine += partials[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) *sum = static_cast<float>(static_cast<double>(*sum) + mine);
}

__global__ void clip(float* scale, const float* square, const StepScalars* scalars) {
  const double norm = sqrt(static_cast<double>(*square));
  const double most = scalars->gradient_clip;
  *scale = most > 0 && !(norm <= most) ? static_cast<float>(most / norm) : 1.0F;  // a NaN stays one
}

unsigned blocks_for(std::int64_t pieces, std::int64_t most) {
  return static_cast<unsigned>(std::min((pieces + threads - 1) / threads, most));
}

template <class T>
void add_typed(std::byte* to, const std::byte* from, std::int64_t count, cudaStream_t stream) {
  constexpr std::int64_t max_blocks = 2048;
  auto* out = reinterpret_cast<T*>(to);
  const auto* in = reinterpret_cast<const T*>(from);
  std::int64_t begin = 0;
  if (reinterpret_cast<std::uintptr_t>(from) % 16 == reinterpret_cast<std::uintptr_t>(to) % 16) {
    begin = before_packs(out, count);
    const std::int64_t packs = (count - begin) / Pack<T>::size;
    if (packs > 0) {
      launch(add_packs<T>, blocks_for(packs, max_blocks), threads, stream, reinterpret_cast<Pack<T>*>(out + begin),
             reinterpret_cast<const Pack<T>*>(in + begin), packs);
    }
    if (begin > 0) launch(add_numbers<T>, 1, threads, stream, out, in, begin);
    begin += packs * Pack<T>::size;
  }
  if (begin < count) {
    launch(add_numbers<T>, blocks_for(count - begin, max_blocks), threads, stream, out + begin, in + begin, count - begin);
  }
}

/// Calls `use(T{})` with the type that `type` stands for.
template <class Use>
void with_type(Dtype type, const char* what, Use&& use) {
  switch (type) {
    case Dtype::f64:
      return use(double{});
    case Dtype::f32:
      return use(float{});
    case Dtype::bf16:
      return use(__nv_bfloat16{});
    case Dtype::f16:
      return use(__half{});
    case Dtype::f8:
      break;
  }
  throw InputError(concat(what, " of ", name(type), " is not supported; choose f32, bf16, f16 or f64"));
}

}  // namespace

void add(std::byte* to, const std::byte* from, std::int64_t count, Dtype type, cudaStream_t stream) {
  if (count <= 0) return;
  with_type(type, "a sum", [&](auto number) { add_typed<decltype(number)>(to, from, count, stream); });
}

void add_squares(float* sum, const std::byte* from, std::int64_t count, Dtype type, double* partials, cudaStream_t stream) {
  if (count <= 0) return;
  const unsigned blocks = blocks_for(count, square_partials);
  with_type(type, "a norm", [&](auto number) {
    using T = decltype(number);
    launch(square_parts<T>, blocks, threads, stream, partials, reinterpret_cast<const T*>(from), count);
  });
  launch(add_partials, 1, threads, stream, sum, partials, static_cast<int>(blocks));
}

void clip_scale(float* scale, const float* square, const StepScalars* scalars, cudaStream_t stream) {
  launch(clip, 1, 1, stream, scale, square, scalars);
}

}  // namespace tawpipe::cuda::kernels
