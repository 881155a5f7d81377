// What the software GPU's NCCL promises, and what it refuses, by two ranks that are threads with a
// GPU each.
// Not: tawpipe's use of it (tests/gpu/nccl_test.cpp, threads_test.cpp).
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>

#include "software_gpu/two_members.hpp"

using namespace software_gpu::test;

TEST_CASE("a call goes into its stream when all members have made it once, behind what came there before") {
  std::atomic<bool> passed = false;
  for_two([&](Member& one) {
    if (one.rank == 1) {
      while (!passed) std::this_thread::yield();
    }
    CHECK(one.sum(1) == ncclInProgress);
    if (one.rank == 0) {
      CHECK(one.sum(1) == ncclInvalidUsage);  // before the first is under way
      CHECK(cudaStreamSynchronize(one.stream) == cudaSuccess);
      CHECK(state_of(one.comm) == ncclInProgress);
      passed = true;
    }
    CHECK(settled(one.comm) == ncclSuccess);
  });
}

TEST_CASE("a split returns before it has come about") {
  for_two([](Member& one) {
    ncclComm_t part = nullptr;
    CHECK(ncclCommSplit(one.comm, one.rank == 0 ? NCCL_SPLIT_NOCOLOR : 7, 0, &part, nullptr) == ncclSuccess);
    CHECK(settled(one.comm) == ncclSuccess);
    CHECK((part != nullptr) == (one.rank == 1));
    if (part == nullptr) return;
    int ranks = 0;
    CHECK(ncclCommCount(part, &ranks) == ncclSuccess);
    CHECK(ranks == 1);
    CHECK(ncclCommFinalize(part) == ncclInProgress);
    CHECK(settled(part) == ncclSuccess);
    CHECK(ncclCommDestroy(part) == ncclSuccess);
  });
}

TEST_CASE("calls that do not fit fail on all members") {
  for_two([](Member& one) {
    one.connect();
    one.sum(one.rank == 0 ? 3 : 4);
    settled(one.comm);
    cudaStreamSynchronize(one.stream);
    CHECK(state_of(one.comm) == ncclInternalError);
    const std::string words = ncclGetLastError(one.comm);
    CHECK(words ==
          "members have made different calls: ncclAllReduce(count 3, type 7, op 0, root 0) and ncclAllReduce(count 4, type 7, "
          "op 0, root 0)");
  });
}

TEST_CASE("memory is registered on all members of an operation or on none") {
  for (const bool both : {true, false}) {
    for_two([&](Member& one) {
      one.connect();
      void* memory = nullptr;
      void* handle = nullptr;
      CHECK(ncclMemAlloc(&memory, 64 * sizeof(float)) == ncclSuccess);
      if (both || one.rank == 0) {
        CHECK(ncclCommRegister(one.comm, memory, 64 * sizeof(float), &handle) == ncclSuccess);
        CHECK(ncclCommRegister(one.comm, memory, 64 * sizeof(float), &handle) == ncclInvalidUsage);
      }
      ncclAllReduce(memory, memory, 64, ncclFloat, ncclSum, one.comm, one.stream);
      settled(one.comm);
      cudaStreamSynchronize(one.stream);
      CHECK(state_of(one.comm) == (both ? ncclSuccess : ncclInternalError));
      if (both || one.rank == 0) CHECK(ncclCommDeregister(one.comm, memory) == ncclSuccess);
      CHECK(ncclCommDeregister(one.comm, memory) == ncclInvalidArgument);
      CHECK(ncclMemFree(memory) == ncclSuccess);
    });
  }
}

TEST_CASE("a large broadcast of registered memory has a source on all members, or hangs with NCCL 2.24 to 2.28") {
  int version = 0;
  ncclGetVersion(&version);
  const bool hangs = version >= NCCL_VERSION(2, 24, 0) && version < NCCL_VERSION(2, 29, 0);
  for (const std::size_t count : {std::size_t{1} << 10, std::size_t{1} << 20}) {
    for (const bool both : {true, false}) {
      for_two([&](Member& one) {
        one.connect();
        void* memory = nullptr;
        void* handle = nullptr;
        CHECK(ncclMemAlloc(&memory, count * sizeof(float)) == ncclSuccess);
        CHECK(ncclCommRegister(one.comm, memory, count * sizeof(float), &handle) == ncclSuccess);
        ncclBroadcast(both || one.rank == 0 ? memory : nullptr, memory, count, ncclFloat, 0, one.comm, one.stream);
        settled(one.comm);
        cudaStreamSynchronize(one.stream);
        const bool used = count > 1 << 10;
        CHECK(state_of(one.comm) == (hangs && used && !both ? ncclInternalError : ncclSuccess));
        CHECK(ncclCommDeregister(one.comm, handle) == ncclSuccess);
        CHECK(ncclMemFree(memory) == ncclSuccess);
      });
    }
  }
}

TEST_CASE("an abort ends what waits for another rank") {
  for_two([](Member& one) {
    one.connect();
    if (one.rank == 1) return;
    one.sum(1);  // which rank 1 never calls
    CHECK(settled(one.comm) == ncclSuccess);
  });
}

