// WeiPipe on a ring, interleaved and naive, in its correct form: forward weights, backward weights
// and gradients go round.
// Not: its zero-bubble variants (weipipe_zero_bubble.hpp) nor TawPipe, where shards stay with their
// owner (tawpipe.hpp).
#pragma once

#include <optional>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/flow_options.hpp"

namespace tawpipe::inline v0::schedules {

struct WeipipeOptions {
  std::optional<Order> order{};
  bool overlap = true;

  static std::vector<Field<WeipipeOptions>> fields() {
    return {detail::turns_field<&WeipipeOptions::order>(), detail::overlap_field<&WeipipeOptions::overlap>()};
  }
  WeipipeOptions resolved(const Workload& workload) const { return {detail::turns(order, workload), overlap}; }
};

/// WeiPipe (interleaved): every rank computes all layers of its own microbatches while the chunks
/// circulate on the ring.
///
/// Chunk c lives on rank -c mod P, where it enters the forward flow of every round. With
/// `order=paper` each half of a turn (backward, forward) starts once the ring neighbour's previous
/// half has ended (makespan (AP + P - 1)(F + B) without communication cost); `order=eager` lets
/// each start as soon as its chunks are there. The published code sends the backward weights in the
/// wrong direction and mixes the gradients of several chunks; here they travel rank r -> r+1 like
/// the gradients, and every sum is complete. Microbatch u * P + r runs on rank r in round u; a last
/// round may be short. Source: WeiPipe, PPoPP 2025, interleaved variant.
TAWPIPE_INLINE Schedule weipipe(const Workload& workload, int ranks, const WeipipeOptions& options = {});

/// WeiPipe-Naive: the same ring, but a rank runs all forwards of a microbatch in one round of the
/// flows and all backwards in the next, so that in every turn it uses one of the two chunks that it
/// receives and passes the other on.
///
/// With `order=paper` a turn starts once the ring neighbour's previous turn has ended: a turn is as
/// long as the longest computation in it, and without communication cost the makespan is (P + A -
/// 1)(F + B) + (2A - 1)(P - 1) max(F, B), where B is the whole backward. Twice the turns of
/// weipipe() carry about twice its bytes. Source: WeiPipe, PPoPP 2025, naive variant; its messages,
/// start and end are those of weipipe().
TAWPIPE_INLINE Schedule weipipe_naive(const Workload& workload, int ranks, const WeipipeOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <cstdint>

#include "tawpipe/schedules/detail/weight_flows.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// What a rank computes in a turn of the ring.
enum class RingTurn : std::uint8_t {
  forward_and_backward,  ///< interleaved: a forward of one round and a backward of the round before
  forward_or_backward,   ///< naive: P turns forward, P turns backward
};

/// Builds one WeiPipe iteration of P ranks and A rounds. In turn t rank r holds chunk (t - r) mod P
/// of the forward flow and, from turn P on, chunk (r - 1 - t) mod P of the backward flow, and uses
/// it while it has microbatches left. Interleaved, forwards run in turns 0 .. AP+P-2 and backwards
/// in turns P .. AP+2P-2. In the naive variant every other round of the flows passes without a
/// forward, and the rounds between without a backward.
class WeipipeBuilder {
 public:
  WeipipeBuilder(const Workload& workload, int ranks, RingTurn kind, const WeipipeOptions& options)
      : flows_{kind == RingTurn::forward_and_backward ? "weipipe" : "weipipe-naive", workload, seeds(ranks), options.overlap,
               false},
        options_{options},
        ranks_{ranks},
        stride_{kind == RingTurn::forward_and_backward ? 1 : 2} {
    flows_.builder().options(option_texts(options));
    span_ = ((flows_.rounds() - 1) * stride_ + 1) * ranks_;
    final_gradient_.resize(static_cast<std::size_t>(ranks_), none<BufferId>);
    last_part_.assign(static_cast<std::size_t>(ranks_), none<TaskId>);
    this_part_ = last_part_;
  }

  Schedule build() {
    const std::int64_t turns = span_ + ranks_ - 1;  // of forwards; as many of backwards, P turns later
    if (ranks_ > 1) seed_backward_flow();
    for (std::int64_t turn = 0; turn < ranks_ + turns; ++turn) {
      const std::int64_t backward_turn = turn - ranks_;
      last_part_ = this_part_;
      if (backward_turn >= 0) {
        if (backward_turn + 1 < turns && ranks_ > 1) pass_backward_weights(backward_turn);
        compute_turn(backward_turn, false);
        if (backward_turn > 0) pass_gradients(backward_turn - 1, false);
      }
      if (stride_ == 1) last_part_ = this_part_;
      if (turn < turns) {
        const bool last = turn + 1 == turns;
        if (!last && turn % ranks_ != ranks_ - 1) pass_forward_weights(turn);
        compute_turn(turn, true);
      }
    }
    pass_gradients(turns - 1, true);
    return flows_.finish(final_gradient_);
  }

 private:
  static std::vector<int> seeds(int ranks) {
    std::vector<int> chunks;
    for (int r = 0; r < ranks; ++r) chunks.push_back((ranks - r) % ranks);
    return chunks;
  }
  int wrap(std::int64_t value) const { return static_cast<int>(((value % ranks_) + ranks_) % ranks_); }
  /// The chunk that `rank` owns and sends into its forward flow in every round.
  int seed(int rank) const { return wrap(-rank); }
  int owner(int chunk) const { return wrap(-chunk); }
  int forward_chunk(int rank, std::int64_t turn) const { return wrap(turn - rank); }
  int backward_chunk(int rank, std::int64_t turn) const { return wrap(rank - 1 - turn); }
  /// A forward or backward turn's place in the lock-step count of calls. Interleaved: P forwards,
  /// then backward and forward alternately.
  std::int32_t step(std::int64_t turn, bool forward) const {
    const std::int64_t interleaved = stride_ == 1 ? span_ - 1 : 0;
    if (turn < ranks_) return static_cast<std::int32_t>(turn);
    const std::int64_t i = turn - ranks_;
    if (i < interleaved) return static_cast<std::int32_t>(ranks_ + 2 * i + (forward ? 1 : 0));
    return static_cast<std::int32_t>(ranks_ + 2 * interleaved + (i - interleaved));
  }

  BufferId forward_weights(int rank, std::int64_t turn) const {
    return turn % ranks_ == 0 ? flows_.own(rank).weights : flows_.slot(Flow::forward, rank, turn);
  }
  BufferId backward_weights(int rank, std::int64_t turn) const {
    const bool at_home = ranks_ == 1 || (turn == 0 && backward_chunk(rank, 0) == seed(rank));
    return at_home ? flows_.own(rank).weights : flows_.slot(Flow::backward, rank, turn);
  }
  /// With one rank nothing travels, and the sum stays in one buffer.
  BufferId gradients(int rank, std::int64_t turn) const { return flows_.slot(Flow::gradients, rank, ranks_ == 1 ? 0 : turn); }

  /// Each rank sends its chunk to the rank that needs it first in the backward flow.
  void seed_backward_flow() {
    for (const int r : flows_.alternating()) {
      const int to = wrap(seed(r) + 1);
      if (to == r) continue;
      flows_.pass(Flow::backward, r, to, seed(r), step(ranks_, false), flows_.own(r).weights, writes(backward_weights(to, 0)));
    }
  }
  void pass_forward_weights(std::int64_t turn) {
    for (const int r : flows_.alternating()) {
      const int to = wrap(r + 1);
      flows_.pass(Flow::forward, r, to, forward_chunk(r, turn), step(turn, true), forward_weights(r, turn),
                  writes(forward_weights(to, turn + 1)));
    }
  }
  void pass_backward_weights(std::int64_t turn) {
    for (const int r : flows_.alternating()) {
      const int to = wrap(r + 1);
      flows_.pass(Flow::backward, r, to, backward_chunk(r, turn), step(turn + ranks_, false), backward_weights(r, turn),
                  writes(backward_weights(to, turn + 1)));
    }
  }

  /// After turn `turn` each gradient with contributions moves on with its chunk and is added to the
  /// one that the next rank has computed for it in the meantime; after the last turn it returns to
  /// its owner.
  void pass_gradients(std::int64_t turn, bool last) {
    for (const int r : flows_.alternating()) {
      if (r > turn) continue;  // no rank has added to this chunk's gradient yet
      const int chunk = backward_chunk(r, turn);
      const int to = last ? owner(chunk) : wrap(r + 1);
      const BufferId home = flows_.own(to).gradients;
      if (last) final_gradient_[static_cast<std::size_t>(to)] = to == r ? gradients(r, turn) : home;
      if (to == r) continue;
      const BufferId target = last ? home : gradients(to, turn + 1);
      flows_.pass(Flow::gradients, r, to, chunk, step(turn + ranks_, false) + 1, gradients(r, turn),
                  !last && microbatch_at(to, turn + 1) >= 0 ? adds_to(target) : writes(target));
    }
  }

  /// The microbatch that `rank` works on in its turn `turn` in either direction; -1 before its
  /// first and after its last, and in the rounds of the flow that it skips.
  std::int64_t microbatch_at(int rank, std::int64_t turn) const {
    const std::int64_t local = turn - rank;
    if (local < 0 || local >= span_ || local / ranks_ % stride_ != 0) return -1;
    const std::int64_t microbatch = local / ranks_ / stride_ * ranks_ + rank;
    return microbatch < flows_.microbatches() ? microbatch : -1;
  }

  /// One turn of all ranks, forward or backward. A rank is `rank` turns later than the first.
  void compute_turn(std::int64_t turn, bool forward) {
    for (int r = 0; r < ranks_; ++r) {
      const std::int64_t microbatch = microbatch_at(r, turn);
      if (microbatch < 0) continue;
      const auto before = options_.order == Order::paper ? last_part_[static_cast<std::size_t>(wrap(r - 1))] : none<TaskId>;
      TaskId& done = this_part_[static_cast<std::size_t>(r)];
      if (forward) {
        done = flows_.compute(Op::forward, r, forward_chunk(r, turn), microbatch, step(turn, true), forward_weights(r, turn),
                              before);
      } else {
        const BufferId sum = gradients(r, turn);
        done = flows_.compute(Op::backward, r, backward_chunk(r, turn), microbatch, step(turn + ranks_, false),
                              backward_weights(r, turn), before, ranks_ == 1 && turn > 0 ? adds_to(sum) : writes(sum));
      }
    }
  }

  WeightFlows flows_;
  WeipipeOptions options_;
  int ranks_;
  std::int64_t stride_;                   ///< rounds of a flow to each round of microbatches
  std::int64_t span_ = 0;                 ///< turns from a rank's first forward to its last
  std::vector<BufferId> final_gradient_;  ///< [rank] the sum over all microbatches, for the update
  /// [rank] the last computation before this half of a turn
  std::vector<TaskId> last_part_;
  std::vector<TaskId> this_part_;
};

}  // namespace detail

TAWPIPE_INLINE Schedule weipipe(const Workload& workload, int ranks, const WeipipeOptions& options) {
  detail::check_flow_tasks("weipipe", 5, workload, ranks);
  return detail::WeipipeBuilder{workload, ranks, detail::RingTurn::forward_and_backward, options.resolved(workload)}.build();
}

TAWPIPE_INLINE Schedule weipipe_naive(const Workload& workload, int ranks, const WeipipeOptions& options) {
  detail::check_flow_tasks("weipipe-naive", 8, workload, ranks);  // twice the turns
  return detail::WeipipeBuilder{workload, ranks, detail::RingTurn::forward_or_backward, options.resolved(workload)}.build();
}

}  // namespace tawpipe::schedules
#endif
