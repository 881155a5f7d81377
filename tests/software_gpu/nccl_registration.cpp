// Sources: NCCL's src/enqueue.cc and register.cc (2.23), src/register/coll_reg.cc (2.24 to 2.30), of
// rings on GPUs that reach each other's memory; of windows src/enqueue.cc (taskAppend), init.cc
// (CTAPolicy), misc/argcheck.cc (registrationCheck), 2.27 to 2.30.
// Not: copy engines between hosts (2.30.6), trees, NVLink SHARP and CollNet; NCCL's choice of protocol beyond the size of a
// message.
#include "software_gpu/nccl_registration.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace software_gpu {
namespace {

constexpr int version_of(int major, int minor, int patch) { return major * 10000 + minor * 100 + patch; }

bool is_set(const char* variable, const std::string& value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && text == value;
}

/// Only protocol Simple uses memory directly. Sends and receives have it above 16 KiB a channel
/// (NCCL_P2P_LL_THRESHOLD), of which there are 32; collectives from a size that NCCL estimates for
/// each machine: here the same.
bool is_simple(std::size_t bytes) {
  return is_set("NCCL_PROTO", "Simple") || (!is_set("NCCL_PROTO", "LL") && bytes > std::size_t{32} * 16384);
}

}  // namespace

int nccl_version() {
  static const int version = [] {
    int major = 0;
    int minor = 0;
    int patch = 0;
    const char* const text = std::getenv("SOFTWARE_GPU_NCCL_VERSION");
    if (text == nullptr) return NCCL_VERSION_CODE;
    if (std::sscanf(text, "%d.%d.%d", &major, &minor, &patch) == 3) return version_of(major, minor, patch);
    std::fprintf(stderr, "software NCCL: SOFTWARE_GPU_NCCL_VERSION is %s; it must be as 2.27.3\n", text);
    std::abort();
  }();
  return version;
}

bool is_policy(int policy) { return policy >= 0 && policy <= (nccl_version() < version_of(2, 28, 0) ? 1 : 2); }

bool is_copied(const Operation& call, const CallMemory& memory, int policy) {
  constexpr int zero = 2;  // NCCL_CTA_POLICY_ZERO
  if (call.kind != Kind::all_gather || policy != zero || memory.hosts || !memory.to_place) return false;
  return memory.from_place || nccl_version() >= version_of(2, 29, 0);
}

std::array<std::uint64_t, 2> places_of(const Operation& call, const CallMemory& memory) {
  const auto place = [](std::optional<std::size_t> at) { return at ? std::uint64_t{1} + *at : 0; };
  const bool gathers = call.kind == Kind::all_gather;
  const bool scatters = call.kind == Kind::reduce_scatter;
  const bool sums = call.kind == Kind::all_reduce;
  return {scatters || sums ? place(memory.from_place) : 0, gathers || sums ? place(memory.to_place) : 0};
}

bool used_directly(const Operation& call, const CallMemory& memory, int ranks) {
  const bool by_caller = !is_set("NCCL_LOCAL_REGISTER", "0");
  const bool by_graph = memory.captured && !is_set("NCCL_GRAPH_REGISTER", "0");
  const bool from = (memory.from && by_caller) || (by_graph && call.from != nullptr);
  const bool to = (memory.to && by_caller) || (by_graph && call.to != nullptr);
  const std::size_t parts = call.kind == Kind::all_gather ? static_cast<std::size_t>(ranks) : 1;
  if (!is_simple(call.count * parts * size_of(call.type))) return false;
  switch (call.kind) {
    case Kind::send:
      return from && !memory.hosts;  // between hosts the two sides need not agree
    case Kind::receive:
      return to && !memory.hosts;
    case Kind::reduce:
    case Kind::reduce_scatter:
      return false;
    case Kind::all_reduce:
      if (call.from == call.to) return false;
      break;
    case Kind::broadcast:
    case Kind::all_gather:
      break;
  }
  const int version = nccl_version();
  if (version < version_of(2, 24, 0)) return memory.to && by_caller && !memory.hosts;
  if (memory.hosts) return from && to;
  // Records of both, or of none in a graph; 2.29 does without the source's on one host.
  const bool recorded = by_graph || version >= version_of(2, 29, 0) || from;
  return to && recorded;
}

}  // namespace software_gpu
