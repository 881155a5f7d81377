// One rank's part in a communication in progress: non-blocking messages to and from its neighbours.
// Not: the choice of messages (execute/ring_plan.hpp), nor its start (execute/mpi/executor.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/host/rank_state.hpp"
#include "tawpipe/execute/message.hpp"
#include "tawpipe/execute/mpi/api.hpp"
#include "tawpipe/execute/ring_plan.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::mpi {

/// This rank's part in a communication, the same in each iteration.
struct TransferPlan {
  RingPlan ring;
  MessagePlan message;  ///< contiguous
  int tag_in = 0;
  int tag_out = 0;
};

/// @param chunk  the maximum of numbers in a message of a collective
inline TransferPlan transfer_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank, std::int64_t chunk) {
  const Task& task = schedule.task(id);
  constexpr std::int64_t longest = std::int64_t{1} << 27;  // numbers of a point-to-point message: below MPI's limit in bytes
  TransferPlan plan;
  plan.ring = ring_plan(schedule, id, flow, rank, is_collective(task.op) ? chunk : longest);
  plan.message = ring_message_plan(schedule, id, flow, rank);
  const auto lanes = static_cast<int>(schedule.lanes().size());
  const int lane = schedule.lane_on(id, rank);
  plan.tag_out = lane * lanes + plan.ring.next_lane;
  plan.tag_in = plan.ring.previous_lane * lanes + lane;
  return plan;
}

/// A communication of this rank. Begin it, then call `advance` until it is done; the memory it
/// works in must stay.
template <class T>
class Transfer {
 public:
  /// The state that stays the same between communications.
  struct Setting {
    MPI_Comm comm = MPI_COMM_NULL;
    host::RankState<T>* state = nullptr;
    std::int64_t chunk = 0;  ///< numbers
  };

  explicit Transfer(const Setting& setting) : set_{setting} {}

  /// @param plan  must stay until the communication is over
  void begin(const TransferPlan& plan) {
    plan_ = &plan;
    receives_ = sends_ = {};
    fill();
    staging_.resize(plan.ring.summed > 0 ? window * static_cast<std::size_t>(set_.chunk) : 0);
    post();
  }

  /// Proceeds as far as possible without waiting. @return whether anything has happened
  bool advance() {
    bool moved = false;
    while (receives_.done < receives_.posted && ended(receives_)) {
      if (receives_.done < plan_->ring.summed) {
        const Chunk& chunk = plan_->ring.received[receives_.done];
        const T* from = staged(receives_.done);
        T* to = message_ + chunk.begin;
        for (std::int64_t i = 0; i < chunk.count; ++i) to[i] += from[i];
      }
      ++receives_.done;
      moved = true;
    }
    while (sends_.done < sends_.posted && ended(sends_)) {
      ++sends_.done;
      moved = true;
    }
    if (moved) post();
    return moved;
  }

  bool done() const { return receives_.done == plan_->ring.received.size() && sends_.done == plan_->ring.sends(); }

  /// Stores the received data. @return bytes this rank has sent
  std::int64_t finish() {
    do_all(plan_->message.after);
    return static_cast<std::int64_t>(plan_->ring.numbers_sent * sizeof(T));
  }

 private:
  static constexpr std::size_t window = 4;  // messages in each direction posted at once: the next is ready when one ends

  struct Queue {
    std::array<MPI_Request, window> requests{};
    std::size_t posted = 0;
    std::size_t done = 0;
  };

  void fill() {
    packed_.resize(static_cast<std::size_t>(plan_->message.staging));
    message_ = at(*plan_->message.from);
    do_all(plan_->message.before);
  }
  T* at(const Address& address) {
    return address.staged() ? packed_.data() + address.place.offset : set_.state->at(address.place);
  }
  void do_all(const std::vector<Move>& moves) {
    for (const Move& move : moves) {
      carry_out<T>(move, at(move.to), move.kind == Move::Kind::clear ? nullptr : at(move.from));
    }
  }

  T* staged(std::size_t i) { return staging_.data() + (i % window) * static_cast<std::size_t>(set_.chunk); }

  bool ended(Queue& queue) {
    int flag = 0;
    check(MPI_Test(&queue.requests[queue.done % window], &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }

  void post() {
    while (receives_.posted < plan_->ring.received.size() && receives_.posted < receives_.done + window &&
           sends_.done >= plan_->ring.sends_before(receives_.posted)) {
      const std::size_t i = receives_.posted;
      const Chunk& chunk = plan_->ring.received[i];
      T* to = i < plan_->ring.summed ? staged(i) : message_ + chunk.begin;
      check(MPI_Irecv(to, bytes(chunk), MPI_BYTE, other_end(chunk, plan_->ring.previous), plan_->tag_in, set_.comm,
                      &receives_.requests[i % window]),
            "MPI_Irecv");
      ++receives_.posted;
    }
    while (sends_.posted < plan_->ring.sends() && sends_.posted < sends_.done + window &&
           sends_.posted < plan_->ring.initial.size() + receives_.done) {
      const Chunk& chunk = plan_->ring.sent(sends_.posted);
      check(MPI_Isend(message_ + chunk.begin, bytes(chunk), MPI_BYTE, other_end(chunk, plan_->ring.next), plan_->tag_out,
                      set_.comm, &sends_.requests[sends_.posted % window]),
            "MPI_Isend");
      ++sends_.posted;
    }
  }
  static int other_end(const Chunk& chunk, Rank neighbour) { return number(chunk.other == none<Rank> ? neighbour : chunk.other); }
  static int bytes(const Chunk& chunk) { return static_cast<int>(chunk.count * static_cast<std::int64_t>(sizeof(T))); }

  Setting set_;
  const TransferPlan* plan_ = nullptr;
  T* message_ = nullptr;  ///< numbers of the whole communication, in place or in packed_
  std::vector<T> packed_;
  std::vector<T> staging_;  ///< [window, chunk] numbers to be added
  Queue receives_;
  Queue sends_;
};

}  // namespace tawpipe::mpi
