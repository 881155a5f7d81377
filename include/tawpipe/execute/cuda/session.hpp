// One rank of a run on GPUs, a process or a thread: the other ranks, its GPU, the communicator of
// all, the watch.
// Not: a schedule's execution (nccl_executor.hpp); the launcher that started this process
// (launcher.hpp).
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/version.hpp"
#include "tawpipe/execute/cuda/check.hpp"
#include "tawpipe/execute/cuda/gpu_places.hpp"
#include "tawpipe/execute/cuda/iteration.hpp"
#include "tawpipe/execute/cuda/nccl_api.hpp"
#include "tawpipe/execute/cuda/nvlink.hpp"
#include "tawpipe/execute/cuda/rank_threads.hpp"
#include "tawpipe/execute/cuda/rendezvous.hpp"

namespace tawpipe::inline v0::cuda {

/// GPUs that this process may use, which CUDA_VISIBLE_DEVICES can limit.
/// @throws DeviceError  if there is none.
inline int visible_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  throw DeviceError(
      concat("no CUDA device was found (", status == cudaSuccess ? "none is visible" : cudaGetErrorString(status),
             "); an NVIDIA GPU with its driver is needed: nvidia-smi lists it, and CUDA_VISIBLE_DEVICES must not hide "
             "it"));
}

/// How ranks of one host recognize each other: NCCL_HOSTID, as used by NCCL, or the host's name and
/// boot id.
inline Introduction introduce_host(const Environment& environment) {
  Introduction own;
  if (const std::string_view given = detail::variable(environment, "NCCL_HOSTID"); !given.empty()) {
    own.host = given;
    return own;
  }
  std::array<char, 256> name{};
  own.host = ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> own.boot;
  return own;
}

/// A launch may wait in the driver, whose locks a process's threads share, for space in a GPU's
/// queue, while the launch of another rank, on which it depends, waits for those locks.
/// @throws InputError  with that reason.
[[noreturn]] inline void refuse_graph_of_threads() {
  throw InputError(
      "graphs of several GPUs in one process can wait for each other in the driver; start a process for each GPU (torchrun, "
      "srun, "
      "mpirun), or leave --graph out");
}

/// The start of a run on GPUs, and its watch.
struct SessionOptions {
  double meeting_seconds = 120;  ///< how long ranks wait for each other at the start
  WatchOptions watch{};
  NcclOptions nccl{};
};

