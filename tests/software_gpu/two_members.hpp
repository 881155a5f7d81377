// Two ranks that are threads with a GPU each, for tests of what the software GPU's NCCL promises.
// Not: the tests (nccl_test.cpp, nccl_windows_test.cpp).
#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <cstddef>
#include <thread>
#include <vector>

namespace software_gpu::test {

inline ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  ncclCommGetAsyncError(comm, &state);
  return state;
}
inline ncclResult_t settled(ncclComm_t comm) {
  while (state_of(comm) == ncclInProgress) std::this_thread::yield();
  return state_of(comm);
}

struct Member {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* numbers = nullptr;  ///< [64] of device memory
  ncclResult_t made = ncclSuccess;

  ncclResult_t sum(std::size_t count) { return ncclAllReduce(numbers, numbers, count, ncclFloat, ncclSum, comm, stream); }
  void connect() {
    sum(1);
    CHECK(settled(comm) == ncclSuccess);
    cudaStreamSynchronize(stream);
  }
};

/// Calls `act` for each of two ranks in separate threads; their communicators do not block.
template <class Act>
void for_two(Act&& act, int second_device = 1) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Member one;
      one.rank = rank;
      cudaSetDevice(rank == 0 ? 0 : second_device);
      void* memory = nullptr;
      cudaMalloc(&memory, 64 * sizeof(float));
      one.numbers = static_cast<float*>(memory);
      cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      CHECK(ncclCommInitRankConfig(&one.comm, 2, id, rank, &config) == ncclInProgress);
      one.made = settled(one.comm);
      act(one);
      if (one.comm != nullptr) ncclCommAbort(one.comm);
      cudaStreamSynchronize(one.stream);
      cudaStreamDestroy(one.stream);
      cudaFree(memory);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace software_gpu::test
