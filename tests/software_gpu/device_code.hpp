// tawpipe's device code, src/**/*.cu, compiled for a host: its kernels, called as functions by all
// threads of a block.
// Not: in what order threads run (block_threads.hpp). To be included by one file of a program, which
// nothing of layers/cuda/ may be linked to: it is compiled another way here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cxxabi.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <typeinfo>

#include "software_gpu/block_threads.hpp"

// ---- what nvcc knows by itself ------------------------------------------------------------------------------------------

#define TAWPIPE_DEVICE_CODE
#undef __shared__
#define __shared__ thread_local  // a block's threads are fibres of one thread
#define __launch_bounds__(...)

inline void __syncthreads() { software_gpu::wait_for_block(); }
template <class T>
T __shfl_xor_sync(unsigned, T x, int distance) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return std::bit_cast<T>(
      static_cast<Bits>(software_gpu::of_other_lane(std::bit_cast<Bits>(x), static_cast<unsigned>(distance))));
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }

#include "../src/execute/cuda/kernels.cu"
#include "../src/layers/cuda/launch.cu"

namespace tawpipe::inline v0::layers::cuda {
/// As much as a kernel may have that asks for no more.
thread_local float4 shared_memory[48 * 1024 / sizeof(float4)];
}  // namespace tawpipe::layers::cuda

namespace software_gpu {

/// The memory in common of the next block: NaNs, and what is behind it is out of bounds for the
/// address sanitizer.
inline float* shared_of_block(std::size_t bytes) {
  auto* const memory = reinterpret_cast<float*>(tawpipe::layers::cuda::shared_memory);
  ASAN_UNPOISON_MEMORY_REGION(memory, sizeof(tawpipe::layers::cuda::shared_memory));
  std::fill_n(memory, bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  ASAN_POISON_MEMORY_REGION(memory + bytes / sizeof(float), sizeof(tawpipe::layers::cuda::shared_memory) - bytes);
  return memory;
}
/// Runs kernel() as the threads of block (x, y) of a grid.
template <class Kernel>
Threads run_block(dim3 grid, dim3 block, std::size_t shared, unsigned x, unsigned y, const Kernel& kernel) {
  blockIdx = {x, y, 0};
  blockDim = block;
  gridDim = grid;
  shared_of_block(shared);
  return run_threads([](const void* one) { (*static_cast<const Kernel*>(one))(); }, &kernel);
}
/// All blocks. @return false if some threads wait for others that have ended
template <class Kernel>
bool run_grid(dim3 grid, dim3 block, std::size_t shared, const Kernel& kernel) {
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      if (run_block(grid, block, shared, x, y, kernel) == Threads::stuck) return false;
    }
  }
  return true;
}
/// The same for a body's kernel, in a time for tests: where threads wait, the first and the last block
/// of a row have theirs, and the others one each, as the body allows.
template <class Body>
bool run_grid_of(const Body& body, dim3 grid, dim3 block, std::size_t shared) {
  bool together = false;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      if (together && x > 0 && x + 1 < grid.x) {
        body(tawpipe::layers::cuda::HostBlock{x, grid.x, static_cast<int>(y), shared_of_block(shared)});
        continue;
      }
      const Threads ended = run_block(grid, block, shared, x, y, [&] { tawpipe::layers::cuda::run_body<Body>(body); });
      if (ended == Threads::stuck) return false;
      together = together || ended == Threads::together;
    }
  }
  return true;
}

template <class T>
std::string type_name() {
  char* const text = abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr);
  std::string name = text;
  std::free(text);
  for (std::size_t at = 0; (at = name.find(" >", at)) != std::string::npos;) name.erase(at, 1);
  return name;
}

/// Calls visit(name, kernel) for each kernel; name: a part of its whole name, without blanks before >.
template <class Visit>
void each_kernel(const Visit& visit) {
  using namespace tawpipe;
  namespace layers = tawpipe::layers::cuda;
  const auto bodies = [&]<class... Body>(std::type_identity<Body>...) {
    (visit("::run_body<" + type_name<Body>() + ">(", &layers::run_body<Body>), ...);
  };
  const auto of_numbers = [&]<class T, class... Wide>(std::type_identity<T>, std::type_identity<Wide>...) {
    bodies(std::type_identity<layers::RmsNorm<T>>{}, std::type_identity<layers::RmsNormBackward<T>>{},
           std::type_identity<layers::Rotate<T>>{}, std::type_identity<layers::Swiglu<T>>{},
           std::type_identity<layers::SwigluBackward<T>>{}, std::type_identity<layers::CopyNumbers<T>>{},
           std::type_identity<layers::LookUp<T>>{}, std::type_identity<layers::LogSumExp<T>>{},
           std::type_identity<layers::CrossEntropyBackward<T>>{}, std::type_identity<layers::PlainAttention<T>>{},
           std::type_identity<layers::PlainAttentionQueries<T>>{}, std::type_identity<layers::PlainAttentionKeys<T>>{},
           std::type_identity<layers::AddTo<T>>{}, std::type_identity<layers::AddRuns<T>>{});
    (bodies(std::type_identity<layers::SumRuns<T, Wide>>{}, std::type_identity<layers::AdamWBody<T, Wide>>{}), ...);
  };
  const auto float_too = std::type_identity<float>{};
  of_numbers(float_too, float_too);
  of_numbers(std::type_identity<Bfloat16>{}, std::type_identity<Bfloat16>{}, float_too);
  of_numbers(std::type_identity<Half>{}, std::type_identity<Half>{}, float_too);
  bodies(std::type_identity<layers::SortTokens>{}, std::type_identity<layers::SumRows>{}, std::type_identity<layers::MeanLoss>{},
         std::type_identity<layers::PrepareAdamW>{});
  const auto sums = [&]<class T>(std::type_identity<T>) {
    const std::string of = "<" + type_name<T>() + ">(";
    visit("::add_packs" + of, &cuda::kernels::add_packs<T>);
    visit("::add_numbers" + of, &cuda::kernels::add_numbers<T>);
    visit("::square_parts" + of, &cuda::kernels::square_parts<T>);
  };
  sums(std::type_identity<float>{});
  sums(std::type_identity<double>{});
  sums(std::type_identity<__nv_bfloat16>{});
  sums(std::type_identity<__half>{});
  visit(std::string{"::add_partials("}, &cuda::kernels::add_partials);
  visit(std::string{"::clip("}, &cuda::kernels::clip);
}

}  // namespace software_gpu
