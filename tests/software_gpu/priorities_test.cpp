// Priorities of streams on the software GPU, that a graph of the library keeps them, and which
// streams hold each other up.
// Not: which streams have which (tests/emulated/communicators_test.cpp).
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tawpipe/execute/cuda/cuda_api.hpp"
#include "tawpipe/execute/cuda/prepare.hpp"

using namespace tawpipe;
using cuda::Priority;

TEST_CASE("a graph's communication gets processors before computation that has waited longer") {
  const auto take = reinterpret_cast<int (*)(int, int, int)>(dlsym(RTLD_DEFAULT, "software_gpu_take_processors"));
  const auto give = reinterpret_cast<void (*)(int, int)>(dlsym(RTLD_DEFAULT, "software_gpu_give_processors"));
  const bool known = take != nullptr && give != nullptr;
  REQUIRE(known);
  cuda::prepare_environment();  // before the first stream
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

TEST_CASE("streams hold each other up where the environment gives them no connections of their own") {
  const auto wait = [](void* open) {
    while (!*static_cast<std::atomic<bool>*>(open)) std::this_thread::yield();
  };
  const auto come = [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; };
  cuda::prepare_environment();
  const bool shared = std::string{std::getenv("CUDA_DEVICE_MAX_CONNECTIONS")} == "8";
  cuda::CudaDevice device{0};
  device.use();
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < 9; ++i) streams.push_back(device.make_stream(Priority::normal));
  std::atomic<bool> open = false;
  std::atomic<bool> behind = false;
  std::atomic<bool> other = false;
  cudaLaunchHostFunc(streams[0], wait, &open);
  cudaLaunchHostFunc(streams[0], come, &behind);  // waits in its connection
  cudaLaunchHostFunc(streams[8], come, &other);
  if (shared) {
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    CHECK_FALSE(other);
  } else {
    REQUIRE(cudaStreamSynchronize(streams[8]) == cudaSuccess);
    CHECK(other);
  }
  CHECK_FALSE(behind);
  open = true;
  REQUIRE(cudaStreamSynchronize(streams[8]) == cudaSuccess);
  CHECK(other);
}
