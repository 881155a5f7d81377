// A communicator of the software GPU: its state as callers see it, its operations in streams.
// Not: NCCL's functions (nccl.cpp); the arithmetic (nccl_operation.hpp).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "software_gpu/nccl_broker.hpp"
#include "software_gpu/nccl_operation.hpp"

namespace software_gpu {

/// Operations of this process that copy engines have done.
long copied_gathers();

/// Kept by whoever still needs it: its handle, its operations in streams, its calls in the
/// background.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Place {
    std::string broker;  ///< of all members
    std::string name;    ///< as the broker knows it
    int rank;
    int ranks;
    int device;
    bool blocking;
    int blocks;  ///< that an operation takes of its GPU's processors
    int policy;  ///< ncclConfig_t::CTAPolicy
  };
  enum class Life { alive, finalized, aborted, destroyed };

  /// Takes a MiB of device memory.
  explicit Communicator(Place place);
  ~Communicator();
  const Place& place() const { return place_; }

  // ---- the state of calls

  ncclResult_t state() const;
  Life life() const;
  /// Why the last call failed, or empty.
  std::string words() const;
  /// Whether a call may come now. @return ncclInvalidUsage  where an earlier call is under way
  ncclResult_t ready(const char* call);
  /// A call is under way until `end`.
  void begin();
  /// Does `last`, unless the communicator has been aborted, and ends the call.
  template <class Last>
  void end(Last&& last) {
    const std::lock_guard lock{mutex_};
    if (life_ != Life::aborted) last();
    if (state_ == ncclInProgress) state_ = ncclSuccess;
    changed_.notify_all();
  }
  void fail(ncclResult_t why, const std::string& words);
  /// Ends all that waits for other members, now and from now on.
  void abort();
  /// Blocks until all its operations have left their streams, with what was put there before them,
  /// and no graph has any.
  void await_gone();
  /// Blocks likewise.
  void finalize();
  void destroy();

  // ---- memory that members have registered

  /// @return by what it is taken back; null: it has been already
  void* add_memory(const void* at, std::size_t bytes);
  bool remove_memory(void* handle);
  /// Whether all of it is registered.
  bool has_memory(const void* at, std::size_t bytes) const;
  /// The same of windows. @param symmetric  NCCL_WIN_COLL_SYMMETRIC
  void* add_window(const void* at, std::size_t bytes, bool symmetric);
  bool remove_window(void* window);
  /// Where in a symmetric window, if all of it is in one.
  std::optional<std::size_t> place_in_window(const void* at, std::size_t bytes) const;
  /// [rank] once, by the call that makes the communicator
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }
  const std::vector<std::string>& hosts() const { return hosts_; }

  // ---- meetings of members

  /// One member's part in one meeting.
  struct Call {
    Seat seat;  ///< its name within this communicator
    Part own;
    int socket = -1;
    std::vector<Part> all;
  };
  /// Takes all seats, without waiting. @see collect
  void attend(std::vector<Call>& calls);
  /// Waits for all members of each; forever, for those that have died. @return false: this
  /// communicator was aborted
  bool collect(std::vector<Call>& calls);
  /// Both, for the next meeting of this purpose of all members. @return [rank] their heads; empty:
  /// aborted
  std::vector<std::string> exchange(const std::string& purpose, const std::string& head);

  // ---- operations

  /// The meetings that first uses need: of both members for a send, of all for a kind of
  /// collective. Where operations are being captured it fails instead.
  std::vector<Call> connections(const std::vector<Operation>& operations);
  /// Fails where members have made different calls.
  void compare(const std::vector<Call>& calls);
  /// Into their stream, as one: they start together. Not where the communicator has failed.
  void put(std::vector<Operation> operations);

 private:
  struct Launch;
  static void CUDART_CB run(void* launch);
  static void forget(void* launch);
  /// Where operations of a process keep one order, when its turn has come. @param time  of a
  /// captured one: its launches by now
  void await_turn(const Launch& launch, std::uint64_t time);
  void carry_out(const std::vector<Operation>& operations);
  /// The next meeting, of this purpose, of those that take part in the operation.
  Call next_meeting(const std::string& purpose, const Operation& operation);
  void number(Seat& seat);
  void set_failed(ncclResult_t why, const std::string& words);  // mutex_ is held

  const Place place_;
  std::vector<std::string> hosts_;
  void* memory_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ncclResult_t state_ = ncclSuccess;
  std::string words_;
  Life life_ = Life::alive;
  struct Window {
    std::size_t bytes;
    bool symmetric;
  };
  std::map<const char*, std::size_t> registered_;  ///< bytes
  std::map<const char*, Window> windows_;
  std::set<int> sockets_;                          ///< of meetings that are waited for
  std::set<std::string> connected_;                ///< kinds of collectives, and pairs
  std::map<std::string, std::uint64_t> meetings_;  ///< held by now, by purpose and members
  int running_ = 0;                                ///< launches that have not left their streams
  int captured_ = 0;                               ///< launches that graphs have
  cudaEvent_t last_ = nullptr;                     ///< after the last operation outside of captures
  cudaStream_t last_stream_ = nullptr;
};

}  // namespace software_gpu
