// What the GPU layers' tests have in common: arrays on the device, comparison with the host, the
// end with 77 where there is no GPU.
// Not: a test framework; nothing here needs a package besides CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/check.hpp"
#include "tawpipe/layers/cuda/launch.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace gpu_test {

namespace cuda = tawpipe::layers::cuda;

inline gpu::Checks* checks = nullptr;  ///< of the program that runs

inline void expect(bool right, const std::string& what, double found = 0, int line = __builtin_LINE()) {
  checks->that(right, tawpipe::concat(what, ": ", found), line);
}
/// Runs `test()` where there is a GPU. @return the program's exit code
template <class Test>
int run(Test&& test) {
  return gpu::run([&](gpu::Checks& all) {
    checks = &all;
    test();
  });
}

inline void wait() { cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

/// Numbers on the device.
template <class T>
class Array {
 public:
  explicit Array(const std::vector<T>& numbers) : count_{numbers.size()}, memory_{static_cast<std::int64_t>(count_ * sizeof(T))} {
    memory_.fill(numbers.data(), memory_.bytes());
  }
  T* data() const { return memory_.template as<T>(); }
  std::vector<T> copy() const {
    std::vector<T> numbers(count_);
    cuda::check(cudaMemcpy(numbers.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return numbers;
  }

 private:
  std::size_t count_;
  cuda::DeviceMemory memory_;
};

/// Numbers within -most .. most that T holds exactly.
template <class T>
std::vector<T> numbers(std::int64_t count, unsigned seed, float most = 1) {
  std::mt19937 random{seed};
  std::vector<T> numbers(static_cast<std::size_t>(count));
  for (T& x : numbers) {
    x = cuda::narrow<T>(most * (static_cast<float>(random() >> 8) * 0x1p-23F - 1.0F));
  }
  return numbers;
}
template <class T>
double as_double(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(x);
  } else {
    return static_cast<double>(cuda::widen(x));
  }
}
/// The largest difference, relative to the number and 1.
template <class A, class B>
double difference(const std::vector<A>& ours, const std::vector<B>& wanted) {
  double worst = ours.size() == wanted.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < std::min(ours.size(), wanted.size()); ++i) {
    const double w = as_double(wanted[i]);
    const double d = std::abs(as_double(ours[i]) - w) / (1 + std::abs(w));
    worst = std::isnan(d) ? 1e300 : std::max(worst, d);
  }
  return worst;
}

/// Two roundings of T (or of float's sums).
template <class T>
inline constexpr double tolerance = std::is_same_v<T, float>               ? 0x1p-18
                                    : std::is_same_v<T, tawpipe::Half>     ? 0x1p-10
                                    : std::is_same_v<T, tawpipe::Bfloat16> ? 0x1p-7
                                                                           : 1e-6;

/// Calls run(body), or does so for each body of several in a row.
template <class Body, class Run>
void each_body(const Body& body, const Run& run) {
  if constexpr (requires { body.each(run); }) {
    body.each(run);
  } else {
    run(body);
  }
}

/// Runs make(pointers...) on the host and on the GPU and compares all arrays afterwards.
template <class Make, class... V>
void check_body(const char* name, const Make& make, const std::vector<V>&... given) {
  std::tuple<std::vector<V>...> on_host{given...};
  std::apply([&](auto&... v) { each_body(make(v.data()...), [](const auto& body) { cuda::run_on_host(body); }); }, on_host);
  const std::tuple<Array<V>...> on_device{Array<V>{given}...};
  std::apply([&](const auto&... v) { each_body(make(v.data()...), [](const auto& body) { cuda::launch(body, nullptr); }); },
             on_device);
  wait();
  const auto compare = [&](const auto& ours, const auto& wanted) {
    using T = typename std::remove_cvref_t<decltype(wanted)>::value_type;
    const double worst = difference(ours.copy(), wanted);
    expect(worst < tolerance<T>, name, worst);
  };
  const auto all = [&]<std::size_t... Places>(std::index_sequence<Places...>) {
    (compare(std::get<Places>(on_device), std::get<Places>(on_host)), ...);
  };
  all(std::index_sequence_for<V...>{});
}

}  // namespace gpu_test
