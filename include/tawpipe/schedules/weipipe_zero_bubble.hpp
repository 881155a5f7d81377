// Zero-bubble WeiPipe: split backwards, and chunks sent by their owner in every round, down lines
// of ranks.
// Not: WeiPipe's closed ring (schedules/weipipe.hpp).
#pragma once

#include <optional>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/flow_options.hpp"
#include "tawpipe/schedules/grouping.hpp"
#include "tawpipe/schedules/shard_owners.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// The field of `split`; whole backwards need no memory for data from backward_input to
/// backward_weight.
template <auto split>
auto split_field() {
  return option_field<split>("split", "backwards in two parts, which shortens lock-step turns and takes memory",
                             "on with order=paper");
}

}  // namespace detail

struct WeipipeZeroBubbleOptions {
  std::optional<Order> order{};
  bool overlap = true;
  std::optional<bool> split{};

  static std::vector<Field<WeipipeZeroBubbleOptions>> fields() {
    using Options = WeipipeZeroBubbleOptions;
    return {detail::turns_field<&Options::order>(), detail::overlap_field<&Options::overlap>(),
            detail::split_field<&Options::split>()};
  }
  WeipipeZeroBubbleOptions resolved(const Workload& workload) const {
    const Order turns = detail::turns(order, workload);
    return {turns, overlap, split.value_or(turns == Order::paper)};
  }
};

/// The same for several lines.
struct WeipipeLinesOptions {
  std::optional<Order> order{};
  bool overlap = true;
  std::optional<bool> split{};
  Grouping lines{};

  static std::vector<Field<WeipipeLinesOptions>> fields() {
    using Options = WeipipeLinesOptions;
    return {detail::turns_field<&Options::order>(), detail::overlap_field<&Options::overlap>(),
            detail::split_field<&Options::split>(),
            option_field<&Options::lines>("lines", "one line in each node, one of all devices, or N equal ones")};
  }
};

/// WeiPipe with split backwards on one line of ranks, in the spirit of the paper's first
/// zero-bubble variant: P forwards ahead, then backward_input, backward_weight and forward
/// alternately.
///
/// On a closed ring a chunk comes back to the first rank only after P turns, which makes the last
/// rank P - 1 turns later than it. Here a chunk starts from its owner in each round, goes down the
/// line and ends there, so that a rank need only be one computation later than the one before it.
/// With `order=paper` it starts each computation once the previous rank has ended its own: makespan
/// AP(F + B + W) + (P - 1) max(F, B, W) without communication cost, where B and W are the two parts
/// of the backward; with whole backwards B + W takes their place under max. `order=eager` waits
/// only for messages; as no rank waits for another's backward_input, the split then only lets it
/// run while its gradient's slot is still full.
/// Source: the turns are ours; WeiPipe, PPoPP 2025, has a variant of this name and purpose.
TAWPIPE_INLINE Schedule weipipe_zb1(const Workload& workload, int ranks, const WeipipeZeroBubbleOptions& options = {});

