// A real device with the interface of execute/cuda/device_api.hpp: CUDA's runtime.
// Not: communicators (nccl_api.hpp); device code (kernels.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/check.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/kernels.hpp"

namespace tawpipe::inline v0::cuda {

/// A GPU. It frees what it has created, after waiting for work in progress.
class CudaDevice {
 public:
  using Stream = cudaStream_t;
  using Graph = cudaGraphExec_t;
  /// An event for ordering and, if its time is wanted, a second for that: within a capture, one
  /// event cannot be both.
  struct Event {
    cudaEvent_t order = nullptr;
    cudaEvent_t time = nullptr;
  };

  /// @param index  among the visible GPUs, from 0. @throws CudaError  if there is no such GPU.
  explicit CudaDevice(int index) : index_{index} {
    use();
    partials_ = reinterpret_cast<double*>(allocate(kernels::square_partials * sizeof(double)));
  }
  CudaDevice(CudaDevice&& other) noexcept { swap(other); }
  CudaDevice& operator=(CudaDevice&& other) noexcept {
    swap(other);
    return *this;
  }
  ~CudaDevice() {
    if (memory_.empty() || abandoned_) return;  // moved from, or with work that does not end
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(index_);
    for (const Graph graph : graphs_) cudaGraphExecDestroy(graph);
    for (const OwnStream& one : streams_) cudaStreamSynchronize(one.stream);
    for (const Event& event : events_) {
      cudaEventDestroy(event.order);
      if (event.time != nullptr) cudaEventDestroy(event.time);
    }
    for (const OwnStream& one : streams_) cudaStreamDestroy(one.stream);
    for (std::byte* const at : memory_) cudaFree(at);
    for (std::byte* const at : host_memory_) cudaFreeHost(at);
    cudaSetDevice(before);
    cudaGetLastError();  // the failing call has already reported it
  }

  int index() const { return index_; }
  void use() { check(cudaSetDevice(index_), "cudaSetDevice"); }

