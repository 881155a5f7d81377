// One rank's part in a communication in progress: non-blocking messages to and from its neighbours.
// Not: the choice of messages (execute/ring_plan.hpp), nor its start (execute/mpi/executor.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/execute/host/exchange.hpp"
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
  std::int64_t chunk = 1;      ///< the maximum of numbers in a message of a collective
  BodyTask body = {};          ///< of this rank, if it is a collective of a body: its layer says where numbers are
  std::int64_t own_begin = 0;  ///< of such an all_gather or reduce_scatter: this rank's part
  std::int64_t own_count = 0;
  /// of such an all_to_all: [member] its blocks to this rank; empty: another collective. Its own to others
  /// are `own_count` numbers from `own_begin`.
  std::vector<Chunk> blocks = {};
  std::int64_t whole = 0;  ///< numbers of all of them and of other members'
  /// Its layers say how many rows a block has (TransferFlow::by_rows): a message of that goes before each
  /// block, of which then only what there is is sent, from the layer's memory to the layer's memory. Chunks are
  /// numbered by the other member's block, `own_count` numbers each.
  bool by_rows = false;
  std::vector<Rank> members = {};  ///< of its group
  std::size_t member = 0;          ///< this rank
};

/// @param chunk  the maximum of numbers in a message of a collective
inline TransferPlan transfer_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank, std::int64_t chunk) {
  const Task& task = schedule.task(id);
  constexpr std::int64_t longest = std::int64_t{1} << 27;  // numbers of a point-to-point message: below MPI's limit in bytes
  TransferPlan plan;
  plan.ring = ring_plan(schedule, id, flow, rank, is_collective(task.op) ? chunk : longest);
  plan.chunk = chunk;
  plan.message = ring_message_plan(schedule, id, flow, rank);
  const auto lanes = static_cast<int>(schedule.lanes().size());
  const int lane = schedule.lane_on(id, rank);
  plan.tag_out = lane * lanes + plan.ring.next_lane;
  plan.tag_in = plan.ring.previous_lane * lanes + lane;
  return plan;
}

/// Of blocks that may be any part of `own_count` numbers: chunks as TransferPlan::by_rows has them.
inline void number_blocks(const Schedule& schedule, TaskId id, std::size_t member, TransferPlan& plan) {
  const std::int64_t block = plan.blocks.front().count;
  const auto group = schedule.group(schedule.task(id).group);
  const auto row = static_cast<std::int64_t>(group.size()) * block;
  plan.by_rows = true;
  plan.members.assign(group.begin(), group.end());
  plan.member = member;
  for (Chunk& chunk : plan.ring.initial) chunk.begin -= plan.own_begin;
  for (Chunk& chunk : plan.ring.received) {
    const std::int64_t from = chunk.begin / row;
    chunk.begin += from * block - (from * row + static_cast<std::int64_t>(member) * block);
  }
  plan.own_count = block;
}

