// Failures of CUDA and NCCL calls as exceptions.
// Not: failures that only show later, in a stream (CUDA reports them by a later call) or a
// communicator (nccl_api.hpp).
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/peer_error.hpp"

namespace tawpipe::inline v0::cuda {

/// A CUDA call that failed.
class CudaError : public DeviceError {
 public:
  CudaError(const std::string& message, cudaError_t status) : DeviceError{message}, status_{status} {}
  cudaError_t status() const { return status_; }

 private:
  cudaError_t status_;
};

/// A NCCL call that failed.
class NcclError : public PeerError {
 public:
  NcclError(const std::string& message, ncclResult_t status) : PeerError{message}, status_{status} {}
  ncclResult_t status() const { return status_; }

 private:
  ncclResult_t status_;
};

namespace detail {

/// "cuda_api.hpp:57" from a whole path.
inline std::string place(std::string_view file, int line) {
  const auto slash = file.rfind('/');
  return concat(slash == std::string_view::npos ? file : file.substr(slash + 1), ":", line);
}

}  // namespace detail

/// `check(cudaMalloc(&at, bytes), "cudaMalloc")`. The runtime's last error is cleared, so that it
/// is not attributed to a later call. File and line are the caller's, from builtins: clang 14 has
/// no std::source_location.
/// @throws CudaError  unless `status` is success.
inline void check(cudaError_t status, std::string_view call, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError{
      concat(call, " failed: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ", ", detail::place(file, line), ")"),
      status};
}

/// @param comm  whose last error is added; null: none
/// @throws NcclError  unless `status` is success, or in progress, as calls on non-blocking
/// communicators may be.
inline void check(ncclResult_t status, std::string_view call, ncclComm_t comm = nullptr, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  const std::string words = one_line(ncclGetLastError(comm));
  throw NcclError{concat(call, " failed: ", ncclGetErrorString(status), words.empty() ? "" : ": ", words, " (",
                         detail::place(file, line), ")"),
                  status};
}

}  // namespace tawpipe::cuda
