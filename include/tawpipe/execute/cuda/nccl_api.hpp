// Communicators with the interface of execute/cuda/device_api.hpp: NCCL's, non-blocking, with our
// own time limit.
// Not: how ranks find each other (rendezvous.hpp); the watch over a run (execute/watch.hpp).
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/check.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/nccl_options.hpp"
#include "tawpipe/execute/cuda/pause.hpp"
#include "tawpipe/execute/detail/clock.hpp"

// The NCCL at run time may be older than the one at build time.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 9)
#pragma weak ncclCommRevoke
#endif

namespace tawpipe::inline v0::cuda {

/// The bytes that identify a new communicator; one rank makes them and sends them to all others.
/// @throws NcclError  if no network interface can be used.
inline std::string new_communicator_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof id.internal};
}

/// A NCCL communicator of one rank, owned unless it was adopted. No call waits longer than the time
/// limit for another rank.
class NcclCommunicator {
 public:
  /// Collective over `ranks` callers, each with its GPU current.
  /// @throws NcclError  if NCCL fails. DeviceError  if a rank does not arrive in time. InputError  as
  /// require_zero_cta.
  NcclCommunicator(const std::string& id, int rank, int ranks, const NcclOptions& options = {}) : options_{checked(options)} {
    ncclUniqueId unique;
    if (id.size() != sizeof unique.internal) {
      throw DeviceError(concat("the id of a communicator has ", id.size(), " bytes; it must have ", sizeof unique.internal));
    }
    std::memcpy(unique.internal, id.data(), id.size());
    ncclConfig_t config = configuration(Traffic::collectives);
    own_ = true;
    start([&] { return ncclCommInitRankConfig(&comm_, ranks, unique, rank, &config); }, "ncclCommInitRankConfig");
    learn();
  }
  /// Uses a communicator that a framework owns: it is never finalized, destroyed or aborted here.
  /// If an iteration fails, communication in progress on it is revoked (NCCL 2.28.9 and later;
  /// before, it stays until its owner aborts it); it can then only be destroyed. Its calls may
  /// block if it was created blocking; then this library's time limit does not apply.
  static NcclCommunicator adopt(ncclComm_t comm, const NcclOptions& options = {}) {
    if (comm == nullptr) throw DeviceError("a null NCCL communicator cannot be used");
    NcclCommunicator one{options};
    one.comm_ = comm;
    one.learn();
    return one;
  }
  NcclCommunicator(NcclCommunicator&& other) noexcept : options_{other.options_} { swap(other); }
  NcclCommunicator& operator=(NcclCommunicator&& other) noexcept {
    swap(other);
    return *this;
  }
  /// An orderly end if nothing has failed: all members call it. Graphs with its communications must
  /// be gone.
  ~NcclCommunicator() {
    if (comm_ == nullptr) return;
    dismiss();
    if (!own_) return;
    if (!failed_) {
      try {
        wait_for(ncclCommFinalize(comm_), "ncclCommFinalize");
        ncclCommDestroy(comm_);
        return;
      } catch (const DeviceError&) {
        failed_ = true;
      }
    }
    ncclCommAbort(comm_);  // for a failed one that has not been aborted with all others
  }

  ncclComm_t get() const { return comm_; }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  std::optional<NcclCommunicator> split(int colour, int key, Traffic traffic) {
    NcclCommunicator part{options_};
    part.calls_ = calls_;
    ncclConfig_t config = configuration(traffic);
    // NCCL writes the handle from a thread of its own, when the parent is ready again; the call's
    // return value does not tell this.
    auto handle = std::make_unique<ncclComm_t>(nullptr);
    cuda::check(
        locked([&] { return ncclCommSplit(comm_, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, handle.get(), &config); }),
        "ncclCommSplit", comm_);
    wait_for_handle(handle, "ncclCommSplit");
    if (*handle == nullptr) return std::nullopt;
    part.comm_ = *handle;
    part.own_ = true;
    part.wait_for(ncclInProgress, "ncclCommSplit");
    part.learn();
    return part;
  }

