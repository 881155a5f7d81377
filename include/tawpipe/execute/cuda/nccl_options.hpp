// What a user may ask of NCCL, and whether the NCCL at hand can do it.
// Not: what becomes of it (nccl_api.hpp).
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <optional>
#include <string>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/check.hpp"

namespace tawpipe::inline v0::cuda {

/// Options for NCCL.
struct NcclOptions {
  /// The maximum of blocks, each on a processor of the GPU, that a communication takes from
  /// computation while it runs or waits; 0: 8 for sends and receives, 16 for collectives, about
  /// what a GPU with NVLink needs.
  int max_ctas = 0;
  /// All-gathers go through windows of memory, where NCCL moves them by copy engines, without a
  /// block, if it can (NCCL_CTA_POLICY_ZERO). The same on all ranks. @see require_zero_cta
  bool zero_cta = false;
  double seconds = 600;  ///< a communicator not ready for the next call after this time has failed
  /// Whether messages use memory that is registered with NCCL; none: with NCCL 2.29 and later.
  /// Before 2.23 none is registered.
  std::optional<bool> register_memory{};
  /// For ranks that are threads: true once one of them has failed (RankThreads::failed). Null: no
  /// other ranks in this process.
  const std::atomic<bool>* stop = nullptr;
};

/// @throws InputError  unless NCCL and the driver know NcclOptions::zero_cta: older ones would use
/// processors without a word, or refuse the policy. Source: NCCL's user guide, Zero-CTA Optimization.
inline void require_zero_cta() {
  constexpr int least = NCCL_VERSION(2, 28, 0);
  int found = 0;
  check(ncclGetVersion(&found), "ncclGetVersion");
  const auto shown = [](int version) { return concat(version / 10000, ".", version / 100 % 100, ".", version % 100); };
  const auto refuse = [](const std::string& what) {
    throw InputError(
        concat("all-gathers that take no SMs (zero_cta, --zero-cta) need NCCL 2.28 or later and a driver for CUDA "
               "12.5 or later, and ",
               what, "; use such ones, or leave the option out"));
  };
  if (found < least) refuse(concat("this is NCCL ", shown(found)));
  if (NCCL_VERSION_CODE < least) refuse(concat("this program was built with NCCL ", shown(NCCL_VERSION_CODE)));
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (driver < 12050) refuse(concat("this driver is for CUDA ", driver / 1000, ".", driver % 1000 / 10));
}

}  // namespace tawpipe::cuda
