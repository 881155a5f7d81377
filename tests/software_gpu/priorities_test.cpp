// Priorities of streams on the software GPU, and that a graph of the library keeps them.
// Not: which streams have which (tests/emulated/nccl_executor_test.cpp).
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "tawpipe/execute/cuda/cuda_api.hpp"

using namespace tawpipe;
using cuda::Priority;

TEST_CASE("a graph's communication gets processors before computation that has waited longer") {
  const auto take = reinterpret_cast<int (*)(int, int, int)>(dlsym(RTLD_DEFAULT, "software_gpu_take_processors"));
  const auto give = reinterpret_cast<void (*)(int, int)>(dlsym(RTLD_DEFAULT, "software_gpu_give_processors"));
  const bool known = take != nullptr && give != nullptr;
  REQUIRE(known);
  cuda::CudaDevice device{0};
  device.use();
  const auto compute = device.make_stream(Priority::normal);
  const auto communicate = device.make_stream(Priority::high);
  const auto begun = device.make_event(false);
  const auto joined = device.make_event(false);
  float* const numbers = reinterpret_cast<float*>(device.allocate(4 * sizeof(float)));
  const auto add = [&](int from, cudaStream_t stream) {
    device.add(reinterpret_cast<std::byte*>(numbers + from), reinterpret_cast<std::byte*>(numbers + from + 1), 1, Dtype::f32,
               stream);
  };
  const float begin[] = {0, 1, 1, 1};
  REQUIRE(cudaMemcpy(numbers, begin, sizeof begin, cudaMemcpyHostToDevice) == cudaSuccess);
  const auto late = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds{50}); };

  device.begin_capture(compute);
  device.record(begun, compute);
  device.wait(communicate, begun);
  add(1, compute);  // takes what the communication has left there
  cudaLaunchHostFunc(communicate, late, nullptr);
  add(2, communicate);
  device.record(joined, communicate);
  device.wait(compute, joined);
  const auto graph = device.end_capture(compute);

  const int all = take(0, 132, 1);
  device.launch(graph, compute);
  std::this_thread::sleep_for(std::chrono::milliseconds{150});  // both wait for processors
  give(0, 1);
  REQUIRE(cudaStreamSynchronize(compute) == cudaSuccess);
  float computed = 0;
  REQUIRE(cudaMemcpy(&computed, numbers + 1, sizeof computed, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(computed == 3);  // 2 had it come first
  give(0, all - 1);
}
