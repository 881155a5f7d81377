// One rank's part in a communication as messages: rings and chains over the members in order, or
// blocks from each to each.
// Not: the messages themselves (execute/mpi/transfer.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// A run of the packed message sent from one member to the next in one message.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  Rank other = none<Rank>;  ///< all_to_all: its source or destination; none: the neighbour
};

/// What one rank sends and receives in a communication, in order. It sends the chunks of `initial`,
/// which it already has, then the first `forwarded` of those it receives, each as soon as it has
/// arrived. The edges are those of NCCL's rings and chains, which the simulator's routes take; sums
/// are formed in the order of the ring, so every run gives the same bits.
struct RingPlan {
  Rank previous = none<Rank>;  ///< the sender to this rank
  Rank next = none<Rank>;      ///< the receiver from it
  int previous_lane = 0;       ///< the communication's lane there
  int next_lane = 0;
  std::vector<Chunk> initial;
  std::vector<Chunk> received;
  /// this many of `received`, the first ones, are added to the rank's data
  std::size_t summed = 0;
  std::size_t forwarded = 0;
  std::size_t numbers_sent = 0;  ///< total

  std::size_t sends() const { return initial.size() + forwarded; }
  const Chunk& sent(std::size_t i) const { return i < initial.size() ? initial[i] : received[i - initial.size()]; }
  /// The number of sends that must be over before `received[i]` may be stored: it may overwrite
  /// data that an earlier send still reads.
  std::size_t sends_before(std::size_t i) const { return summed > 0 && i >= summed ? i - summed + 1 : 0; }
};

/// The part of `rank`, an end or member, in the communication `id`.
/// @param chunk  the maximum of numbers in one message, the same on all ranks; a point-to-point
/// transfer continues without waiting for a part, so `chunk` only keeps its messages from being too
/// long for MPI
/// A host copy sends nothing. Complexity: O(chunks).
TAWPIPE_INLINE RingPlan ring_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank, std::int64_t chunk);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>
#include <span>

namespace tawpipe::inline v0 {

namespace detail {

class RingPlanner {
 public:
  RingPlanner(const Task& task, std::int64_t chunk) : task_{task}, chunk_{std::max<std::int64_t>(chunk, 1)} {}

  RingPlan pair(const TransferFlow& flow, Rank rank) {
    const bool source = rank == task_.rank;
    const Rank other = source ? task_.peer : task_.rank;
    plan_.previous = plan_.next = other;
    plan_.previous_lane = plan_.next_lane = number(source ? task_.peer_lane : task_.lane);
    const bool both = goes_both_ways(task_.op);
    const std::int64_t half = both ? flow.count / 2 : flow.count;
    if (source || both) cut(source ? 0 : half, half, plan_.initial);
    if (!source || both) cut(source ? half : 0, half, plan_.received);
    return finish(0);
  }

  /// The part of `members[me]`.
  RingPlan collective(const TransferFlow& flow, std::span<const Rank> members, std::size_t me) {
    const std::size_t n = members.size();
    if (n < 2) return plan_;
    plan_.previous = members[(me + n - 1) % n];
    plan_.next = members[(me + 1) % n];
    plan_.previous_lane = plan_.next_lane = number(task_.lane);
    switch (traits(task_.op).pattern) {
      case Pattern::chain_from_root:
        return chain(flow, (me + n - place_of_root(members)) % n, n);
      case Pattern::chain_to_root:
        return chain(flow, (me + 2 * n - place_of_root(members) - 1) % n, n);
      case Pattern::ring_gather:
        return ring(flow, me, n, false, true);
      case Pattern::ring_scatter:
        return ring(flow, me, n, true, false);
      case Pattern::ring_sum:
        return ring(flow, me, n, true, true);
      case Pattern::all_pairs:
        return blocks(flow, members, me);
      case Pattern::none:
      case Pattern::one_way:
      case Pattern::both_ways:
      case Pattern::to_host:
      case Pattern::from_host:
        break;
    }
    return plan_;
  }

 private:
  /// The member `place` steps down a chain of n.
  RingPlan chain(const TransferFlow& flow, std::size_t place, std::size_t n) {
    cut(0, flow.count, place == 0 ? plan_.initial : plan_.received);
    if (is_sum(task_.op)) plan_.summed = plan_.received.size();
    return finish(place + 1 < n ? plan_.received.size() : 0);
  }
  std::size_t place_of_root(std::span<const Rank> members) const {
    std::size_t root = 0;
    while (root + 1 < members.size() && members[root] != task_.rank) ++root;
    return root;
  }

  /// Member `me` of a ring of n round which parts are summed, gathered, or both.
  RingPlan ring(const TransferFlow& flow, std::size_t me, std::size_t n, bool scatter, bool gather) {
    const auto part = [&](std::size_t steps_back, std::vector<Chunk>& out) {
      const std::size_t p = (me + 2 * n - steps_back) % n;
      const auto begin = [&](std::size_t i) {
        return flow.member_begin.empty() ? flow.count * static_cast<std::int64_t>(i) / static_cast<std::int64_t>(n)
                                         : flow.member_begin[i];
      };
      cut(begin(p), begin(p + 1) - begin(p), out);
    };
    part(scatter ? 1 : 0, plan_.initial);
    if (scatter) {
      for (std::size_t step = 0; step + 1 < n; ++step) part(2 + step, plan_.received);
      plan_.summed = plan_.received.size();
    }
    if (gather) {
      for (std::size_t step = 0; step + 1 < n; ++step) part(1 + step, plan_.received);
    }
    std::vector<Chunk> last;  // not forwarded: the member's own sum, or the part of the member after it
    part(gather ? n - 1 : 0, last);
    return finish(plan_.received.size() - last.size());
  }

  /// Member `me`'s blocks to and from each other.
  RingPlan blocks(const TransferFlow& flow, std::span<const Rank> members, std::size_t me) {
    const std::size_t n = members.size();
    const auto block = [&](std::size_t from, std::size_t to, std::vector<Chunk>& out) {
      const std::int64_t begin = flow.member_begin[from * n + to];
      cut(begin, flow.member_begin[from * n + to + 1] - begin, out, members[from == me ? to : from]);
    };
    for (std::size_t step = 1; step < n; ++step) {
      block(me, (me + step) % n, plan_.initial);
      block((me + n - step) % n, me, plan_.received);
    }
    return finish(0);
  }

  void cut(std::int64_t begin, std::int64_t count, std::vector<Chunk>& out, Rank other = none<Rank>) const {
    for (std::int64_t at = 0; at < count; at += chunk_) out.push_back({begin + at, std::min(chunk_, count - at), other});
  }
  RingPlan finish(std::size_t forwarded) {
    plan_.forwarded = forwarded;
    for (std::size_t i = 0; i < plan_.sends(); ++i) plan_.numbers_sent += static_cast<std::size_t>(plan_.sent(i).count);
    return plan_;
  }

  const Task& task_;
  std::int64_t chunk_;
  RingPlan plan_;
};

}  // namespace detail

TAWPIPE_INLINE RingPlan ring_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank, std::int64_t chunk) {
  const Task& task = schedule.task(id);
  detail::RingPlanner planner{task, chunk};
  if (is_host_copy(task.op)) return {};
  if (!is_collective(task.op)) return planner.pair(flow, rank);
  const auto members = schedule.group(task.group);
  const auto me = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  return planner.collective(flow, members, me);
}

}  // namespace tawpipe
#endif
