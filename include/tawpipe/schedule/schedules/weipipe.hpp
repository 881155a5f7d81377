// WeiPipe, interleaved, in its correct form: forward weights, backward weights and gradients go round one ring.
// Not: TawPipe, where shards stay with their owner (schedule/schedules/tawpipe.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/schedules/common.hpp"

namespace tawpipe::schedules {

struct WeipipeOptions {
  Order order = Order::eager;
  bool overlap = true;  ///< off: communication takes the compute lane's time
};

namespace detail {

/// Builds one WeiPipe iteration of P ranks and A rounds. Forwards run in turns 0 .. AP+P-2 and backwards in turns
/// P .. AP+2P-2; in turn t rank r holds chunk (t - r) mod P of the forward flow and chunk (r - 1 - (t - P)) mod P of the
/// backward flow, and uses it while it has microbatches left.
class WeipipeBuilder {
 public:
  WeipipeBuilder(const Workload& workload, int ranks, const WeipipeOptions& options)
      : builder_{"weipipe", workload, ranks, lanes(options.overlap)}, options_{options}, ranks_{ranks} {
    builder_.option("order", text(options.order));
    builder_.option("overlap", on_off(options.overlap));
    builder_.stages(workload.split(ranks_));
    rounds_ = (workload.microbatches() + ranks_ - 1) / ranks_;
  }

  Schedule build() {
    add_buffers();
    const ReplicatedEdge edge{builder_, ranks_};
    edge_ = &edge;
    const std::int64_t turns = rounds_ * ranks_ + ranks_ - 1;  // of forwards; as many of backwards, P turns later
    if (ranks_ > 1) seed_backward_flow();
    for (std::int64_t turn = 0; turn < ranks_ + turns; ++turn) {
      const std::int64_t backward_turn = turn - ranks_;
      if (backward_turn >= 0) {
        if (backward_turn + 1 < turns && ranks_ > 1) pass_backward_weights(backward_turn);
        compute_turn(backward_turn, false);
        if (backward_turn > 0) pass_gradients(backward_turn - 1, false);
      }
      if (turn < turns) {
        const bool last = turn + 1 == turns;
        if (!last && turn % ranks_ != ranks_ - 1) pass_forward_weights(turn);
        compute_turn(turn, true);
      }
    }
    pass_gradients(turns - 1, true);
    for (int r = 0; r < ranks_; ++r) {
      builder_.add(update(r, seed(r), own(r).bytes),
                   {reads(final_gradient_[static_cast<std::size_t>(r)]), changes(own(r).weights), changes(own(r).optimizer)});
    }
    edge.finish(builder_, lane_gradients_);
    return builder_.build();
  }

 private:
  static std::vector<std::string> lanes(bool overlap) {
    if (!overlap) return {"compute"};
    return {"compute", "forward_out", "forward_in", "backward_out", "backward_in", "gradients_out", "gradients_in"};
  }

  int wrap(std::int64_t value) const { return static_cast<int>(((value % ranks_) + ranks_) % ranks_); }
  /// The chunk that `rank` owns and that seeds its forward flow in every round.
  int seed(int rank) const { return wrap(-rank); }
  int owner(int chunk) const { return wrap(-chunk); }
  int forward_chunk(int rank, std::int64_t turn) const { return wrap(turn - rank); }
  int backward_chunk(int rank, std::int64_t turn) const { return wrap(rank - 1 - turn); }
  /// A forward or backward turn's place in the lock-step count of calls: P forwards, then backward and forward by turns.
  std::int32_t step(std::int64_t turn, bool forward) const {
    const std::int64_t interleaved = rounds_ * ranks_ - 1;
    if (turn < ranks_) return static_cast<std::int32_t>(turn);
    const std::int64_t i = turn - ranks_;
    if (i < interleaved) return static_cast<std::int32_t>(ranks_ + 2 * i + (forward ? 1 : 0));
    return static_cast<std::int32_t>(ranks_ + 2 * interleaved + (i - interleaved));
  }

