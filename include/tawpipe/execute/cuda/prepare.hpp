// Environment variables that a program sets before CUDA and NCCL start, since these have no other
// interface for them.
// Not: called by this library itself: that would surprise its host program.
#pragma once

#include <cstdlib>

namespace tawpipe::inline v0::cuda {

/// To be called by `main`, before the program's first call of CUDA or NCCL and before it starts
/// threads; variables already set are kept.
/// - NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 and later; others ignore it): communications of
///   different communicators start on a GPU in the order of their calls. Without it that order has
///   no effect: if the GPU has too few free processors for all that wait for peers, two ranks may
///   each start one that the other has not.
/// - CUDA_DEVICE_MAX_CONNECTIONS=32 (8): this many streams share no queue to the GPU. Streams that
///   share one delay work that was issued to each other later.
/// Source: NCCL's user guide, Environment Variables; CUDA's programming guide, Environment
/// Variables.
inline void prepare_environment() {
  constexpr int keep = 0;
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", keep);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", keep);
}

}  // namespace tawpipe::cuda
