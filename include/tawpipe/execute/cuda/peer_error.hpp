// The failure of a communicator.
// Not: failures of calls of CUDA and NCCL (check.hpp).
#pragma once

#include "tawpipe/core/error.hpp"

namespace tawpipe::inline v0::cuda {

/// A communicator has failed, possibly because of another rank.
class PeerError : public DeviceError {
  using DeviceError::DeviceError;
};

}  // namespace tawpipe::cuda