  void add_buffers() {
    const Workload& workload = builder_.workload();
    std::int64_t largest = 0;
    for (const auto& stage : builder_.stages()) largest = std::max(largest, stage.parameters);
    for (int r = 0; r < ranks_; ++r) {
      states_.push_back(add_states(builder_, r, builder_.stage(seed(r)).parameters, seed(r)));
      RankBuffers rank;
      for (auto& slot : rank.forward) slot = builder_.persistent(r, BufferKind::transfer, weight_bytes(workload, largest));
      for (auto& slot : rank.backward) slot = builder_.persistent(r, BufferKind::transfer, weight_bytes(workload, largest));
      for (auto& slot : rank.gradients) slot = builder_.persistent(r, BufferKind::transfer, gradient_bytes(workload, largest));
      rank.forward_stream = builder_.persistent(r, BufferKind::activations, builder_.stage(0).boundary);
      rank.backward_stream = builder_.persistent(r, BufferKind::activations, builder_.stage(0).boundary);
      add_workspace(builder_, r);
      rank.saved.resize(static_cast<std::size_t>(2 * ranks_), none<BufferId>);
      rank_.push_back(std::move(rank));
    }
    final_gradient_.resize(static_cast<std::size_t>(ranks_), none<BufferId>);
    last_half_.assign(static_cast<std::size_t>(ranks_), none<TaskId>);
    this_half_ = last_half_;
  }

  struct RankBuffers {
    std::array<BufferId, 2> forward{};    ///< [turn % 2] the forward flow's chunk
    std::array<BufferId, 2> backward{};   ///< [turn % 2] the backward flow's chunk
    std::array<BufferId, 2> gradients{};  ///< [turn % 2] the backward flow's chunk's: computed here, then added to
    BufferId forward_stream = none<BufferId>;
    BufferId backward_stream = none<BufferId>;
    std::vector<BufferId> saved;  ///< [round % 2 * ranks + chunk]
  };

  RankBuffers& at(int rank) { return rank_[static_cast<std::size_t>(rank)]; }
  const States& own(int rank) const { return states_[static_cast<std::size_t>(rank)]; }
  BufferId forward_weights(int rank, std::int64_t turn) {
    return turn % ranks_ == 0 ? own(rank).weights : at(rank).forward[static_cast<std::size_t>(turn % 2)];
  }
  BufferId backward_weights(int rank, std::int64_t turn) {
    const bool at_home = ranks_ == 1 || (turn == 0 && backward_chunk(rank, 0) == seed(rank));
    return at_home ? own(rank).weights : at(rank).backward[static_cast<std::size_t>(turn % 2)];
  }
  BufferId gradients(int rank, std::int64_t turn) {
    return at(rank).gradients[static_cast<std::size_t>(ranks_ == 1 ? 0 : turn % 2)];
  }

  /// Links of the ring, every other one first, so that without overlap no rank waits for the whole ring.
  std::vector<int> ring_order() const {
    std::vector<int> order;
    for (int r = 0; r < ranks_; r += 2) order.push_back(r);
    for (int r = 1; r < ranks_; r += 2) order.push_back(r);
    return order;
  }

  void pass(Payload payload, std::uint8_t lane, int from, int to, int chunk, std::int32_t step, BufferId source,
            Use destination) {
    const std::int64_t parameters = builder_.stage(chunk).parameters;
    const Workload& workload = builder_.workload();
    builder_.add(
        {.op = Op::pass,
         .payload = payload,
         .lane = lane,
         .peer_lane = static_cast<std::uint8_t>(lane == 0 ? 0 : lane + 1),
         .rank = Rank{from},
         .peer = Rank{to},
         .stage = StageId{chunk},
         .step = step,
         .bytes = payload == Payload::gradients ? gradient_bytes(workload, parameters) : weight_bytes(workload, parameters)},
        {reads(source), destination});
  }

  /// Each rank sends its chunk to the rank where the backward flow needs it first.
  void seed_backward_flow() {
    for (const int r : ring_order()) {
      const int to = wrap(seed(r) + 1);
      if (to == r) continue;
      pass(Payload::weights, lane_backward_, r, to, seed(r), step(ranks_, false), own(r).weights,
           writes(backward_weights(to, 0)));
    }
  }
  void pass_forward_weights(std::int64_t turn) {
    for (const int r : ring_order()) {
      const int to = wrap(r + 1);
      pass(Payload::weights, lane_forward_, r, to, forward_chunk(r, turn), step(turn, true), forward_weights(r, turn),
           writes(forward_weights(to, turn + 1)));
    }
  }
  void pass_backward_weights(std::int64_t turn) {
    for (const int r : ring_order()) {
      const int to = wrap(r + 1);
      pass(Payload::weights, lane_backward_, r, to, backward_chunk(r, turn), step(turn + ranks_, false),
           backward_weights(r, turn), writes(backward_weights(to, turn + 1)));
    }
  }

