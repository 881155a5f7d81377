// What a program sets in its environment before CUDA and NCCL begin, since they have no other way to be told.
// Not: called by anything of this library: it would surprise its host.
#pragma once

#include <cstdlib>

namespace tawpipe::inline v0::cuda {

/// To be called by `main`, before the program's first call of CUDA or NCCL and before it starts threads; what is set already
/// stays.
/// - NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 and later; others do not look at it): communications of different communicators
/// start
///   on a GPU in the order of their calls. Without it that order decides nothing: where the GPU has too few free processors for
///   all that wait for peers, two ranks may each start what the other has not.
/// - CUDA_DEVICE_MAX_CONNECTIONS=32 (8): so many streams share no queue to the GPU. Of streams that share one, each holds up what
///   was issued to the others after it.
/// Source: NCCL's user guide, Environment Variables; CUDA's programming guide, Environment Variables.
inline void prepare_environment() {
  constexpr int keep = 0;
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", keep);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", keep);
}

}  // namespace tawpipe::cuda
