// Host work in a CUDA stream: what the software GPU's libraries compute by.
// Not: the stream itself (the stand-in for the CUDA runtime).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace software_gpu {

/// `work()` runs once in the stream's turn; where the stream is being captured, once in each launch
/// of the graph. Captured work is kept until the process ends, since nothing tells when its graph
/// does.
template <class Work>
cudaError_t enqueue(cudaStream_t stream, Work work) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (const cudaError_t status = cudaStreamIsCapturing(stream, &capture); status != cudaSuccess) return status;
  if (capture != cudaStreamCaptureStatusNone) {
    static auto* const mutex = new std::mutex;
    static auto* const captured = new std::vector<std::unique_ptr<Work>>;  // streams may outlive main()
    const std::lock_guard lock{*mutex};
    captured->push_back(std::make_unique<Work>(std::move(work)));
    return cudaLaunchHostFunc(
        stream, [](void* kept) { (*static_cast<Work*>(kept))(); }, captured->back().get());
  }
  auto once = std::make_unique<Work>(std::move(work));
  const auto run = [](void* given) { (*std::unique_ptr<Work>{static_cast<Work*>(given)})(); };
  const cudaError_t status = cudaLaunchHostFunc(stream, run, once.get());
  if (status == cudaSuccess) static_cast<void>(once.release());
  return status;
}

}  // namespace software_gpu