/// weipipe_zb1() on several lines at once, usually one a node: each chunk is sent by its owner down
/// every line, and each line's sum returns to the owner. No rank lags by more than the length of
/// its line: makespan AP(F + B + W) + (G - 1) max(F, B, W) with lines of G ranks, and with lines of
/// one rank no bubble at all; an owner sends its chunk once to each line.
/// @param nodes  the lines, unless an option says otherwise
/// Source: ours; WeiPipe, PPoPP 2025, has a second zero-bubble variant, with a smaller bubble than
/// the first.
TAWPIPE_INLINE Schedule weipipe_zb2(const Workload& workload, const DeviceGroups& nodes, const WeipipeLinesOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <cstdint>
#include <string>
#include <utility>

#include "tawpipe/schedules/detail/weight_flows.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// Builds an iteration of P ranks on lines. Rank i of its line runs computation j of its program in
/// step i + j, one step after the rank before it, from which it gets chunks and sums; the first of
/// a line gets chunks from their owners, and the last returns sums to their owners. Chunks are
/// dealt to the lines in turn, and in eager order each line's steps, which only set the order of
/// its messages, start one later than those of the line before, so that at each moment lines use
/// owners in different lines.
class WeightLinesBuilder {
 public:
  WeightLinesBuilder(std::string name, const Workload& workload, const DeviceGroups& lines,
                     const WeipipeZeroBubbleOptions& options, const std::vector<std::pair<std::string, std::string>>& recorded)
      : placement_{placements::interleaved(lines.ranks(), lines)},
        flows_{std::move(name), workload, chunks(placement_), options.overlap, true},
        lines_{lines},
        order_{*options.order},
        split_{*options.split},
        ranks_{lines.ranks()} {
    flows_.builder().options(recorded);
    if (options.overlap) {
      supply_lane_ = flows_.builder().lane("supply_out");
      home_lane_ = flows_.builder().lane("home_in");
    }
    has_sum_.resize(static_cast<std::size_t>(ranks_), false);
    last_step_.resize(static_cast<std::size_t>(ranks_), none<TaskId>);
  }

  Schedule build() {
    const std::int64_t each = flows_.rounds() * ranks_;  // forwards of a rank; as many of each half of the backwards
    const std::int64_t steps = ranks_ + 3 * each + lines_.largest() - 1 + start(lines_.count() - 1);
    for (std::int64_t step = -1; step < steps; ++step) {
      for (const int r : flows_.alternating()) fetch(r, step);
      compute_step(step);
      for (const int r : flows_.alternating()) add_up(r, step);
      for (int r = 0; r < ranks_; ++r) send_home(r, step);
    }
    std::vector<BufferId> sums;
    for (int r = 0; r < ranks_; ++r) sums.push_back(flows_.own(r).gradients);
    return flows_.finish(sums);
  }

 private:
  /// The k-th computation of one kind on a rank.
  struct Item {
    Op op = Op::idle;  ///< idle: none
    std::int64_t k = 0;
    int chunk = 0;
    std::int64_t microbatch = 0;
  };

  /// [rank] the chunk it owns
  static std::vector<int> chunks(const placements::Interleaved& placement) {
    std::vector<int> chunks(static_cast<std::size_t>(placement.shards()));
    for (int c = 0; c < placement.shards(); ++c) chunks[static_cast<std::size_t>(placement.owner(c))] = c;
    return chunks;
  }
  int start(int line) const { return order_ == Order::eager ? line : 0; }
  int place(int rank) const { return rank - lines_.first(lines_.group_of(rank)); }

  /// The program: P forwards, then backward_input, backward_weight and forward alternately, while
  /// any are left. A whole backward takes the place of its second half.
  Item item_at(int rank, std::int64_t step) const {
    const std::int64_t j = step - place(rank) - start(lines_.group_of(rank));
    const std::int64_t i = j - ranks_;
    const Op turn[] = {split_ ? Op::backward_input : Op::idle, split_ ? Op::backward_weight : Op::backward, Op::forward};
    Item item;
    if (j < 0) return item;
    const Op op = i < 0 ? Op::forward : turn[i % 3];
    item.k = i < 0 ? j : i / 3 + (op == Op::forward ? ranks_ : 0);
    item.microbatch = item.k / ranks_ * ranks_ + rank;
    if (item.microbatch >= flows_.microbatches()) return item;
    const auto layer = static_cast<int>(item.k % ranks_);
    item.chunk = op == Op::forward ? layer : ranks_ - 1 - layer;
    item.op = op;
    return item;
  }
  int owner(const Item& item) const { return placement_.owner(item.chunk); }
  static Flow weights_of(Op op) { return op == Op::forward ? Flow::forward : Flow::backward; }

  BufferId weights(int rank, const Item& item) const {
    return owner(item) == rank ? flows_.own(rank).weights : flows_.slot(weights_of(item.op), rank, item.k);
  }
  /// Whether no later rank of the line adds to the sum.
  bool ends_line(int rank, const Item& item) const {
    return rank + 1 == ranks_ || place(rank + 1) == 0 || item.microbatch + 1 >= flows_.microbatches();
  }
  /// The buffer of the sum that has come down the line to `rank`.
  BufferId sum(int rank, const Item& item) const {
    const bool at_home = owner(item) == rank && ends_line(rank, item);
    return at_home ? flows_.own(rank).gradients : flows_.slot(Flow::gradients, rank, item.k);
  }
  /// Adds a sum to the owner's gradient: written the first time, accumulated from then on.
  Use into_home(int owner) {
    const BufferId home = flows_.own(owner).gradients;
    const bool first = !has_sum_[static_cast<std::size_t>(owner)];
    has_sum_[static_cast<std::size_t>(owner)] = true;
    return first ? writes(home) : adds_to(home);
  }

  /// Sends the weights for the next step of `rank`, from the rank before it or from their owner.
  void fetch(int rank, std::int64_t step) {
    const Item item = item_at(rank, step + 1);
    if (item.op == Op::idle || item.op == Op::backward_weight || owner(item) == rank) return;
    const int from = place(rank) > 0 ? rank - 1 : owner(item);
    const BufferId source = from == owner(item) ? flows_.own(from).weights : flows_.slot(weights_of(item.op), from, item.k);
    // An owner is later than the first of its line and earlier than other lines: one lane each for
    // what it forwards and for what it owns, so that neither waits for the other.
    WeightFlows::Lanes by = flows_.lanes_of(weights_of(item.op));
    if (place(rank) == 0) by.out = supply_lane_;
    flows_.pass(weights_of(item.op), by, from, rank, item.chunk, count(step), source, writes(weights(rank, item)));
  }

  void compute_step(std::int64_t step) {
    std::vector<TaskId> done(static_cast<std::size_t>(ranks_), none<TaskId>);
    for (int r = 0; r < ranks_; ++r) {
      const Item item = item_at(r, step);
      if (item.op == Op::idle) continue;
      const bool waits = order_ == Order::paper && place(r) > 0;
      const TaskId before = waits ? last_step_[static_cast<std::size_t>(r - 1)] : none<TaskId>;
      Use gradient;
      if (leaves_gradients(item.op)) {
        const BufferId slot = sum(r, item);
        gradient = slot == flows_.own(r).gradients ? into_home(r) : writes(slot);
      }
      // A backward_weight uses the weights from the buffer that its backward_input has read.
      done[static_cast<std::size_t>(r)] =
          flows_.compute(item.op, r, item.chunk, item.microbatch, count(step), weights(r, item), before, gradient);
    }
    last_step_ = std::move(done);
  }

  /// Adds the sum of the rank before to what `rank` has just computed.
  void add_up(int rank, std::int64_t step) {
    const Item item = item_at(rank, step);
    if (!leaves_gradients(item.op) || place(rank) == 0) return;
    flows_.pass(Flow::gradients, rank - 1, rank, item.chunk, count(step), flows_.slot(Flow::gradients, rank - 1, item.k),
                adds_to(sum(rank, item)));
  }
  void send_home(int rank, std::int64_t step) {
    const Item item = item_at(rank, step);
    if (!leaves_gradients(item.op) || !ends_line(rank, item) || owner(item) == rank) return;
    const WeightFlows::Lanes by{flows_.lanes_of(Flow::gradients).out, home_lane_};
    flows_.pass(Flow::gradients, by, rank, owner(item), item.chunk, count(step), sum(rank, item), into_home(owner(item)));
  }

  /// Steps, counted from the first message.
  static std::int32_t count(std::int64_t step) { return static_cast<std::int32_t>(step + 1); }

  placements::Interleaved placement_;
  WeightFlows flows_;
  LaneId supply_lane_{};
  LaneId home_lane_{};
  DeviceGroups lines_;
  Order order_;
  bool split_;
  int ranks_;
  std::vector<bool> has_sum_;      ///< [rank] whether the gradient of its chunk has been written
  std::vector<TaskId> last_step_;  ///< [rank] its computation in the step before
};

}  // namespace detail

TAWPIPE_INLINE Schedule weipipe_zb1(const Workload& workload, int ranks, const WeipipeZeroBubbleOptions& options) {
  detail::check_flow_tasks("weipipe-zb1", 6, workload, ranks);
  const WeipipeZeroBubbleOptions chosen = options.resolved(workload);
  return detail::WeightLinesBuilder{"weipipe-zb1", workload, DeviceGroups::even(ranks, 1), chosen, option_texts(chosen)}.build();
}

TAWPIPE_INLINE Schedule weipipe_zb2(const Workload& workload, const DeviceGroups& nodes, const WeipipeLinesOptions& options) {
  detail::check_flow_tasks("weipipe-zb2", 6, workload, nodes.ranks());
  const DeviceGroups lines = options.lines.of(nodes);
  const WeipipeZeroBubbleOptions chosen =
      WeipipeZeroBubbleOptions{options.order, options.overlap, options.split}.resolved(workload);
  const WeipipeLinesOptions recorded{chosen.order, chosen.overlap, chosen.split, Grouping::that_gives(lines)};
  return detail::WeightLinesBuilder{"weipipe-zb2", workload, lines, chosen, option_texts(recorded)}.build();
}

}  // namespace tawpipe::schedules
#endif
