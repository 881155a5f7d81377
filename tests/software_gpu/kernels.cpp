// What tawpipe's kernels do on the software GPU: the bodies of layers/cuda block by block, those of
// execute/cuda written out again.
// Not: a GPU's order of sums, nor its threads (tests/unit/layers/cuda/bodies_test.cpp runs bodies
// by several).
#include "software_gpu/kernels.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <typeinfo>
#include <vector>

#include "software_gpu/device.hpp"
#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/core/half.hpp"
#include "tawpipe/layers/cuda/adamw_bodies.hpp"
#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/embedding_bodies.hpp"
#include "tawpipe/layers/cuda/loss_bodies.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"

namespace software_gpu {

namespace {

using namespace tawpipe;
namespace bodies = tawpipe::layers::cuda;

template <class T>
T argument(const Launch& launch, int number) {
  return *static_cast<const T*>(launch.arguments[number]);
}

std::string name_of(const std::type_info& type) {
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
  std::string name = text;
  std::free(text);
  return name;
}

// ---- bodies of layers/cuda ----------------------------------------------------------------------------------------------

/// One block after the other, each of one thread, if the launch is as large as the body asks for.
template <class Body>
Work body_work(const Launch& launch) {
  const Body body = argument<Body>(launch, 0);
  const bodies::Grid grid = body.grid();
  const bool as_asked = launch.grid.x == grid.blocks && launch.grid.y == static_cast<unsigned>(grid.rows) &&
                        launch.block.x == static_cast<unsigned>(grid.threads) &&
                        launch.shared == static_cast<std::size_t>(grid.shared) * sizeof(float);
  return [=] { as_asked ? bodies::run_on_host(body) : fault(cudaErrorInvalidConfiguration); };
}

/// If `name` is run_body for one of these bodies.
template <class... Body>
Work find_body(const std::string& name, const Launch& launch) {
  Work found;
  const auto look = [&]<class One>(const One*) {
    const std::string type = name_of(typeid(One));
    const std::string part = "::layers::cuda::run_body<" + type + (type.back() == '>' ? " >(" : ">(");
    if (name.find(part) != std::string::npos) found = body_work<One>(launch);
  };
  (look(static_cast<const Body*>(nullptr)), ...);
  return found;
}
template <class T>
Work find_body_of(const std::string& name, const Launch& launch) {
  return find_body<bodies::RmsNorm<T>, bodies::RmsNormBackward<T>, bodies::Rotate<T>, bodies::Swiglu<T>,
                   bodies::SwigluBackward<T>, bodies::CopyNumbers<T>, bodies::LookUp<T>, bodies::LogSumExp<T>,
                   bodies::CrossEntropyBackward<T>, bodies::PlainAttention<T>, bodies::PlainAttentionQueries<T>,
                   bodies::PlainAttentionKeys<T>, bodies::AddTo<T>, bodies::SumRuns<T, T>, bodies::AddRuns<T>,
                   bodies::AdamWBody<T, T>>(name, launch);
}

// ---- kernels of execute/cuda --------------------------------------------------------------------------------------------

template <class T>
Work add_work(const Launch& launch, std::int64_t numbers_a_piece) {
  T* const to = argument<T*>(launch, 0);
  const T* const from = argument<const T*>(launch, 1);
  const std::int64_t count = argument<std::int64_t>(launch, 2) * numbers_a_piece;
  const auto alignment = static_cast<std::size_t>(numbers_a_piece) * sizeof(T);
  const auto off = (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % alignment;
  return [=] {
    if (off != 0) return fault(cudaErrorMisalignedAddress);
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (sizeof(T) == 2) {
        to[i] = T{static_cast<float>(to[i]) + static_cast<float>(from[i])};
      } else {
        to[i] += from[i];
      }
    }
  };
}
template <class T>
Work squares_work(const Launch& launch) {
  auto* const partials = argument<double*>(launch, 0);
  const T* const from = argument<const T*>(launch, 1);
  const auto count = argument<std::int64_t>(launch, 2);
  const std::int64_t blocks = launch.grid.x;
  return [=] {
    std::fill_n(partials, blocks, 0.0);
    for (std::int64_t i = 0; i < count; ++i) {
      double value = 0;
      if constexpr (sizeof(T) == 8) {
        value = from[i];
      } else {
        value = static_cast<float>(from[i]);
      }
      partials[i % blocks] += value * value;
    }
  };
}
Work partials_work(const Launch& launch) {
  auto* const sum = argument<float*>(launch, 0);
  const auto* const partials = argument<const double*>(launch, 1);
  const int parts = argument<int>(launch, 2);
  return [=] {
    double all = static_cast<double>(*sum);
    for (int i = 0; i < parts; ++i) all += partials[i];
    *sum = static_cast<float>(all);
  };
}
Work clip_work(const Launch& launch) {
  auto* const scale = argument<float*>(launch, 0);
  const auto* const square = argument<const float*>(launch, 1);
  const auto* const scalars = argument<const StepScalars*>(launch, 2);
  return [=] {
    const double norm = std::sqrt(static_cast<double>(*square));
    const double most = scalars->gradient_clip;
    *scale = most > 0 && !(norm <= most) ? static_cast<float>(most / norm) : 1.0F;
  };
}

/// Of bench/gpu: as many blocks as the launch has wait for a flag, or for so long.
Work spin_work(const Launch& launch) {
  int* const stop = const_cast<int*>(argument<const int*>(launch, 0));
  int* const begun = argument<int*>(launch, 1);
  const auto longest = std::chrono::nanoseconds{argument<std::uint64_t>(launch, 2)};
  const int blocks = static_cast<int>(launch.grid.x);
  return [=] {
    if (begun != nullptr) std::atomic_ref{* begun} += blocks;
    const auto begin = std::chrono::steady_clock::now();
    while (std::atomic_ref{*stop} == 0 && std::chrono::steady_clock::now() - begin < longest) std::this_thread::yield();
  };
}

/// @param number  the type's name in `name`
template <class T>
Work find_sum_of(const std::string& name, const Launch& launch, const std::string& number) {
  const auto is = [&](const char* kernel) { return name.find("::" + (kernel + ("<" + number + ">("))) != std::string::npos; };
  if (is("add_packs")) return add_work<T>(launch, 16 / static_cast<std::int64_t>(sizeof(T)));
  if (is("add_numbers")) return add_work<T>(launch, 1);
  if (is("square_parts")) return squares_work<T>(launch);
  return {};
}

}  // namespace

Work kernel_work(const std::string& name, const Launch& launch) {
  Work work;
  const auto try_next = [&](auto&& find) {
    if (!work) work = find();
  };
  try_next([&] { return find_body_of<float>(name, launch); });
  try_next([&] { return find_body_of<Bfloat16>(name, launch); });
  try_next([&] { return find_body_of<Half>(name, launch); });
  try_next([&] {
    return find_body<bodies::SumRuns<Bfloat16, float>, bodies::AdamWBody<Bfloat16, float>, bodies::SumRuns<Half, float>,
                     bodies::AdamWBody<Half, float>, bodies::SortTokens, bodies::SumRows, bodies::MeanLoss, bodies::PrepareAdamW>(
        name, launch);
  });
  try_next([&] { return find_sum_of<float>(name, launch, "float"); });
  try_next([&] { return find_sum_of<double>(name, launch, "double"); });
  try_next([&] { return find_sum_of<Bfloat16>(name, launch, "__nv_bfloat16"); });
  try_next([&] { return find_sum_of<Half>(name, launch, "__half"); });
  if (!work && name.find("::add_partials(") != std::string::npos) work = partials_work(launch);
  if (!work && name.find("::clip(") != std::string::npos) work = clip_work(launch);
  if (!work && name.find("::spin_until(") != std::string::npos) work = spin_work(launch);
  return work;
}

}  // namespace software_gpu
