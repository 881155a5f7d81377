// CUDA's runtime over host memory and threads, in place of libcudart: the functions that tawpipe
// calls, as strict as it asks of a GPU.
// Not: devices and errors (devices.cpp); launches of kernels (launches.cpp).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "software_gpu/device.hpp"
#include "software_gpu/inside.hpp"

namespace software_gpu {

namespace {

thread_local std::shared_ptr<Capture> capture_of_thread;

/// All that lives as long as the process; never destroyed, since streams work to its end.
struct Machine {
  struct Block {
    std::size_t bytes;
    int device;  ///< -1: page-locked memory of the host
  };
  std::mutex mutex;
  std::map<const std::byte*, Block> blocks;
  std::map<int, Stream*> default_streams;
  std::set<Stream*> streams;
};
Machine& machine() {
  static auto* const one = new Machine;
  return *one;
}

/// Whether [at, at + bytes) lies in one allocation, of device memory or of page-locked host memory.
bool lies_in(const void* at, std::size_t bytes, bool on_device) {
  Machine& all = machine();
  const std::lock_guard lock{all.mutex};
  const auto* const begin = static_cast<const std::byte*>(at);
  auto block = all.blocks.upper_bound(begin);
  if (block == all.blocks.begin()) return false;
  --block;
  return begin + bytes <= block->first + block->second.bytes && (block->second.device >= 0) == on_device;
}

/// What a thread that captures must not call spoils its capture.
cudaError_t refused() {
  if (broken() != cudaSuccess) return fail(broken());
  if (capture_of_thread == nullptr) return cudaSuccess;
  const std::lock_guard lock{state_mutex()};
  capture_of_thread->invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

cudaError_t allocate(void** at, std::size_t bytes, int device) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  Machine& all = machine();
  const std::lock_guard lock{all.mutex};
  std::size_t taken = bytes;
  for (const auto& [begin, block] : all.blocks) taken += block.device == device ? block.bytes : 0;
  if (taken > memory_of_device()) return fail(cudaErrorMemoryAllocation);
  *at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*at == nullptr) return fail(cudaErrorMemoryAllocation);
  std::memset(*at, 0xff, bytes);  // not a number
  all.blocks[static_cast<std::byte*>(*at)] = {bytes, device};
  return cudaSuccess;
}

cudaError_t synchronize(int device) {
  std::vector<std::shared_ptr<const Mark>> ends;
  {
    const std::lock_guard lock{machine().mutex};  // another thread may destroy a stream meanwhile
    for (Stream* const stream : machine().streams) {
      if (stream->device() == device) ends.push_back(stream->end());
    }
  }
  for (const auto& end : ends) end->wait();
  return broken();
}

cudaError_t release(void* at, bool on_device) {
  if (at == nullptr) return cudaSuccess;
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  if (!lies_in(at, 0, on_device)) return fail(cudaErrorInvalidValue);
  if (const cudaError_t error = synchronize(current_device()); error != cudaSuccess) return fail(error);
  const std::lock_guard lock{machine().mutex};
  if (machine().blocks.erase(static_cast<std::byte*>(at)) == 0) return fail(cudaErrorInvalidValue);
  std::free(at);
  return cudaSuccess;
}

/// Whether both ends are where `kind` says. @param pageable  host memory may be any
bool fits(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, bool pageable) {
  if (bytes == 0) return true;  // whatever the addresses
  const auto host = [&](const void* at) { return pageable ? !lies_in(at, bytes, true) : lies_in(at, bytes, false); };
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return lies_in(to, bytes, true) && host(from);
    case cudaMemcpyDeviceToHost:
      return host(to) && lies_in(from, bytes, true);
    case cudaMemcpyDeviceToDevice:
      return lies_in(to, bytes, true) && lies_in(from, bytes, true);
    case cudaMemcpyDefault:
      return (lies_in(to, bytes, true) || host(to)) && (lies_in(from, bytes, true) || host(from));
    default:
      return false;
  }
}

Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }
std::shared_ptr<Graph>& graph_of(void* graph) { return *static_cast<std::shared_ptr<Graph>*>(graph); }

struct ReadyGraph {
  std::shared_ptr<const Graph> graph;
  bool own_priorities;
};
ReadyGraph& ready_of(cudaGraphExec_t ready) { return *reinterpret_cast<ReadyGraph*>(ready); }