  /// After turn `turn` each gradient that has contributions moves on with its chunk and is added to what the next rank has
  /// computed for it in the meantime; after the last turn it goes home.
  void pass_gradients(std::int64_t turn, bool last) {
    for (const int r : ring_order()) {
      if (r > turn) continue;  // no rank has added to this chunk's gradient yet
      const int chunk = backward_chunk(r, turn);
      const int to = last ? owner(chunk) : wrap(r + 1);
      if (last) final_gradient_[static_cast<std::size_t>(to)] = to == r ? gradients(r, turn) : own(to).gradients;
      if (to == r) continue;
      const BufferId target = last ? own(to).gradients : gradients(to, turn + 1);
      pass(Payload::gradients, lane_gradients_, r, to, chunk, step(turn + ranks_, false) + 1, gradients(r, turn),
           !last && microbatch_at(to, turn + 1) >= 0 ? adds_to(target) : writes(target));
    }
  }

  /// The microbatch that `rank` works on in its turn `turn` of either direction; -1 before its first and after its last.
  std::int64_t microbatch_at(int rank, std::int64_t turn) const {
    const std::int64_t local = turn - rank;
    if (local < 0 || local >= rounds_ * ranks_) return -1;
    const std::int64_t microbatch = local / ranks_ * ranks_ + rank;
    return microbatch < builder_.workload().microbatches() ? microbatch : -1;
  }

  /// One turn of all ranks, forward or backward. A rank is `rank` turns behind the first.
  void compute_turn(std::int64_t turn, bool forward) {
    last_half_ = this_half_;
    for (int r = 0; r < ranks_; ++r) {
      const std::int64_t microbatch = microbatch_at(r, turn);
      if (microbatch < 0) continue;
      const int chunk = forward ? forward_chunk(r, turn) : backward_chunk(r, turn);
      const StageWork& work = builder_.stage(chunk);
      RankBuffers& rank = at(r);
      BufferId& saved = rank.saved[static_cast<std::size_t>(microbatch / ranks_ % 2 * ranks_ + chunk)];
      std::vector<Use> uses;
      if (forward) {
        saved = builder_.transient(r, BufferKind::activations, work.saved, chunk);
        uses = {reads(forward_weights(r, turn)), changes(rank.forward_stream), writes(saved)};
        edge_->forward(r, work, uses);
      } else {
        // With one rank nothing travels, and the sum stays in one buffer.
        const BufferId gradient = gradients(r, turn);
        uses = {reads(backward_weights(r, turn)), changes(rank.backward_stream), reads(saved),
                ranks_ == 1 && turn > 0 ? adds_to(gradient) : writes(gradient)};
        edge_->backward(r, work, uses);
      }
      std::vector<TaskId> after;
      if (options_.order == Order::paper) after.push_back(last_half_[static_cast<std::size_t>(wrap(r - 1))]);
      this_half_[static_cast<std::size_t>(r)] = builder_.add(
          compute(forward ? Op::forward : Op::backward, r, chunk, microbatch, step(forward ? turn : turn + ranks_, forward)),
          uses, after);
    }
  }

  ScheduleBuilder builder_;
  WeipipeOptions options_;
  int ranks_;
  std::int64_t rounds_ = 0;
  const ReplicatedEdge* edge_ = nullptr;
  std::vector<States> states_;            ///< [rank]
  std::vector<RankBuffers> rank_;         ///< [rank]
  std::vector<BufferId> final_gradient_;  ///< [rank] where the update finds the sum over all microbatches
  std::vector<TaskId> last_half_;         ///< [rank] the last computation before this half turn
  std::vector<TaskId> this_half_;
  std::uint8_t lane_forward_ = options_.overlap ? 1 : 0;
  std::uint8_t lane_backward_ = options_.overlap ? 3 : 0;
  std::uint8_t lane_gradients_ = options_.overlap ? 5 : 0;
};

}  // namespace detail

/// WeiPipe (interleaved): every rank computes all layers of its own microbatches while the chunks go round the ring.
///
/// Chunk c lives on rank -c mod P, where it seeds the forward flow of every round. With `order=paper` each half of a
/// turn (backward, forward) starts once the ring neighbour's half before has ended (makespan (AP + P - 1)(F + B) without
/// communication cost); `order=eager` lets each start as soon as its chunks are there. The published code sends the backward
/// weights the wrong way round and mixes the gradients of several chunks; here they travel rank r -> r+1 like the gradients, and
/// every sum is complete. Microbatch u * P + r runs on rank r in round u; a last round may be short. Source: WeiPipe, PPoPP 2025,
/// interleaved variant.
inline Schedule weipipe(const Workload& workload, int ranks, const WeipipeOptions& options = {}) {
  return detail::WeipipeBuilder{workload, ranks, options}.build();
}

}  // namespace tawpipe::schedules
