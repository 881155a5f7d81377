// What a process holds of its device beside the buffers of its schedule, and how sure it is that all of
// it fits.
// Not: the buffers (analysis/memory.hpp), nor what a framework and a mesh add to them
// (search/device_memory.hpp).
#pragma once

#include <cmath>

#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// The figures that tools print, each from a rank's peak of its buffers.
///
/// Example: `summary.beside->used(summary.fullest())`, what nvidia-smi shows of the fullest device.
struct DeviceMemory {
  Bytes libraries;       ///< tensors that libraries keep: copies of weights, workspaces; below 0: smaller weights
  double gaps = 0;       ///< of what is allocated, what the caching allocator holds in addition
  Bytes context;         ///< CUDA's context and the code of kernels
  Bytes collectives;     ///< NCCL's buffers
  double deviation = 0;  ///< of the natural logarithm of measured over predicted memory

  /// Of a device's memory, what programs can have; the driver has the rest. PyTorch's messages of out of
  /// memory say 79.15 of 80 GiB (A100), 79.1 (H100), 39.39 of 40 (A100), 31.74 of 32 (V100).
  static constexpr double for_programs = 0.99;

  /// What torch.cuda.max_memory_allocated() prints.
  Bytes allocated(Bytes buffers) const { return buffers + libraries; }
  /// What torch.cuda.max_memory_reserved() prints, if the device has so much.
  Bytes reserved(Bytes buffers) const {
    const Bytes all = allocated(buffers);
    return all + Bytes{static_cast<std::int64_t>(gaps * static_cast<double>(all.value()))};
  }
  /// What nvidia-smi shows.
  Bytes used(Bytes buffers) const { return reserved(buffers) + context + collectives; }
  /// What a device must have: the allocator gives back what it holds and no tensor is in before an
  /// allocation fails (PyTorch, CUDACachingAllocator.cpp: release_cached_blocks).
  Bytes needed(Bytes buffers) const { return allocated(buffers) + context + collectives; }
  /// How probable it is that a device of so much memory has enough.
  double fits(Bytes buffers, Bytes memory) const {
    const double most = for_programs * static_cast<double>(memory.value());
    const auto need = static_cast<double>(needed(buffers).value());
    if (need <= 0) return 1;
    if (deviation <= 0) return need <= most ? 1 : 0;
    return 0.5 * std::erfc(std::log(need / most) / deviation / std::sqrt(2.0));
  }
  bool operator==(const DeviceMemory&) const = default;
};

}  // namespace tawpipe