cudaError_t record(Event& event, cudaStream_t handle, bool external) {
  Stream& stream = stream_of(handle);
  if (event.device != stream.device()) return fail(cudaErrorInvalidResourceHandle);
  std::unique_lock lock{state_mutex()};
  if (!stream.capture) {
    if (external) return fail(cudaErrorInvalidValue);
    event.capture = nullptr;
    const auto mark = event.last = std::make_shared<Mark>();
    lock.unlock();  // or who looks at events would wait with the caller for a full stream
    stream.put([mark] { mark->reach(); });
    return cudaSuccess;
  }
  if (stream.capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (external) {
    stream.capture->add(stream, [&event] {  // which is told a little later, when the graph may be at its end
      const auto mark = std::make_shared<Mark>();
      std::thread([mark, now = std::chrono::steady_clock::now()] {
        std::this_thread::sleep_for(std::chrono::microseconds{100});
        mark->reach(now);
      }).detach();
      const std::lock_guard own{state_mutex()};
      event.last = mark;
    });
    return cudaSuccess;
  }
  event.capture = stream.capture;
  event.captured_after = stream.capture->tails.at(&stream).after;
  return cudaSuccess;
}

}  // namespace

Stream& default_stream() {
  const std::lock_guard lock{machine().mutex};
  Stream*& stream = machine().default_streams[current_device()];
  if (stream == nullptr) {
    stream = new Stream{current_device(), 0};
    machine().streams.insert(stream);
  }
  return *stream;
}

cudaError_t put(cudaStream_t handle, Work work) {
  if (broken() != cudaSuccess) return fail(broken());
  Stream& stream = stream_of(handle);
  std::unique_lock lock{state_mutex()};
  if (handle == nullptr && capture_of_thread) {
    capture_of_thread->invalid = true;
    return fail(cudaErrorStreamCaptureImplicit);
  }
  if (!stream.capture) {
    lock.unlock();
    stream.put(std::move(work));
  } else if (stream.capture->invalid) {
    return fail(cudaErrorStreamCaptureInvalidated);
  } else {
    stream.capture->add(stream, std::move(work));
  }
  return cudaSuccess;
}

}  // namespace software_gpu

using namespace software_gpu;

extern "C" {

// ---- memory -------------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** at, std::size_t bytes) { return allocate(at, bytes, current_device()); }
cudaError_t cudaHostAlloc(void** at, std::size_t bytes, unsigned) { return allocate(at, bytes, -1); }
cudaError_t cudaFree(void* at) { return release(at, true); }
cudaError_t cudaFreeHost(void* at) { return release(at, false); }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  const std::lock_guard lock{machine().mutex};
  *free = *all = memory_of_device();
  for (const auto& [begin, block] : machine().blocks) *free -= block.device == current_device() ? block.bytes : 0;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (!fits(to, from, bytes, kind, false)) return fail(cudaErrorInvalidValue);
  return put(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  if (!fits(to, from, bytes, kind, true)) return fail(cudaErrorInvalidValue);
  default_stream().end()->wait();
  if (bytes > 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!lies_in(to, bytes, true)) return fail(cudaErrorInvalidValue);
  return put(stream, [=] { std::memset(to, value, bytes); });
}

// ---- streams ------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  auto* const made = new Stream{current_device(), priority};
  const std::lock_guard lock{machine().mutex};
  machine().streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock{machine().mutex};
  if (machine().streams.erase(&stream_of(stream)) == 0) return fail(cudaErrorInvalidResourceHandle);
  stream_of(stream).close();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  const cudaError_t error = synchronize(current_device());
  return error == cudaSuccess ? error : fail(error);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  stream_of(stream).end()->wait();
  return broken() == cudaSuccess ? cudaSuccess : fail(broken());
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  return stream_of(stream).idle() ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return put(stream, [=] { function(data); });
}