  Stream make_stream(Priority priority) {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::high ? greatest : least),
          "cudaStreamCreateWithPriority");
    streams_.push_back({stream, reinterpret_cast<double*>(allocate(kernels::square_partials * sizeof(double)))});
    return stream;
  }
  Event make_event(bool timed) {
    Event event;
    check(cudaEventCreateWithFlags(&event.order, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    if (timed) check(cudaEventCreateWithFlags(&event.time, cudaEventDefault), "cudaEventCreateWithFlags");
    events_.push_back(event);
    return event;
  }
  std::byte* allocate(std::size_t bytes) {
    void* at = nullptr;
    if (bytes > 0) check(cudaMalloc(&at, bytes), "cudaMalloc");
    if (bytes > 0) memory_.push_back(static_cast<std::byte*>(at));
    return static_cast<std::byte*>(at);
  }
  std::byte* allocate_host(std::size_t bytes) {
    void* at = nullptr;
    if (bytes > 0) check(cudaHostAlloc(&at, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    if (bytes > 0) host_memory_.push_back(static_cast<std::byte*>(at));
    return static_cast<std::byte*>(at);
  }

  void record(const Event& event, Stream stream) {
    check(cudaEventRecord(event.order, stream), "cudaEventRecord");
    if (event.time == nullptr) return;
    const bool captured = capturing_ != nullptr && captures(stream);
    check(cudaEventRecordWithFlags(event.time, stream, captured ? cudaEventRecordExternal : cudaEventRecordDefault),
          "cudaEventRecordWithFlags");
  }
  void wait(Stream stream, const Event& event) { check(cudaStreamWaitEvent(stream, event.order, 0), "cudaStreamWaitEvent"); }
  bool finished(const Event& event) {
    const cudaError_t status = cudaEventQuery(event.time != nullptr ? event.time : event.order);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(status, "cudaEventQuery");
    return true;
  }
  std::optional<double> seconds_between(const Event& begin, const Event& end) {
    float milliseconds = 0;
    const cudaError_t status = cudaEventElapsedTime(&milliseconds, begin.time, end.time);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return std::nullopt;
    }
    check(status, "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

  void clear(std::byte* to, std::size_t bytes, Stream stream) { check(cudaMemsetAsync(to, 0, bytes, stream), "cudaMemsetAsync"); }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
    if (to != from) copy(to, from, bytes, cudaMemcpyDefault, stream);
  }
  void upload(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
    copy(to, from, bytes, cudaMemcpyDefault, stream);
  }
  void download(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
    copy(to, from, bytes, cudaMemcpyDefault, stream);
  }
  void add(std::byte* to, const std::byte* from, std::int64_t count, Dtype type, Stream stream) {
    kernels::add(to, from, count, type, stream);
  }
  void add_squares(float* sum, const std::byte* from, std::int64_t count, Dtype type, Stream stream) {
    const auto own = std::find_if(streams_.begin(), streams_.end(), [&](const OwnStream& one) { return one.stream == stream; });
    kernels::add_squares(sum, from, count, type, own == streams_.end() ? partials_ : own->partials, stream);
  }
  void clip_scale(float* scale, const float* square, const StepScalars* scalars, Stream stream) {
    kernels::clip_scale(scale, square, scalars, stream);
  }

  void begin_capture(Stream stream) {
    // For this thread only: other threads, such as NCCL's own, may make calls that a capture would
    // not allow.
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    capturing_ = stream;
  }
  Graph end_capture(Stream stream) {
    capturing_ = nullptr;
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t ready = nullptr;
    // Each node gets the priority of the stream in which it was captured, rather than that of the
    // launch.
    const cudaError_t status = cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
    graphs_.push_back(ready);
    // The first launch uploads it. cudaGraphUpload ends the process (driver 580.159, H200) if NCCL's kernels have launch
    // completion events, as NCCL_LAUNCH_ORDER_IMPLICIT gives them.
    return ready;
  }
  void launch(Graph graph, Stream stream) { check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch"); }

  std::size_t free_memory() {
    std::size_t free = 0;
    std::size_t all = 0;
    check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return free;
  }
  void drop_graphs() {
    cudaSetDevice(index_);
    if (capturing_ != nullptr) {
      cudaGraph_t unfinished = nullptr;
      cudaStreamEndCapture(std::exchange(capturing_, nullptr), &unfinished);
      if (unfinished != nullptr) cudaGraphDestroy(unfinished);
    }
    for (const Graph graph : std::exchange(graphs_, {})) cudaGraphExecDestroy(graph);
    cudaGetLastError();
  }
  bool settle(double seconds) {
    cudaSetDevice(index_);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>{seconds};
    const auto busy = [](const OwnStream& one) { return cudaStreamQuery(one.stream) == cudaErrorNotReady; };
    while (std::any_of(streams_.begin(), streams_.end(), busy) && !abandoned_) {
      abandoned_ = std::chrono::steady_clock::now() > end;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    cudaGetLastError();
    return !abandoned_;
  }

 private:
  struct OwnStream {
    cudaStream_t stream;
    double* partials;  ///< scratch of add_squares: streams run at the same time
  };

  static void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind, Stream stream) {
    if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  }
  static bool captures(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status == cudaStreamCaptureStatusActive;
  }
  void swap(CudaDevice& other) {
    std::swap(index_, other.index_);
    std::swap(capturing_, other.capturing_);
    std::swap(abandoned_, other.abandoned_);
    std::swap(partials_, other.partials_);
    std::swap(streams_, other.streams_);
    std::swap(events_, other.events_);
    std::swap(graphs_, other.graphs_);
    std::swap(memory_, other.memory_);
    std::swap(host_memory_, other.host_memory_);
  }

  int index_ = 0;
  cudaStream_t capturing_ = nullptr;  ///< the first of them
  bool abandoned_ = false;            ///< its streams do not finish
  double* partials_ = nullptr;        ///< scratch of add_squares on streams of others
  std::vector<OwnStream> streams_;
  std::vector<Event> events_;
  std::vector<Graph> graphs_;
  std::vector<std::byte*> memory_;
  std::vector<std::byte*> host_memory_;
};

static_assert(DeviceApi<CudaDevice>);

}  // namespace tawpipe::cuda