namespace {

/// Another communicator of the same ranks.
ncclComm_t second_of(const Member& one) {
  ncclComm_t made = nullptr;
  CHECK(ncclCommSplit(one.comm, 0, one.rank, &made, nullptr) == ncclSuccess);
  CHECK(settled(one.comm) == ncclSuccess);
  CHECK(settled(made) == ncclSuccess);
  return made;
}
ncclResult_t sum_on(ncclComm_t comm, const Member& one, cudaStream_t stream) {
  ncclAllReduce(one.numbers + 32, one.numbers + 32, 1, ncclFloat, ncclSum, comm, stream);
  return settled(comm);
}
void CUDART_CB pause(void*) { std::this_thread::sleep_for(std::chrono::milliseconds{1000}); }
/// Whether an act in a separate thread is at an end after `milliseconds`.
bool ended(const std::atomic<bool>& end, int milliseconds) {
  for (int i = 0; i < milliseconds && !end; ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  return end;
}

}  // namespace

TEST_CASE("an abort waits for what its stream had before, and aborts of one group do not wait for each other") {
  for (const bool grouped : {false, true}) {
    for_two([&](Member& one) {
      one.connect();
      ncclComm_t second = second_of(one);
      sum_on(second, one, one.stream);
      cudaStreamSynchronize(one.stream);
      if (one.rank == 0) {  // rank 1 never calls these
        one.sum(1);
        CHECK(settled(one.comm) == ncclSuccess);
        CHECK(sum_on(second, one, one.stream) == ncclSuccess);
      }
      std::atomic<bool> end = false;
      if (grouped) {
        ncclGroupStart();
        ncclCommAbort(second);
        ncclCommAbort(one.comm);
        ncclGroupEnd();
        one.comm = nullptr;
        return;
      }
      std::thread thread{[&] {
        ncclCommAbort(second);
        end = true;
      }};
      CHECK(ended(end, 200) == (one.rank == 1));
      ncclCommAbort(one.comm);
      one.comm = nullptr;
      thread.join();
    });
  }
}

TEST_CASE("an abort waits until no graph has anything of the communicator") {
  for_two([&](Member& one) {
    one.connect();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    cudaStreamBeginCapture(one.stream, cudaStreamCaptureModeThreadLocal);
    one.sum(1);
    CHECK(settled(one.comm) == ncclSuccess);
    cudaStreamEndCapture(one.stream, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    if (one.rank == 0) cudaGraphLaunch(ready, one.stream);  // rank 1 never does
    std::atomic<bool> end = false;
    std::thread thread{[&] {
      ncclCommAbort(one.comm);
      end = true;
    }};
    CHECK_FALSE(ended(end, 200));
    cudaGraphExecDestroy(ready);
    thread.join();
    one.comm = nullptr;
  });
}

TEST_CASE("operations of two communicators in crossed order stop, but where the order of calls is kept") {
  // 40 processors, 32 blocks an operation. Rank 0 is late with its first: without an order its
  // second has the processors, while those of rank 1 are with its first.
  const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  const bool kept = order != nullptr && std::string{order} == "1";
  std::atomic<bool> stopped = false;
  const auto cross = [&](Member& one) {
    one.connect();
    ncclComm_t second = second_of(one);
    cudaStream_t side = nullptr;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    sum_on(second, one, side);
    cudaStreamSynchronize(side);
    if (one.rank == 0) cudaLaunchHostFunc(one.stream, pause, nullptr);
    one.sum(1);
    CHECK(settled(one.comm) == ncclSuccess);
    if (one.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds{300});  // its first has the processors by now
    CHECK(sum_on(second, one, side) == ncclSuccess);
    std::atomic<bool> end = false;
    std::thread thread{[&] {
      cudaStreamSynchronize(one.stream);
      cudaStreamSynchronize(side);
      end = true;
    }};
    if (!ended(end, kept ? 60000 : 3000)) stopped = true;
    ncclGroupStart();
    ncclCommAbort(second);
    ncclCommAbort(one.comm);
    ncclGroupEnd();
    one.comm = nullptr;
    thread.join();
    cudaStreamDestroy(side);
  };
  // Threads may come so late on a busy machine that nothing crosses: without an order it stops in
  // one of some attempts.
  for (int attempt = 0; attempt < (kept ? 1 : 10) && !stopped; ++attempt) for_two(cross);
  CHECK(stopped == !kept);
}

TEST_CASE("a stream takes 1,024 launches, then the host waits") {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  std::atomic<bool> open = false;
  std::atomic<int> put = 0;
  const auto wait = [](void* data) {
    while (!*static_cast<std::atomic<bool>*>(data)) std::this_thread::yield();
  };
  cudaLaunchHostFunc(stream, wait, &open);
  std::thread host{[&] {
    for (; put < 1500; ++put)
      cudaLaunchHostFunc(
          stream, [](void*) {}, nullptr);
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  CHECK(put >= 1023);
  CHECK(put <= 1025);
  open = true;
  host.join();
  cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
}

TEST_CASE("what is captured must have been connected") {
  for_two([](Member& one) {
    cudaStreamBeginCapture(one.stream, cudaStreamCaptureModeThreadLocal);
    one.sum(1);
    CHECK(settled(one.comm) == ncclInvalidUsage);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(one.stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  });
}

TEST_CASE("a captured call comes about at each launch") {
  for_two([](Member& one) {
    one.connect();
    float value = 1;
    cudaMemcpy(one.numbers, &value, sizeof value, cudaMemcpyHostToDevice);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    cudaStreamBeginCapture(one.stream, cudaStreamCaptureModeThreadLocal);
    one.sum(1);
    CHECK(settled(one.comm) == ncclSuccess);
    CHECK(cudaStreamEndCapture(one.stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; ++i) cudaGraphLaunch(ready, one.stream);
    cudaStreamSynchronize(one.stream);
    cudaMemcpy(&value, one.numbers, sizeof value, cudaMemcpyDeviceToHost);
    CHECK(value == 8);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
  });
}

TEST_CASE("two ranks of a host on one GPU are refused") {
  for_two([](Member& one) { CHECK(one.made == ncclInvalidUsage); }, 0);
}
