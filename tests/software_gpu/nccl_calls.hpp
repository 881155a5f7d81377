// What the software GPU's NCCL functions share: communicators by handle, calls that come about
// later, groups, new communicators.
// Not: the functions (nccl.cpp) nor what a communicator does (nccl_communicator.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "software_gpu/nccl_communicator.hpp"

namespace software_gpu {

using Shared = std::shared_ptr<Communicator>;

/// A handle is a number that is never used again, so that each use of a freed one is found out.
ncclComm_t add_handle(const Shared& one);
/// Ends the program where there is no such communicator. @param call  that has named it
Shared find(ncclComm_t handle, const char* call);
void remove_handle(ncclComm_t handle);
/// Whether any communicator has this memory registered.
bool is_registered(const void* at);

/// The thread's last failure.
std::string& last_words();
/// @return  `why`, whose words are kept as the thread's last
ncclResult_t refuse(ncclResult_t why, const std::string& words);

void begin_group();
/// Where it is the outermost of this thread's: puts its operations into their streams, or has a
/// thread do so.
ncclResult_t end_group();
/// Ends what the communicator does at once; blocks, in a group at its end, until nothing of it is
/// left.
ncclResult_t abort(ncclComm_t comm);
/// One operation, as its own group if none is open.
ncclResult_t enqueue(const Operation& what, ncclComm_t comm, const char* call);

/// A name for a communicator whose broker is this process's.
std::string new_name();
/// All members meet; two of them on one GPU of a host are refused.
ncclResult_t initialize(const Shared& one);
/// @param as    what the new one has of its own: blocking, blocks, policy
/// @param made  is written by a thread where the parent is not blocking
void split(const Shared& parent, int colour, int key, const Communicator::Place& as, ncclComm_t* made);
/// All members meet; windows of different sizes are refused, as NCCL maps them one behind another.
/// @param window  is written by a thread where the communicator is not blocking
void open_window(const Shared& one, void* at, std::size_t bytes, bool symmetric, void** window);
ncclResult_t finalize(const Shared& one);

}  // namespace software_gpu
