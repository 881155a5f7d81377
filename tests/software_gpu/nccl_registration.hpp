// When NCCL's kernels use a caller's registered memory directly, by NCCL's version: a member that
// does while another does not would wait for ever for an address that nobody tells it.
// Not: which memory is registered (nccl_communicator.hpp).
#pragma once

#include <cstddef>
#include <optional>

#include "software_gpu/nccl_operation.hpp"

namespace software_gpu {

/// As ncclGetVersion tells it: SOFTWARE_GPU_NCCL_VERSION, such as 2.27.3; else that of the header.
int nccl_version();

/// Of one member's call.
struct CallMemory {
  bool from = false;      ///< its source is registered
  bool to = false;        ///< its destination is
  bool captured = false;  ///< into a graph: NCCL registers by itself what is not null
  bool hosts = false;     ///< members of the operation are on several hosts
  /// where source and destination are in symmetric windows
  std::optional<std::size_t> from_place{};
  std::optional<std::size_t> to_place{};
};

/// Whether this member's kernel would. @param ranks  of the communicator
bool used_directly(const Operation& call, const CallMemory& memory, int ranks);

/// Whether copy engines would do the call. @param policy  ncclConfig_t::CTAPolicy
bool is_copied(const Operation& call, const CallMemory& memory, int policy);

/// Operation::places. NCCL finds other members' memory by this member's place in its own, which is
/// only right if all have the same.
std::array<std::uint64_t, 2> places_of(const Operation& call, const CallMemory& memory);

/// Whether a communicator may have it.
bool is_policy(int policy);

}  // namespace software_gpu
