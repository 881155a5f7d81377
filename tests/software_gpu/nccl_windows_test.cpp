// What the software GPU's NCCL promises of windows, and what it refuses.
// Not: its other promises (nccl_test.cpp); tawpipe's use of windows (tests/gpu/zero_cta_test.cpp).
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <nccl.h>

#include <cstddef>
#include <string>

#include "software_gpu/two_members.hpp"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

using namespace software_gpu::test;

/// Operations of this process that copy engines have done; weak, since programs are linked with the
/// real NCCL.
extern "C" long software_nccl_copied_gathers() __attribute__((weak));

namespace {

constexpr std::size_t bytes = std::size_t{1} << 16;

int version() {
  int found = 0;
  ncclGetVersion(&found);
  return found;
}

/// Another communicator of the same ranks, of a policy, with a symmetric window over memory of its
/// own.
struct Windowed {
  explicit Windowed(const Member& one, int policy, std::size_t size = bytes) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.CTAPolicy = policy;
    CHECK(ncclCommSplit(one.comm, 0, one.rank, &comm, &config) == ncclSuccess);
    CHECK(settled(one.comm) == ncclSuccess);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(ncclMemAlloc(&memory, size) == ncclSuccess);
    CHECK(ncclCommWindowRegister(comm, memory, size, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
    opened = settled(comm);
  }
  ~Windowed() {
    CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
    CHECK(ncclCommWindowDeregister(comm, window) == (window == nullptr ? ncclSuccess : ncclInvalidArgument));
    CHECK(ncclMemFree(memory) == ncclSuccess);
    ncclCommAbort(comm);
  }
  Windowed(const Windowed&) = delete;
  Windowed& operator=(const Windowed&) = delete;

  float* at(std::size_t place) const { return reinterpret_cast<float*>(static_cast<char*>(memory) + place); }
  /// Of four numbers each. @return what has become of it
  ncclResult_t gather(const Member& one, const void* from, void* to) const {
    ncclAllGather(from, to, 4, ncclFloat, comm, one.stream);
    if (const ncclResult_t state = settled(comm); state != ncclSuccess) return state;
    cudaStreamSynchronize(one.stream);
    return state_of(comm);
  }

  ncclComm_t comm = nullptr;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  ncclResult_t opened = ncclSuccess;
};

/// How many of the two members' gathers copy engines have done.
template <class Gather>
long copied(int policy, Gather&& gather) {
  const long before = software_nccl_copied_gathers();
  for_two([&](Member& one) {
    const Windowed two{one, policy};
    CHECK(two.opened == ncclSuccess);
    const float own[] = {1.0F + static_cast<float>(one.rank), 0, 0, 0};
    cudaMemcpy(one.numbers, own, sizeof own, cudaMemcpyHostToDevice);
    cudaMemcpy(two.at(16 * static_cast<std::size_t>(one.rank)), own, sizeof own, cudaMemcpyHostToDevice);
    float* const to = gather(one, two);
    float all[8] = {};
    cudaMemcpy(all, to, sizeof all, cudaMemcpyDeviceToHost);
    CHECK(all[0] == 1);
    CHECK(all[4] == 2);
  });
  return software_nccl_copied_gathers() - before;
}

}  // namespace

TEST_CASE("gathers in symmetric windows are copied where the policy is zero") {
  if (version() < NCCL_VERSION(2, 28, 0)) return;
  const auto in_place = [](Member& one, const Windowed& two) {
    CHECK(two.gather(one, two.at(16 * static_cast<std::size_t>(one.rank)), two.at(0)) == ncclSuccess);
    return two.at(0);
  };
  CHECK(copied(NCCL_CTA_POLICY_ZERO, in_place) == 2);
  CHECK(copied(NCCL_CTA_POLICY_EFFICIENCY, in_place) == 0);
  const auto from_elsewhere = [](Member& one, const Windowed& two) {
    CHECK(two.gather(one, one.numbers, two.at(64)) == ncclSuccess);
    return two.at(64);
  };
  CHECK(copied(NCCL_CTA_POLICY_ZERO, from_elsewhere) == (version() < NCCL_VERSION(2, 29, 0) ? 0 : 2));
  const auto to_elsewhere = [](Member& one, const Windowed& two) {
    CHECK(two.gather(one, two.at(16 * static_cast<std::size_t>(one.rank)), one.numbers) == ncclSuccess);
    return one.numbers;
  };
  CHECK(copied(NCCL_CTA_POLICY_ZERO, to_elsewhere) == 0);
}

TEST_CASE("what goes to other places of members' symmetric windows fails, whatever the policy") {
  for (const int policy : {NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY}) {
    for_two([&](Member& one) {
      const Windowed two{one, policy};
      CHECK(two.gather(one, one.numbers, two.at(one.rank == 0 ? 256 : 512)) == ncclInternalError);
      CHECK(std::string{ncclGetLastError(two.comm)}.find("destination at 256 of a window) and") != std::string::npos);
    });
  }
  if (version() < NCCL_VERSION(2, 28, 0)) return;
  for_two([&](Member& one) {
    const Windowed two{one, NCCL_CTA_POLICY_ZERO};
    CHECK(two.gather(one, two.at(0), two.at(one.rank == 0 ? 256 : 512)) == ncclInternalError);
  });
}

TEST_CASE("sums' sources have one place in members' symmetric windows too") {
  for (const bool equal : {true, false}) {
    for_two([&](Member& one) {
      const Windowed two{one, NCCL_CTA_POLICY_DEFAULT};
      const float* const from = two.at(equal || one.rank == 0 ? 256 : 512);
      ncclReduceScatter(from, two.at(one.rank == 0 ? 0 : 128), 4, ncclFloat, ncclSum, two.comm, one.stream);
      settled(two.comm);
      cudaStreamSynchronize(one.stream);
      CHECK(state_of(two.comm) == (equal ? ncclSuccess : ncclInternalError));
    });
  }
}

TEST_CASE("windows have one size on all members, and memory of ncclMemAlloc") {
  for_two([](Member& one) {
    const Windowed two{one, NCCL_CTA_POLICY_DEFAULT, one.rank == 0 ? bytes : 2 * bytes};
    CHECK(two.opened == ncclUnhandledCudaError);
    ncclWindow_t window = nullptr;
    CHECK(ncclCommWindowRegister(one.comm, one.numbers, 256, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclInvalidArgument);
  });
}

TEST_CASE("the policy of windows without a kernel exists from 2.28 on") {
  for_two([](Member& one) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    ncclComm_t made = nullptr;
    const bool known = version() >= NCCL_VERSION(2, 28, 0);
    CHECK(ncclCommSplit(one.comm, 0, one.rank, &made, &config) == (known ? ncclSuccess : ncclInvalidArgument));
    if (known) CHECK(settled(one.comm) == ncclSuccess);
    if (known) ncclCommAbort(made);
  });
}

#endif
