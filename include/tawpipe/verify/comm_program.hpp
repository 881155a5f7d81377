// The calls that each rank's host launches: communication, computation and waits, on streams and in
// groups.
// Not: a schedule (schedule/schedule.hpp), in which a send and its receive are one task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tawpipe::inline v0 {

/// The kind of a call.
enum class CommOp : std::uint8_t {
  send,
  receive,
  compute,  ///< ends by itself
  wait,     ///< ends when the calls it waits for have ended
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  barrier,
  comm_init,  ///< creates a communicator: a collective of its ranks
};
inline constexpr int comm_ops = 12;

/// The op's name in files and messages.
constexpr std::string_view name(CommOp op) {
  constexpr std::string_view names[comm_ops] = {"send",       "recv",       "compute",        "wait",
                                                "all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                "reduce",     "all_to_all", "barrier",        "comm_init"};
  return names[static_cast<int>(op)];
}

/// Has exactly one peer.
constexpr bool is_point_to_point(CommOp op) { return op == CommOp::send || op == CommOp::receive; }
/// Needs no other rank.
constexpr bool is_local(CommOp op) { return op == CommOp::compute || op == CommOp::wait; }
/// Is matched by a call of each rank of its communicator.
constexpr bool is_meeting(CommOp op) { return !is_point_to_point(op) && !is_local(op); }

/// One call of one rank.
struct CommCall {
  std::string id;  ///< unique on its rank
  CommOp op = CommOp::compute;
  std::int32_t peer = -1;  ///< send, recv: the other rank
  /// of send, recv and collectives: index into CommProgram::communicators
  std::int32_t communicator = -1;
  /// index into CommProgram::streams; -1: unordered (a request of MPI)
  std::int32_t stream = -1;
  /// adjacent calls with the same number are launched together; -1: none
  std::int32_t group = -1;
  /// earlier calls of the rank (events), by their index on it
  std::vector<std::int32_t> waits_for;
  bool blocks_host = false;  ///< the host launches nothing else until it has ended
  std::int64_t bytes = 0;    ///< 0: unknown
  /// all_to_all of uneven sizes: bytes sent to, and expected from, each rank of the communicator;
  /// empty: `bytes`, evenly
  std::vector<std::int64_t> bytes_to;
  std::vector<std::int64_t> bytes_from;
  std::int64_t tag = 0;    ///< MPI's
  std::string data;        ///< what is carried, under any name; "": unknown
  std::int32_t item = -1;  ///< position in the source text (a cell); -1: its own
};

/// A communicator and its ranks.
struct CommGroup {
  std::string name;
  std::vector<std::int32_t> ranks;
};

/// All ranks' calls, each rank's in the order in which its host launches them.
struct CommProgram {
  std::string name;
  std::vector<CommGroup> communicators;
  std::vector<std::string> streams;
  std::vector<std::vector<CommCall>> ranks;  ///< [rank, call]
  /// number of communication calls that a device can run at once; 0: unlimited
  std::int32_t slots = 0;
  bool cold = false;  ///< no two ranks are connected yet

  std::size_t calls() const {
    std::size_t count = 0;
    for (const auto& rank : ranks) count += rank.size();
    return count;
  }
};

/// A reference to a call: its rank and index.
struct CallRef {
  std::int32_t rank = 0;
  std::int32_t call = 0;

  auto operator<=>(const CallRef&) const = default;
};

inline const CommCall& call_at(const CommProgram& program, CallRef at) {
  return program.ranks[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.call)];
}

/// "2:send1": the call's rank and id.
inline std::string call_text(const CommProgram& program, CallRef at) {
  return std::to_string(at.rank) + ":" + call_at(program, at).id;
}

}  // namespace tawpipe
