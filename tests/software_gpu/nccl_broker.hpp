// Meetings of the software GPU's communicators: each member brings a part, and when the last has
// come all get all parts.
// Not: what the parts mean (nccl_communicator.hpp).
#pragma once

#include <string>
#include <vector>

namespace software_gpu {

/// What one member brings to a meeting.
struct Part {
  std::string head;  ///< seen by all
  std::string data;  ///< seen by those that asked for it
};

/// One member's place in a meeting.
struct Seat {
  std::string meeting;     ///< its name, the same for all members and used once
  int members = 0;         ///< of the meeting
  int index = 0;           ///< of this one
  bool takes_data = true;  ///< or only heads
};

/// The name of this process's broker, an abstract Unix socket: gone with the process, however that
/// ends. Starts its threads at the first call. At the process's regular end all complete meetings
/// are still told to their members.
const std::string& broker_name();

/// Takes a seat. @return a socket for `await_parts`, the caller's to close; -1: the broker's
/// process has ended
int attend(const std::string& broker, const Seat& seat, const Part& own);

/// Blocks until all members have come. @return false: the broker's process has ended, or the socket
/// was shut down
bool await_parts(int socket, int members, std::vector<Part>& parts);

}  // namespace software_gpu
