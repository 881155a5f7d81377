// Errors of CUDA libraries as exceptions, and owners of their objects.
// Not: the executors' own calls (execute/cuda/).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// @throws DeviceError  naming the call and CUDA's message; its last error is cleared.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw DeviceError(concat(call, " failed: ", cudaGetErrorString(status), " (", static_cast<int>(status), ")"));
}
inline void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(concat(call, " failed: ", cublasLtGetStatusString(status), " (", static_cast<int>(status), ")"));
}

/// A library's object, freed by `destroy`. Move-only.
template <class Handle, auto destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_{handle} {}
  Owned(Owned&& other) noexcept : handle_{std::exchange(other.handle_, Handle{})} {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) static_cast<void>(destroy(handle_));
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_{};
};

/// Device memory owned by an object, aligned to 256 bytes, freed with it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// @throws DeviceError  if there is not enough.
  explicit DeviceMemory(std::int64_t bytes) : bytes_{bytes} {
    if (bytes > 0) check(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)), "cudaMalloc");
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : memory_{std::exchange(other.memory_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() { static_cast<void>(cudaFree(memory_)); }

  std::int64_t bytes() const { return bytes_; }
  template <class P>
  P* as() const {
    return static_cast<P*>(memory_);
  }
  /// Fills it from the host; complete when it returns. @pre bytes fit
  void fill(const void* from, std::int64_t bytes) {
    check(cudaMemcpy(memory_, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // a copy may return before it is complete
  }

 private:
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace tawpipe::layers::cuda