  void group_begin() {
    cuda::check(ncclGroupStart(), "ncclGroupStart", comm_);
    ++grouped().depth;
  }
  void group_end() {
    Group& group = grouped();
    --group.depth;
    cuda::check(locked([] { return ncclGroupEnd(); }), "ncclGroupEnd", comm_);
    if (group.depth > 0) return;
    for (NcclCommunicator* const one : std::exchange(group.used, {})) one->wait_for(ncclInProgress, "ncclGroupEnd");
  }
  void send(const std::byte* from, std::int64_t count, Dtype type, int member, cudaStream_t stream) {
    done("ncclSend", [&] { return ncclSend(from, size(count), kind(type), member, comm_, stream); });
  }
  void receive(std::byte* to, std::int64_t count, Dtype type, int member, cudaStream_t stream) {
    done("ncclRecv", [&] { return ncclRecv(to, size(count), kind(type), member, comm_, stream); });
  }
  void broadcast(const std::byte* from, std::byte* to, std::int64_t count, Dtype type, int root, cudaStream_t stream) {
    done("ncclBroadcast", [&] { return ncclBroadcast(from, to, size(count), kind(type), root, comm_, stream); });
  }
  void reduce(const std::byte* from, std::byte* to, std::int64_t count, Dtype type, int root, cudaStream_t stream) {
    done("ncclReduce", [&] { return ncclReduce(from, to, size(count), kind(type), ncclSum, root, comm_, stream); });
  }
  void all_gather(const std::byte* from, std::byte* to, std::int64_t count, Dtype type, cudaStream_t stream) {
    done("ncclAllGather", [&] { return ncclAllGather(from, to, size(count), kind(type), comm_, stream); });
  }
  void reduce_scatter(const std::byte* from, std::byte* to, std::int64_t count, Dtype type, cudaStream_t stream) {
    done("ncclReduceScatter", [&] { return ncclReduceScatter(from, to, size(count), kind(type), ncclSum, comm_, stream); });
  }
  void all_reduce(const std::byte* from, std::byte* to, std::int64_t count, Dtype type, Reduction how, cudaStream_t stream) {
    const ncclRedOp_t op = how == Reduction::sum ? ncclSum : ncclMax;
    done("ncclAllReduce", [&] { return ncclAllReduce(from, to, size(count), kind(type), op, comm_, stream); });
  }

  static constexpr bool enrolls = true;  ///< registering memory of `allocate` is useful
  /// By ncclMemAlloc, if it is to be registered.
  std::shared_ptr<std::byte> allocate([[maybe_unused]] std::size_t bytes) const {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    void* at = nullptr;
    if (bytes == 0 || !(registers() || options_.zero_cta)) return nullptr;
    if (ncclMemAlloc(&at, bytes) == ncclSuccess)
      return {static_cast<std::byte*>(at), [](std::byte* memory) { ncclMemFree(memory); }};
    cudaGetLastError();
#endif
    return nullptr;
  }
  /// By ncclCommRegister; NCCL_LOCAL_REGISTER=0 in the environment turns it off.
  void enroll([[maybe_unused]] std::byte* at, [[maybe_unused]] std::size_t bytes) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (!registers()) return;
    cuda::check(locked([&] { return ncclCommRegister(comm_, at, bytes, &enrolled_); }), "ncclCommRegister", comm_);
#endif
  }

  bool zero_cta() const { return options_.zero_cta; }
  /// By ncclCommWindowRegister, as symmetric.
  void open_window([[maybe_unused]] std::byte* at, [[maybe_unused]] std::size_t bytes) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    auto handle = std::make_unique<ncclWindow_t>(nullptr);  // as in `split`
    cuda::check(locked([&] { return ncclCommWindowRegister(comm_, at, bytes, handle.get(), NCCL_WIN_COLL_SYMMETRIC); }),
                "ncclCommWindowRegister", comm_);
    wait_for_handle(handle, "ncclCommWindowRegister");
    window_ = *handle;
#endif
  }

  /// If another thread is in a call of this rank, it does nothing: ncclCommGetAsyncError completes
  /// such calls.
  void check() const {
    look_for_stop();
    const std::unique_lock lock{*calls_, std::try_to_lock};
    if (!lock) return;
    ncclResult_t state = ncclSuccess;
    cuda::check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
    cuda::check(state, "a communication", comm_);
  }
  static void abort_all(std::vector<NcclCommunicator> all) {
    // First all are told to end; their ends are awaited at the end of the group, and by threads.
    std::vector<std::jthread> revoking;
    for (const NcclCommunicator& one : all) {
      if (one.comm_ != nullptr && !one.own_) revoking.emplace_back([comm = one.comm_] { revoke(comm); });
    }
    ncclGroupStart();
    for (NcclCommunicator& one : all) {
      if (one.comm_ != nullptr && one.own_) ncclCommAbort(std::exchange(one.comm_, nullptr));
    }
    ncclGroupEnd();
  }

 private:
  struct Group {  // this thread's open group between group_begin and group_end
    int depth = 0;
    std::vector<NcclCommunicator*> used;
  };
  static Group& grouped() {
    static thread_local Group group;
    return group;
  }

  explicit NcclCommunicator(const NcclOptions& options) : options_{checked(options)} {}

  static const NcclOptions& checked(const NcclOptions& options) {
    if (options.zero_cta) require_zero_cta();
    return options;
  }

  ncclConfig_t configuration(Traffic traffic) const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = options_.max_ctas > 0 ? options_.max_ctas : traffic == Traffic::pairs ? 8 : 16;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (traffic == Traffic::pairs) config.nvlsCTAs = 1;  // the minimum: NVLink SHARP, and its memory, is for collectives
    if (traffic == Traffic::collectives && options_.zero_cta) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
    return config;
  }
  /// Before 2.23 only some collectives use registered memory, and only with the same layout on all
  /// ranks; before 2.29 a ring hangs as soon as one rank does not have both its source and its
  /// destination registered (src/register/coll_reg.cc).
  bool registers() const {
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess || version < NCCL_VERSION(2, 23, 0)) return false;
    return options_.register_memory.value_or(version >= NCCL_VERSION(2, 29, 0));
  }
  /// Calls of one rank's communicators are made one at a time.
  template <class Call>
  ncclResult_t locked(Call&& call) const {
    const std::lock_guard lock{*calls_};
    return call();
  }
  void dismiss() {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (window_ != nullptr) ncclCommWindowDeregister(comm_, static_cast<ncclWindow_t>(std::exchange(window_, nullptr)));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (enrolled_ != nullptr) ncclCommDeregister(comm_, std::exchange(enrolled_, nullptr));
#endif
  }
  static void revoke([[maybe_unused]] ncclComm_t comm) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 9)
    if (&ncclCommRevoke != nullptr) ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