/// One for each rank, created and destroyed by the thread that runs its executor: first the ranks
/// meet; then, once all have agreed that they can start, GPU and communicator follow. Ranks are the
/// processes of a launcher, which meet by TCP and are watched, or threads of this process.
class Session {
 public:
  /// Collective over all processes of the run. Needs no GPU.
  /// @throws InputError  if the launcher's variables cannot be used. DeviceError  if ranks do not
  /// find each other.
  explicit Session(const Environment& environment, const SessionOptions& options = {})
      : options_{options}, place_{place_of(environment)} {
    Introduction own = introduce_host(environment);
    own.software = software();
    if (place_.rank == 0) own.token = new_communicator_id();
    meeting_ = meet(place_, own, options.meeting_seconds);
    hosts_ = host_names(meeting_.ranks);
  }
  /// Collective over all threads.
  /// @throws DeviceError  if another rank fails.
  Session(RankThreads& threads, int rank, const SessionOptions& options = {}) : options_{options}, threads_{&threads} {
    place_ = {.rank = rank, .ranks = threads.ranks(), .local_rank = rank, .launcher = {}, .job = {}, .token = {}};
    options_.nccl.stop = &threads.failed();
    Introduction own = introduce_host({});
    own.software = software();
    for (std::string& token : threads.exchange(rank, rank == 0 ? new_communicator_id() : "")) {
      own.token = std::move(token);
      meeting_.ranks.push_back(own);
    }
    hosts_ = host_names(meeting_.ranks);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// If a process leaves by its own exception, all others are told (for threads RankThreads::run
  /// does so).
  ~Session() {
    if (!watch_) return;
    if (!together_ && std::uncaught_exceptions() > exceptions_) fail("it ended with an error of its own");
    watch_->close();
  }

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  const ProcessPlace& place() const { return place_; }
  /// [rank]
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Its index among the ranks of its host.
  int local_rank() const {
    const auto own = hosts_.begin() + rank();
    return place_.local_rank ? *place_.local_rank : static_cast<int>(std::count(hosts_.begin(), own, *own));
  }
  /// The GPU that this rank uses: its local rank, modulo those that it sees. @throws DeviceError
  /// if it sees none.
  int device() const { return local_rank() % visible_devices(); }

  /// The location of each rank's GPU, as far as known: only a host if it has no GPU. Collective,
  /// before `connect`. @return [rank]
  std::vector<GpuPlace> places() {
    std::string own;
    const GpuPlace found = own_place();
    detail::put(own, found.gpu);
    for (const std::string& other : found.reaches) detail::put(own, other);
    std::vector<GpuPlace> all;
    for (const std::string& text : exchanged(own)) {
      std::string_view rest = text;
      GpuPlace& place = all.emplace_back();
      place.host = hosts_[all.size() - 1];
      detail::take(rest, place.gpu);
      for (std::string other; detail::take(rest, other);) place.reaches.push_back(other);
    }
    return all;
  }
  /// Before a run: if any rank cannot start, none does. Collective, before `connect`.
  /// @param problem  what prevents this rank from starting, or empty
  /// @throws InputError  on all ranks, with the lowest such rank's problem.
  void agree(const std::string& problem) {
    const std::vector<std::string> problems = exchanged(problem);
    for (std::size_t r = 0; r < problems.size(); ++r) {
      if (problems[r].empty()) continue;
      together_ = true;
      throw InputError(problems.size() == 1 ? problems[r] : concat("rank ", r, " on ", hosts_[r], ": ", problems[r]));
    }
  }
  /// Rank 0's text, on all ranks. Collective, before `connect`. @param own  this rank's text
  std::string from_root(const std::string& own) { return exchanged(own).front(); }
  /// The communicator of all ranks, and the watch over processes from here on. Collective, once;
  /// the rank's GPU must be current.
  NcclCommunicator connect() {
    if (threads_ == nullptr) watch_.emplace(rank(), std::move(meeting_.peers), options_.watch);
    return NcclCommunicator{meeting_.ranks.front().token, rank(), ranks(), options_.nccl};
  }
  /// Adds the detection of stalled tasks: by the watch, or for threads by the executor itself; and
  /// the callback for failures. Graphs only if all ranks share a host: in a graph, the host's
  /// part of a message to another host is a node that waits for the host's threads. @pre connect()
  /// was called
  /// @throws InputError  as refuse_graph_of_threads, for graphs of ranks that are threads.
  ExecutorOptions watched(ExecutorOptions options = {}) {
    if (options.graph && ranks() > 1 && threads_ != nullptr) refuse_graph_of_threads();
    options.graph = options.graph && one_host();
    options.watch = watch_ ? &*watch_ : nullptr;
    if (!watch_ && options_.watch.on) options.task_limit = options_.watch.task_seconds;
    options.connect_limit = options_.nccl.seconds;
    options.failed = [this](const std::string& why) { fail(why); };
    return options;
  }
  bool one_host() const { return std::count(hosts_.begin(), hosts_.end(), hosts_.front()) == std::ssize(hosts_); }
  /// Tells all ranks that this one has failed and why: processes by WatchOptions::failed, threads
  /// by an exception in the next thing they do together. The caller then ends, too.
  void fail(const std::string& why) {
    if (watch_) watch_->fail(why);
    if (threads_ != nullptr) threads_->fail(rank(), why);
  }

 private:
  /// Exchanges a text from each rank. Collective, before `connect`. @return [rank]
  std::vector<std::string> exchanged(const std::string& own) {
    return threads_ != nullptr ? threads_->exchange(rank(), own) : exchange(meeting_, rank(), own, options_.meeting_seconds);
  }
  GpuPlace own_place() const {
    GpuPlace place{hosts_[static_cast<std::size_t>(rank())], {}, {}};
    std::array<char, 32> bus{};
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
        cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), local_rank() % count) == cudaSuccess) {
      find_nvlink(bus.data(), place);
    }
    cudaGetLastError();  // `device` reports it
    return place;
  }
  static std::string software() {
    int nccl = 0;
    check(ncclGetVersion(&nccl), "ncclGetVersion");
    return concat("tawpipe ", version, " with NCCL ", nccl / 10000, ".", nccl / 100 % 100, ".", nccl % 100);
  }

  SessionOptions options_;
  RankThreads* threads_ = nullptr;  ///< this rank is one of them; null: a process
  ProcessPlace place_;
  Meeting meeting_;
  std::vector<std::string> hosts_;
  bool together_ = false;  ///< all ranks end by the same exception
  int exceptions_ = std::uncaught_exceptions();
  std::optional<Watch> watch_;
};

}  // namespace tawpipe::cuda
