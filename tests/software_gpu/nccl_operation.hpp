// A communication as it was called: its words, what it sends, and what comes of all members' parts.
// Not: how parts reach members (nccl_broker.hpp); when (nccl_communicator.hpp).
#pragma once

#include <cuda_runtime_api.h>
#pragma GCC visibility push(default)  // the library exports NCCL's functions and nothing else
#include <nccl.h>
#pragma GCC visibility pop

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "software_gpu/nccl_broker.hpp"

namespace software_gpu {

enum class Kind : int { send, receive, broadcast, reduce, all_gather, reduce_scatter, all_reduce };

struct Operation {
  Kind kind;
  const void* from;  ///< [count] numbers; reduce_scatter: [members * count]
  void* to;          ///< [count] numbers; all_gather: [members * count]
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;  ///< of those that reduce
  int peer;        ///< or root; otherwise 0
  cudaStream_t stream;
  bool registered = false;  ///< all memory of it is
  bool direct = false;      ///< this member's kernel uses that memory (nccl_registration.hpp)
  bool copied = false;      ///< by copy engines, in place of a kernel
  /// 1 + the place in a symmetric window of what NCCL takes to be at the same place on all members,
  /// of source and destination; 0: in none, or of no matter
  std::array<std::uint64_t, 2> places{};

  bool between_two() const { return kind == Kind::send || kind == Kind::receive; }
  bool reduces() const { return kind == Kind::reduce || kind == Kind::reduce_scatter || kind == Kind::all_reduce; }
  bool has_root() const { return kind == Kind::broadcast || kind == Kind::reduce; }
};

/// Of one number. 0: no such type
std::size_t size_of(ncclDataType_t type);

/// Whether `op` on `type` is one that this stand-in knows.
bool can_reduce(ncclRedOp_t op, ncclDataType_t type);

/// What the other members must call alike, as a meeting's head.
std::string head_of(const Operation& operation);

/// "ncclReduce(count 4, type 7, op 0, root 1)" from a head.
std::string describe(const std::string& head);

/// Whether the calls of two heads match.
bool fit(const std::string& one, const std::string& other);

/// What this member sends. @param rank, ranks  of it and of all
Part part_of(const Operation& operation, int rank, int ranks);

/// Writes what comes of all parts. 16-bit sums are rounded after each addend, in the order of
/// ranks.
/// @param parts  [rank]; of send and receive [0] is the sender's
void complete(const Operation& operation, int rank, const std::vector<Part>& parts);

}  // namespace software_gpu