#endif
  }
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
  static ncclDataType_t kind(Dtype type) {
    switch (type) {
      case Dtype::f64:
        return ncclFloat64;
      case Dtype::f32:
        return ncclFloat32;
      case Dtype::bf16:
        return ncclBfloat16;
      case Dtype::f16:
        return ncclFloat16;
      case Dtype::f8:
        break;
    }
    throw InputError("communication of float8 is not supported; choose f32, bf16, f16 or f64");
  }

  template <class Call>
  void start(Call&& call, std::string_view name) {
    try {
      wait_for(call(), name);
    } catch (const DeviceError&) {
      ncclCommAbort(std::exchange(comm_, nullptr));  // the destructor does not run
      throw;
    }
  }
  void learn() {
    cuda::check(ncclCommCount(comm_, &ranks_), "ncclCommCount", comm_);
    cuda::check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank", comm_);
  }

  template <class Call>
  void done(std::string_view name, Call&& call) {
    const ncclResult_t status = locked(call);
    Group& group = grouped();
    if (group.depth == 0) return wait_for(status, name);
    cuda::check(status, name, comm_);
    if (std::find(group.used.begin(), group.used.end(), this) == group.used.end()) group.used.push_back(this);
  }
  template <class Handle>
  void wait_for_handle(std::unique_ptr<Handle>& handle, std::string_view call) {
    try {
      wait_for(ncclInProgress, call);
    } catch (const DeviceError&) {
      static_cast<void>(handle.release());  // that thread may still write it
      throw;
    }
  }
  /// Waits until the communicator accepts the next call. @throws DeviceError  after the time limit
  void wait_for(ncclResult_t status, std::string_view call) {
    ncclResult_t state = status;
    const std::int64_t begun = tawpipe::detail::now();
    const std::int64_t deadline = begun + static_cast<std::int64_t>(options_.seconds * 1e9);
    while (state == ncclInProgress) {
      cuda::check(locked([&] { return ncclCommGetAsyncError(comm_, &state); }), "ncclCommGetAsyncError", comm_);
      if (state != ncclInProgress) break;
      look_for_stop();
      const std::int64_t now = tawpipe::detail::now();
      if (now > deadline) {
        failed_ = true;
        throw PeerError(concat(call, " on rank ", rank_, " of a communicator of ", ranks_, " has not come about for ",
                               static_cast<std::int64_t>(options_.seconds), " s; a rank has not come, or has ended"));
      }
      if (now - begun < 1'000'000) {  // without connections to set up, a call is soon done
        std::this_thread::yield();
      } else {
        pause_after(std::chrono::nanoseconds{now - begun}, std::chrono::microseconds{50});
      }
    }
    if (state != ncclSuccess) failed_ = true;
    cuda::check(state, call, comm_);
  }
  void look_for_stop() const {
    if (options_.stop == nullptr || !options_.stop->load()) return;
    throw DeviceError("another rank of this process has failed");
  }
  void swap(NcclCommunicator& other) {
    std::swap(options_, other.options_);
    std::swap(calls_, other.calls_);
    std::swap(comm_, other.comm_);
    std::swap(own_, other.own_);
    std::swap(enrolled_, other.enrolled_);
    std::swap(window_, other.window_);
    std::swap(failed_, other.failed_);
    std::swap(rank_, other.rank_);
    std::swap(ranks_, other.ranks_);
  }

  NcclOptions options_;
  /// shared with those split from this one
  std::shared_ptr<std::mutex> calls_ = std::make_shared<std::mutex>();
  ncclComm_t comm_ = nullptr;
  bool own_ = false;
  void* enrolled_ = nullptr;  ///< NCCL's handle of the memory
  void* window_ = nullptr;    ///< the same of a window over it
  bool failed_ = false;
  int rank_ = 0;
  int ranks_ = 1;
};

static_assert(CommunicatorApi<NcclCommunicator, cudaStream_t>);

}  // namespace tawpipe::cuda