/// The same for a collective of a body. @param member  this rank's part in the group
inline TransferPlan body_transfer_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank,
                                       std::int64_t chunk, const BodyTask& body, std::size_t member) {
  const auto lanes = static_cast<int>(schedule.lanes().size());
  const int lane = schedule.lane_on(id, rank);
  TransferPlan plan;
  plan.chunk = std::max<std::int64_t>(chunk / 3, 1) * 3;  // softmax's numbers come in threes
  plan.body = body;
  plan.ring = ring_plan(schedule, id, flow, rank, plan.chunk);
  plan.tag_out = lane * lanes + plan.ring.next_lane;
  plan.tag_in = plan.ring.previous_lane * lanes + lane;
  plan.own_count = plan.whole = flow.count;
  if (const std::size_t n = flow.ends.size(); flow.member_begin.size() > n + 1) {
    plan.own_begin = flow.member_begin[member * n];
    plan.own_count = flow.member_begin[(member + 1) * n] - plan.own_begin;
    for (std::size_t from = 0; from < n; ++from) {
      const std::int64_t begin = flow.member_begin[from * n + member];
      plan.blocks.push_back({begin, flow.member_begin[from * n + member + 1] - begin});
    }
    if (flow.by_rows) number_blocks(schedule, id, member, plan);
  } else if (!flow.member_begin.empty()) {
    plan.own_begin = flow.member_begin[member];
    plan.own_count = flow.member_begin[member + 1] - plan.own_begin;
  }
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
    std::function<ExchangeArgs(const BodyTask&)> exchange = {};  ///< this rank's memory in a body's collective
  };

  explicit Transfer(const Setting& setting) : set_{setting} {}

  /// @param plan  must stay until the communication is over
  void begin(const TransferPlan& plan) {
    plan_ = &plan;
    receives_ = sends_ = {};
    if (plan.body.body != nullptr) {
      fill_from_layer();
    } else {
      fill();
    }
    staging_.resize(plan.ring.summed > 0 ? window * static_cast<std::size_t>(plan.chunk) : 0);
    if (plan.by_rows) post_rows();
    post();
  }

  /// Proceeds as far as possible without waiting. @return whether anything has happened
  bool advance() {
    bool moved = told();
    while (receives_.done < receives_.posted && ended(receives_)) {
      if (receives_.done < plan_->ring.summed) {
        const Chunk& chunk = plan_->ring.received[receives_.done];
        const T* from = staged(receives_.done);
        host::combine(memory_.combine, message_ + chunk.begin, from, chunk.count);
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

  bool done() const {
    return rows_.empty() && receives_.done == plan_->ring.received.size() && sends_.done == plan_->ring.sends();
  }

  /// Stores the received data. @return bytes this rank has sent
  std::int64_t finish() {
    if (plan_->by_rows) return finish_rows();
    if (!plan_->blocks.empty()) {
      T* to = reinterpret_cast<T*>(memory_.to);
      for (const Chunk& block : plan_->blocks) to = std::copy_n(message_ + block.begin, block.count, to);
    } else if (plan_->body.body != nullptr) {
      const bool part = plan_->ring.summed > 0;  // reduce_scatter takes its part; the others the whole
      const std::int64_t begin = part ? plan_->own_begin : 0;
      std::copy_n(message_ + begin, part ? plan_->own_count : memory_.count, reinterpret_cast<T*>(memory_.to));
    } else {
      do_all(plan_->message.after);
    }
    return static_cast<std::int64_t>(plan_->ring.numbers_sent * sizeof(T));
  }

 private:
  static constexpr std::size_t window = 4;  // messages in each direction posted at once: the next is ready when one ends

  struct Queue {
    std::array<MPI_Request, window> requests{};
    std::size_t posted = 0;
    std::size_t done = 0;
  };

  /// A body's collective works in a copy, as its buffers are the layer's.
  void fill_from_layer() {
    memory_ = set_.exchange(plan_->body);
    if (plan_->by_rows) return;
    const bool blocks = !plan_->blocks.empty();
    packed_.resize(static_cast<std::size_t>(blocks ? plan_->whole : memory_.count));
    message_ = packed_.data();
    const bool part = blocks || plan_->ring.summed == 0;  // all_to_all, all_gather
    const std::int64_t begin = part ? plan_->own_begin : 0;
    std::copy_n(reinterpret_cast<const T*>(memory_.from), part ? plan_->own_count : memory_.count, message_ + begin);
    if (blocks) host::add_to_sent(memory_, message_ + begin);
  }
  /// Tells each other member how many rows come, and hears it, before the blocks themselves.
  void post_rows() {
    const auto groups = static_cast<std::size_t>(memory_.groups);
    const auto bytes_of_rows = static_cast<int>(groups * sizeof(std::int32_t));
    std::copy_n(memory_.rows + plan_->member * groups, groups, memory_.arrived + plan_->member * groups);
    for (std::size_t m = 0; m < plan_->members.size(); ++m) {
      if (m == plan_->member) continue;
      const int other = number(plan_->members[m]);
      check(MPI_Irecv(memory_.arrived + m * groups, bytes_of_rows, MPI_BYTE, other, plan_->tag_in, set_.comm,
                      &rows_.emplace_back()),
            "MPI_Irecv");
      check(
          MPI_Isend(memory_.rows + m * groups, bytes_of_rows, MPI_BYTE, other, plan_->tag_out, set_.comm, &rows_.emplace_back()),
          "MPI_Isend");
    }
  }
  /// Whether those messages have just ended.
  bool told() {
    if (rows_.empty()) return false;
    int flag = 0;
    check(MPI_Testall(static_cast<int>(rows_.size()), rows_.data(), &flag, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (flag != 0) rows_.clear();
    return flag != 0;
  }
  std::int64_t finish_rows() {
    const std::size_t me = plan_->member;
    const Span own = of_rows(memory_.from, memory_.rows, static_cast<std::int64_t>(me) * plan_->own_count);
    std::copy_n(own.begin, own.count,
                of_rows(memory_.to, memory_.arrived, static_cast<std::int64_t>(me) * plan_->own_count).begin);
    std::int64_t sent = 0;
    for (std::size_t m = 0; m < plan_->members.size(); ++m)
      if (m != me) sent += memory_.numbers(memory_.rows, m);
    return sent * static_cast<std::int64_t>(sizeof(T));
  }

  struct Span {
    T* begin;
    std::int64_t count;
  };
  /// What there is of a block from some number of it on. @param rows  of all blocks. @param at  TransferPlan::by_rows
  Span of_rows(std::byte* memory, const std::int32_t* rows, std::int64_t at) const {
    const auto member = static_cast<std::size_t>(at / plan_->own_count);
    const std::int64_t inside = at % plan_->own_count;
    std::int64_t before = 0;
    for (std::size_t m = 0; m < member; ++m) before += memory_.numbers(rows, m);
    const std::int64_t left = std::max<std::int64_t>(memory_.numbers(rows, member) - inside, 0);
    return {reinterpret_cast<T*>(memory) + before + (left > 0 ? inside : 0), left};
  }
  Span cut(Span of, const Chunk& chunk) const { return {of.begin, std::min(of.count, chunk.count)}; }
  Span sent(const Chunk& chunk) const {
    return plan_->by_rows ? cut(of_rows(memory_.from, memory_.rows, chunk.begin), chunk)
                          : Span{message_ + chunk.begin, chunk.count};
  }
  /// @pre told(), where rows are
  Span received(std::size_t i) {
    const Chunk& chunk = plan_->ring.received[i];
    if (plan_->by_rows) return cut(of_rows(memory_.to, memory_.arrived, chunk.begin), chunk);
    return {i < plan_->ring.summed ? staged(i) : message_ + chunk.begin, chunk.count};
  }
  void fill() {
    memory_ = {};
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

  T* staged(std::size_t i) { return staging_.data() + (i % window) * static_cast<std::size_t>(plan_->chunk); }

  bool ended(Queue& queue) {
    int flag = 0;
    check(MPI_Test(&queue.requests[queue.done % window], &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }

  void post() {
    while (rows_.empty() && receives_.posted < plan_->ring.received.size() && receives_.posted < receives_.done + window &&
           sends_.done >= plan_->ring.sends_before(receives_.posted)) {
      const std::size_t i = receives_.posted;
      const Chunk& chunk = plan_->ring.received[i];
      const Span to = received(i);
      check(MPI_Irecv(to.begin, bytes(to.count), MPI_BYTE, other_end(chunk, plan_->ring.previous), plan_->tag_in, set_.comm,
                      &receives_.requests[i % window]),
            "MPI_Irecv");
      ++receives_.posted;
    }
    while (sends_.posted < plan_->ring.sends() && sends_.posted < sends_.done + window &&
           sends_.posted < plan_->ring.initial.size() + receives_.done) {
      const Chunk& chunk = plan_->ring.sent(sends_.posted);
      const Span from = sent(chunk);
      check(MPI_Isend(from.begin, bytes(from.count), MPI_BYTE, other_end(chunk, plan_->ring.next), plan_->tag_out, set_.comm,
                      &sends_.requests[sends_.posted % window]),
            "MPI_Isend");
      ++sends_.posted;
    }
  }
  static int other_end(const Chunk& chunk, Rank neighbour) { return number(chunk.other == none<Rank> ? neighbour : chunk.other); }
  static int bytes(std::int64_t count) { return static_cast<int>(count * static_cast<std::int64_t>(sizeof(T))); }

  Setting set_;
  const TransferPlan* plan_ = nullptr;
  T* message_ = nullptr;  ///< numbers of the whole communication, in place or in packed_
  ExchangeArgs memory_;   ///< of a body's collective; otherwise only how numbers are added
  std::vector<T> packed_;
  std::vector<T> staging_;         ///< [window, chunk] numbers to be added
  std::vector<MPI_Request> rows_;  ///< of messages with numbers of rows, in progress
  Queue receives_;
  Queue sends_;
};

}  // namespace tawpipe::mpi
