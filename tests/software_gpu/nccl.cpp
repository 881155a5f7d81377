// libnccl.so.2 of the software GPU: NCCL's functions, as tawpipe calls them, with NCCL's promises
// and no more than those. What a non-blocking communicator is told goes into streams a little
// later, by a thread; a second call before is refused, as is a handle that was freed.
// SOFTWARE_GPU_SEED chooses the delays.
// Not: speed, topology, or what NCCL does when a network fails: members that have died are waited
// for until ncclCommAbort.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "software_gpu/nccl_calls.hpp"
#include "software_gpu/nccl_registration.hpp"

using namespace software_gpu;

namespace {

/// The blocks of an operation: at most 32, as many as NCCL has on GPUs of one NVLink switch.
int blocks_of(const ncclConfig_t* config) {
  const char* const given = std::getenv("NCCL_MAX_CTAS");
  if (given != nullptr) return std::clamp(std::atoi(given), 1, 32);
  return config == nullptr || config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 32 : std::clamp(config->maxCTAs, 1, 32);
}

int policy_of([[maybe_unused]] const ncclConfig_t* config) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  if (config != nullptr && config->CTAPolicy != NCCL_CONFIG_UNDEF_INT) return config->CTAPolicy;
#endif
  return 0;
}

/// What ncclMemAlloc has given: only that can have windows.
struct Allocated {
  std::mutex mutex;
  std::set<const void*> all;
};
Allocated& allocated() {
  static auto* const one = new Allocated;  // threads may use it until the process ends
  return *one;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) long software_nccl_copied_gathers() { return copied_gathers(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = nccl_version();
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  static constexpr std::array<const char*, 8> words{"no error",
                                                    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                                    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                                    "internal error - please report this issue to the NCCL developers",
                                                    "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                                    "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                                    "remote process exited or there was a network error",
                                                    "NCCL operation in progress"};
  return result >= 0 && result < ncclNumResults ? words.at(static_cast<std::size_t>(result)) : "unknown result code";
}
const char* ncclGetLastError(ncclComm_t comm) {
  if (comm != nullptr) {
    const std::string words = find(comm, "ncclGetLastError")->words();
    if (!words.empty()) last_words() = words;
  }
  return last_words().c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  const std::string text = broker_name() + " " + new_name();
  text.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  constexpr ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
  if (ranks < 1 || rank < 0 || rank >= ranks) return refuse(ncclInvalidArgument, "no such rank");
  if (config != nullptr && config->magic != fresh.magic) return refuse(ncclInvalidArgument, "an uninitialized configuration");
  const std::string text{id.internal};
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return refuse(ncclInvalidArgument, "the id is not of ncclGetUniqueId");
  if (!is_policy(policy_of(config))) return refuse(ncclInvalidArgument, "Invalid config policy attribute value");
  const bool blocking = config == nullptr || config->blocking != 0;
  int device = 0;
  cudaGetDevice(&device);
  const auto one = std::make_shared<Communicator>(Communicator::Place{text.substr(0, space), text.substr(space + 1), rank, ranks,
                                                                      device, blocking, blocks_of(config), policy_of(config)});
  *comm = add_handle(one);
  return initialize(one);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* made, ncclConfig_t* config) {
  const Shared parent = find(comm, "ncclCommSplit");
  if (colour < 0 && colour != NCCL_SPLIT_NOCOLOR) return refuse(ncclInvalidArgument, "a colour below 0");
  if (const ncclResult_t state = parent->ready("ncclCommSplit"); state != ncclSuccess) return refuse(state, parent->words());
  if (!is_policy(policy_of(config))) return refuse(ncclInvalidArgument, "Invalid config policy attribute value");
  Communicator::Place as = parent->place();
  if (config != nullptr) {
    if (config->blocking != NCCL_CONFIG_UNDEF_INT) as.blocking = config->blocking != 0;
    as.blocks = blocks_of(config);
    as.policy = policy_of(config);
  }
  *made = nullptr;
  split(parent, colour, key, as, made);
  return ncclSuccess;  // even where it is in progress
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Shared one = find(comm, "ncclCommFinalize");
  if (const ncclResult_t state = one->ready("ncclCommFinalize"); state != ncclSuccess) return refuse(state, one->words());
  return finalize(one);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Shared one = find(comm, "ncclCommDestroy");
  if (one->state() == ncclInProgress) return refuse(ncclInvalidUsage, "ncclCommDestroy while a call is in progress");
  one->destroy();
  remove_handle(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return abort(comm); }
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  find(comm, "ncclCommRevoke")->abort();
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** at, size_t bytes) {
  if (cudaMalloc(at, bytes) != cudaSuccess) return refuse(ncclUnhandledCudaError, "out of memory");
  const std::lock_guard lock{allocated().mutex};
  allocated().all.insert(*at);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* at) {
  if (is_registered(at)) {  // NCCL would go on using it
    std::fprintf(stderr, "software NCCL: ncclMemFree of memory that a communicator has registered\n");
    std::abort();
  }
  const std::lock_guard lock{allocated().mutex};
  if (allocated().all.erase(at) == 0) return refuse(ncclInvalidArgument, "not memory of ncclMemAlloc");
  return cudaFree(at) == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, "memory that cannot be freed");
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* at, size_t bytes, void** handle) {
  *handle = find(comm, "ncclCommRegister")->add_memory(at, bytes);
  return *handle != nullptr ? ncclSuccess : refuse(ncclInvalidUsage, "memory that is registered already");
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const bool known = find(comm, "ncclCommDeregister")->remove_memory(handle);
  return known ? ncclSuccess : refuse(ncclInvalidArgument, "memory that is not registered");
}
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* at, size_t bytes, ncclWindow_t* window, int flags) {
  const Shared one = find(comm, "ncclCommWindowRegister");
  if (const ncclResult_t state = one->ready("ncclCommWindowRegister"); state != ncclSuccess) return refuse(state, one->words());
  {
    const std::lock_guard lock{allocated().mutex};
    if (allocated().all.count(at) == 0) return refuse(ncclInvalidArgument, "a window over memory that is not of ncclMemAlloc");
  }
  *window = nullptr;
  open_window(one, at, bytes, (flags & NCCL_WIN_COLL_SYMMETRIC) != 0, reinterpret_cast<void**>(window));
  return ncclSuccess;  // even where it is in progress
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (window == nullptr) return ncclSuccess;
  const bool known = find(comm, "ncclCommWindowDeregister")->remove_window(window);
  return known ? ncclSuccess : refuse(ncclInvalidArgument, "a window that is not open");
}
#endif
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = find(comm, "ncclCommGetAsyncError")->state();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const Shared one = find(comm, "ncclCommCount");
  *count = one->place().ranks;
  return one->ready("ncclCommCount");
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const Shared one = find(comm, "ncclCommUserRank");
  *rank = one->place().rank;
  return one->ready("ncclCommUserRank");
}

ncclResult_t ncclGroupStart() {
  begin_group();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return end_group(); }

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({Kind::send, from, nullptr, count, type, ncclSum, peer, stream}, comm, "ncclSend");
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({Kind::receive, nullptr, to, count, type, ncclSum, peer, stream}, comm, "ncclRecv");
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return enqueue({Kind::broadcast, from, to, count, type, ncclSum, root, stream}, comm, "ncclBroadcast");
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return enqueue({Kind::reduce, from, to, count, type, op, root, stream}, comm, "ncclReduce");
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return enqueue({Kind::all_gather, from, to, count, type, ncclSum, 0, stream}, comm, "ncclAllGather");
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return enqueue({Kind::reduce_scatter, from, to, count, type, op, 0, stream}, comm, "ncclReduceScatter");
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return enqueue({Kind::all_reduce, from, to, count, type, op, 0, stream}, comm, "ncclAllReduce");
}
