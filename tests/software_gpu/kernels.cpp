// Finds a launch's kernel by its name: tawpipe's own device code, compiled for this host
// (device_code.hpp), and the benchmarks' wait.
// Not: how a launch comes here (launches.cpp), nor a GPU's order of threads and blocks.
#include "software_gpu/kernels.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "software_gpu/device.hpp"
#include "software_gpu/device_code.hpp"

namespace software_gpu {

namespace {

template <class T>
T argument(const Launch& launch, std::size_t number) {
  return *static_cast<const T*>(launch.arguments[number]);
}

template <class... P, std::size_t... I>
Work work_of(void (*kernel)(P...), const Launch& launch, std::index_sequence<I...>) {
  return [kernel, arguments = std::tuple<P...>{argument<P>(launch, I)...}, grid = launch.grid, block = launch.block,
          shared = launch.shared] {
    bool ended = false;
    if constexpr (requires { (std::declval<P>().grid(), ...); }) {
      ended = run_grid_of(std::get<0>(arguments), grid, block, shared);
    } else {
      ended = run_grid(grid, block, shared, [&] { std::apply(kernel, arguments); });
    }
    if (!ended) fault(cudaErrorLaunchFailure);
  };
}

struct Kernel {
  std::string name;
  std::function<Work(const Launch&)> work;
};
std::vector<Kernel> all_kernels() {
  std::vector<Kernel> all;
  each_kernel([&]<class... P>(std::string name, void (*kernel)(P...)) {
    all.push_back(
        {std::move(name), [kernel](const Launch& launch) { return work_of(kernel, launch, std::index_sequence_for<P...>{}); }});
  });
  return all;
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

}  // namespace

Work kernel_work(const std::string& name, const Launch& launch) {
  static const auto* const kernels = new std::vector<Kernel>{all_kernels()};  // streams work to the process's end
  std::string compact = name;
  for (std::size_t at = 0; (at = compact.find(" >", at)) != std::string::npos;) compact.erase(at, 1);
  for (const Kernel& kernel : *kernels) {
    if (compact.find(kernel.name) != std::string::npos) return kernel.work(launch);
  }
  return name.find("::spin_until(") != std::string::npos ? spin_work(launch) : Work{};
}

}  // namespace software_gpu