// ---- events -------------------------------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto* const made = new Event;
  made->device = current_device();
  made->timed = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return record(event_of(event), stream, false); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return record(event_of(event), stream, (flags & cudaEventRecordExternal) != 0);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  Stream& stream = stream_of(handle);
  std::unique_lock lock{state_mutex()};
  const Event& facts = event_of(event);
  if (facts.capture) {
    if (stream.capture && stream.capture != facts.capture) return fail(cudaErrorStreamCaptureMerge);
    if (!stream.capture && facts.capture->origin == nullptr) return fail(cudaErrorCapturedEvent);  // its capture has ended
    facts.capture->join(facts.capture, stream);
    std::set<int>& after = stream.capture->tails.at(&stream).after;
    after.insert(facts.captured_after.begin(), facts.captured_after.end());
    return cudaSuccess;
  }
  if (stream.capture) {
    stream.capture->invalid = true;
    return fail(cudaErrorStreamCaptureIsolation);
  }
  const auto mark = facts.last;
  lock.unlock();
  if (mark) stream.put([mark] { mark->wait(); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  const std::lock_guard lock{state_mutex()};
  const Event& facts = event_of(event);
  if (facts.capture) return fail(cudaErrorCapturedEvent);
  return !facts.last || facts.last->reached() ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  const std::lock_guard lock{state_mutex()};
  for (const Event* const one : {&event_of(begin), &event_of(end)}) {
    if (!one->timed || !one->last || one->capture) return fail(cudaErrorInvalidResourceHandle);
    if (!one->last->reached()) return fail(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(event_of(end).last->when() - event_of(begin).last->when()).count();
  return *milliseconds < 0 ? fail(cudaErrorInvalidValue) : cudaSuccess;  // nothing says what a GPU gives
}

// ---- graphs -------------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  if (handle == nullptr) return fail(cudaErrorStreamCaptureUnsupported);
  Stream& stream = stream_of(handle);
  const std::lock_guard lock{state_mutex()};
  if (stream.capture || capture_of_thread) return fail(cudaErrorIllegalState);
  static std::uint64_t captures = 0;
  const auto capture = std::make_shared<Capture>();
  capture->number = ++captures;
  capture->origin = &stream;
  capture->thread = std::this_thread::get_id();
  capture->join(capture, stream);
  capture_of_thread = capture;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock{state_mutex()};
  const auto& capture = stream_of(stream).capture;
  *status = !capture           ? cudaStreamCaptureStatusNone
            : capture->invalid ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::lock_guard lock{state_mutex()};
  const std::shared_ptr<Capture> capture = stream_of(stream).capture;
  if (!capture) return fail(cudaErrorIllegalState);
  if (capture->origin != &stream_of(stream)) return fail(cudaErrorStreamCaptureUnmatched);
  if (capture->thread != std::this_thread::get_id()) return fail(cudaErrorStreamCaptureWrongThread);
  const bool joined = capture->joined();
  for (const auto& [one, tail] : capture->tails) one->capture = nullptr;
  capture->origin = nullptr;
  capture_of_thread = nullptr;
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!joined) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Graph>{std::make_shared<Graph>(std::move(capture->graph))});
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long flags) {
  if (const cudaError_t error = refused(); error != cudaSuccess) return error;
  const bool own_priorities = (flags & cudaGraphInstantiateFlagUseNodePriority) != 0;
  *ready = reinterpret_cast<cudaGraphExec_t>(new ReadyGraph{graph_of(graph), own_priorities});
  return cudaSuccess;
}
/// Driver 580.159 ends the process here if kernels have launch completion events, as NCCL's in the order of calls.
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (order != nullptr && *order == '1') std::abort();
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
  const ReadyGraph& one = ready_of(ready);
  return put(stream, [graph = one.graph, own_priorities = one.own_priorities] { graph->run(own_priorities); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
  delete &ready_of(ready);
  return cudaSuccess;
}

// ---- what the other libraries ask -----------------------------------------------------------------------------------------

void software_gpu_free(void* at) {
  const std::lock_guard lock{machine().mutex};
  if (machine().blocks.erase(static_cast<std::byte*>(at)) > 0) std::free(at);
}
unsigned long long software_gpu_capture(cudaStream_t stream) {
  const std::lock_guard lock{state_mutex()};
  const auto& capture = stream_of(stream).capture;
  return capture ? capture->number : 0;
}
void software_gpu_hold(cudaStream_t stream, void (*release)(void*), void* held) {
  const std::lock_guard lock{state_mutex()};
  stream_of(stream).capture->graph.held.emplace_back(held, release);
}

}  // extern "C"
