// Activation pipelines from per-rank programs: where each stage lives and in which order each rank computes.
// Not: any one pipeline's program (gpipe.hpp, one_f_one_b.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedules/common.hpp"

namespace tawpipe::schedules {

/// One computation in a rank's program.
struct Action {
  Op op = Op::forward;  ///< forward, backward, backward_input or backward_weight
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;

  bool operator==(const Action&) const = default;
};

/// A pipeline before it has transfers: what each rank computes, in order.
struct PipelineProgram {
  std::vector<int> rank_of_stage;            ///< [stage]
  std::vector<std::vector<Action>> actions;  ///< [rank]
};

struct PipelineOptions {
  bool overlap = true;  ///< off: a send or receive holds the compute lane until it is done, as in Megatron-LM by default
};

namespace detail {

/// Turns a program into tasks: adds the transfers between stages on different ranks, the optimizer, and the all-reduce of a
/// tied embedding.
class PipelineBuilder {
 public:
  PipelineBuilder(std::string name, const Workload& workload, const PipelineProgram& program, const PipelineOptions& options,
                  std::vector<std::pair<std::string, std::string>> named_options)
      : builder_{std::move(name), workload, static_cast<int>(program.actions.size()),
                 options.overlap
                     ? std::vector<std::string>{"compute", "send_next", "receive_previous", "send_previous", "receive_next"}
                     : std::vector<std::string>{"compute"}},
        program_{program},
        options_{options},
        stages_{static_cast<int>(program.rank_of_stage.size())},
        microbatches_{static_cast<std::int32_t>(workload.microbatches())} {
    for (auto& [key, value] : named_options) builder_.option(std::move(key), std::move(value));
    builder_.stages(workload.split(stages_));
  }

  Schedule build() {
    add_buffers();
    for (std::size_t r = 0; r < program_.actions.size(); ++r) items_.push_back(items_of(static_cast<int>(r)));
    if (!options_.overlap) fuse();
    emit_all();
    finish();
    return builder_.build();
  }

 private:
  /// A step of one rank: a computation, or without overlap also its end of a transfer.
  struct Item {
    enum class Kind : std::uint8_t { compute, send, receive, exchange } kind = Kind::compute;
    Action action;    ///< computed; or what produced the message sent
    Action received;  ///< what produced the message received
    int peer = -1;
  };
  /// One message: the output of a stage's forward (to the next stage) or backward (to the one before).
  struct Slot {
    std::int64_t ready = -1;  ///< when its user may start, once it can
    BufferId sent = none<BufferId>;
    BufferId received = none<BufferId>;
  };

  int rank_of(int stage) const { return program_.rank_of_stage[static_cast<std::size_t>(stage)]; }
  static bool is_forward(Op op) { return op == Op::forward; }
  static bool sends_back(Op op) { return op == Op::backward || op == Op::backward_input; }
  std::size_t at(int stage, std::int32_t microbatch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(microbatches_) + static_cast<std::size_t>(microbatch);
  }
  Slot& slot(const Action& producer) {
    return (is_forward(producer.op) ? forward_ : backward_)[at(producer.stage, producer.microbatch)];
  }
  /// The stage that uses what `producer` makes; -1 if none does.
  int consumer(const Action& producer) const {
    if (is_forward(producer.op)) return producer.stage + 1 < stages_ ? producer.stage + 1 : -1;
    return sends_back(producer.op) ? producer.stage - 1 : -1;
  }
  /// What must have arrived before `action`: the forward of the stage before, or the backward of the next.
  Action input(const Action& action) const {
    if (is_forward(action.op)) return {Op::forward, action.stage - 1, action.microbatch};
    return {Op::backward, action.stage + 1, action.microbatch};
  }
  bool has_input(const Action& action) const {
    if (is_forward(action.op)) return action.stage > 0;
    return sends_back(action.op) && action.stage + 1 < stages_;
  }

  void add_buffers() {
    const auto slots = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(microbatches_);
    forward_.resize(slots);
    backward_.resize(slots);
    saved_.resize(slots, none<BufferId>);
    for (int s = 0; s < stages_; ++s) {
      states_.push_back(add_states(builder_, rank_of(s), builder_.stage(s).parameters + builder_.stage(s).edge_parameters, s));
    }
    for (std::size_t r = 0; r < program_.actions.size(); ++r) add_workspace(builder_, static_cast<int>(r));
  }

  std::vector<Item> items_of(int rank) const {
    std::vector<Item> items;
    for (const Action& action : program_.actions[static_cast<std::size_t>(rank)]) {
      if (!options_.overlap && has_input(action) && rank_of(input(action).stage) != rank) {
        items.push_back({Item::Kind::receive, {}, input(action), rank_of(input(action).stage)});
      }
      items.push_back({Item::Kind::compute, action, {}, -1});
      const int next = consumer(action);
      if (!options_.overlap && next >= 0 && rank_of(next) != rank) {
        items.push_back({Item::Kind::send, message(action), {}, rank_of(next)});
      }
    }
    return items;
  }
  /// The action as a message's name: the two forms of backward that send are one.
  static Action message(Action action) {
    if (!is_forward(action.op)) action.op = Op::backward;
    return action;
  }

  /// Joins a send and a receive that stand together on both ends into one exchange, as batched sends and receives do;
  /// left apart, each of the two ranks would wait for the other to receive.
  void fuse() {
    std::vector<std::size_t> forward_at(forward_.size());
    std::vector<std::size_t> backward_at(backward_.size());
    const auto sent_at = [&](const Action& message) -> std::size_t& {
      return (is_forward(message.op) ? forward_at : backward_at)[at(message.stage, message.microbatch)];
    };
    for (const auto& items : items_) {
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (items[i].kind == Item::Kind::send) sent_at(items[i].action) = i;
      }
    }
    const auto is_pair = [](const std::vector<Item>& items, std::size_t i) {
      return i + 1 < items.size() && items[i].kind == Item::Kind::send && items[i + 1].kind == Item::Kind::receive &&
             items[i].peer == items[i + 1].peer;
    };
    std::vector<std::vector<Item>> fused(items_.size());
    for (std::size_t r = 0; r < items_.size(); ++r) {
      for (std::size_t i = 0; i < items_[r].size(); ++i) {
        Item item = items_[r][i];
        if (is_pair(items_[r], i)) {
          const Action received = items_[r][i + 1].received;
          const auto& other = items_[static_cast<std::size_t>(item.peer)];
          const std::size_t j = sent_at(received);
          if (is_pair(other, j) && other[j + 1].received == item.action) {
            item = {Item::Kind::exchange, item.action, received, item.peer};
            ++i;
          }
        }
        fused[r].push_back(item);
      }
    }
    items_ = std::move(fused);
  }

  /// Emits all items, each once its inputs are there, in the order in which they would start if every computation took one
  /// unit of time and transfers none: one sequential order that keeps each rank's own.
  void emit_all() {
    next_.assign(items_.size(), 0);
    clock_.assign(items_.size(), 0);
    std::size_t left = 0;
    for (const auto& items : items_) left += items.size();
    while (left > 0) {
      std::size_t chosen = items_.size();
      std::int64_t earliest = 0;
      for (std::size_t r = 0; r < items_.size(); ++r) {
        const std::int64_t start = start_of(r);
        if (start >= 0 && (chosen == items_.size() || start < earliest)) {
          chosen = r;
          earliest = start;
        }
      }
      if (chosen == items_.size()) throw ScheduleError(stuck());
      left -= emit(chosen, earliest);
    }
  }

  const Item* head(std::size_t rank) const { return next_[rank] < items_[rank].size() ? &items_[rank][next_[rank]] : nullptr; }

  /// When the rank's next item can start, or -1 while it cannot. A receive starts with its send.
  std::int64_t start_of(std::size_t rank) {
    const Item* item = head(rank);
    if (item == nullptr || item->kind == Item::Kind::receive) return -1;
    if (item->kind == Item::Kind::compute) {
      if (!has_input(item->action)) return clock_[rank];
      const Slot& in = slot(input(item->action));
      return in.ready < 0 ? -1 : std::max(clock_[rank], in.ready);
    }
    const auto peer = static_cast<std::size_t>(item->peer);
    const Item* other = head(peer);
    if (other == nullptr || other->peer != static_cast<int>(rank)) return -1;
    const bool matches =
        item->kind == Item::Kind::exchange
            ? other->kind == Item::Kind::exchange && other->action == item->received && other->received == item->action
            : other->kind == Item::Kind::receive && other->received == item->action;
    return matches ? std::max(clock_[rank], clock_[peer]) : -1;
  }

  /// Emits the rank's next item and returns how many items that was.
  std::size_t emit(std::size_t rank, std::int64_t start) {
    const Item item = items_[rank][next_[rank]++];
    if (item.kind == Item::Kind::compute) {
      emit_compute(static_cast<int>(rank), item.action);
      clock_[rank] = start + 1;
      const int to = consumer(item.action);
      if (to < 0) return 1;
      const bool stays = rank_of(to) == static_cast<int>(rank);
      if (stays || options_.overlap) slot(message(item.action)).ready = start + 1;
      if (!stays && options_.overlap) emit_transfer(item.action, nullptr);
      return 1;
    }
    const auto peer = static_cast<std::size_t>(item.peer);
    ++next_[peer];
    clock_[rank] = clock_[peer] = start;
    slot(item.action).ready = start;
    const bool both = item.kind == Item::Kind::exchange;
    if (both) slot(item.received).ready = start;
    emit_transfer(item.action, both ? &item.received : nullptr);
    return 2;
  }

  void emit_compute(int rank, const Action& action) {
    const StageWork& work = builder_.stage(action.stage);
    const States& own = states_[static_cast<std::size_t>(action.stage)];
    BufferId& saved = saved_[at(action.stage, action.microbatch)];
    std::vector<Use> uses{reads(own.weights)};
    if (has_input(action)) uses.push_back(reads(slot(input(action)).received));
    if (is_forward(action.op)) {
      saved = builder_.transient(rank, BufferKind::activations, work.saved, action.stage);
      uses.push_back(writes(saved));
    } else {
      uses.push_back(reads(saved));
      if (action.op != Op::backward_input) uses.push_back(adds_to(own.gradients));
    }
    const int to = consumer(action);
    if (to >= 0) {
      Slot& out = slot(message(action));
      out.sent = builder_.transient(rank, BufferKind::activations, output_bytes(action), action.stage);
      out.received = out.sent;
      uses.push_back(writes(out.sent));
      if (rank_of(to) != rank) out.received = builder_.transient(rank_of(to), BufferKind::activations, output_bytes(action), to);
    }
    builder_.add(compute(action.op, rank, action.stage, action.microbatch), uses);
  }

  Bytes output_bytes(const Action& action) const {
    return builder_.stage(is_forward(action.op) ? action.stage : action.stage - 1).boundary;
  }

  /// The message of `sent`, with `returned` coming back at once where it is not null.
  void emit_transfer(const Action& sent, const Action* returned) {
    const bool forward = is_forward(sent.op);
    const Slot& out = slot(message(sent));
    const int from = rank_of(sent.stage);
    const int to = rank_of(consumer(sent));
    // Neighbours on the ring of ranks: "next" is the rank above, and the first for the last.
    const bool upward = to == from + 1 || (from > to + 1);
    Task task{.op = returned == nullptr ? Op::pass : Op::exchange,
              .payload = forward ? Payload::activations : Payload::activation_gradients,
              .rank = Rank{from},
              .peer = Rank{to},
              .stage = StageId{consumer(sent)},
              .microbatch = sent.microbatch,
              .bytes = output_bytes(sent)};
    if (options_.overlap) {
      task.lane = upward ? 1 : 3;
      task.peer_lane = upward ? 2 : 4;
    }
    std::vector<Use> uses{reads(out.sent), writes(out.received)};
    if (returned != nullptr) {
      const Slot& back = slot(*returned);
      uses.push_back(reads(back.sent));
      uses.push_back(writes(back.received));
    }
    builder_.add(task, uses);
  }

  /// A tied embedding's two gradients are summed; then every stage is updated.
  void finish() {
    const int first = rank_of(0);
    const int last = rank_of(stages_ - 1);
    const Workload& workload = builder_.workload();
    if (!workload.is_abstract() && workload.model().tied && first != last) {
      builder_.add({.op = Op::all_reduce,
                    .payload = Payload::edge_gradients,
                    .rank = Rank{first},
                    .group = builder_.group({Rank{first}, Rank{last}}),
                    .bytes = gradient_bytes(workload, workload.model().embedding_parameters())},
                   {changes(states_.front().gradients), changes(states_.back().gradients)});
    }
    for (int s = 0; s < stages_; ++s) {
      const States& own = states_[static_cast<std::size_t>(s)];
      builder_.add(update(rank_of(s), s, own.bytes), {reads(own.gradients), changes(own.weights), changes(own.optimizer)});
    }
  }

  std::string stuck() const {
    for (std::size_t r = 0; r < items_.size(); ++r) {
      if (const Item* item = head(r)) {
        return concat("the pipeline's program cannot go on: rank ", r, " waits at ", tawpipe::name(item->action.op), " of stage ",
                      item->action.stage, ", microbatch ", item->action.microbatch,
                      ", whose input no rank produces in the order given");
      }
    }
    return "the pipeline's program is empty";
  }

  ScheduleBuilder builder_;
  PipelineProgram program_;
  PipelineOptions options_;
  int stages_;
  std::int32_t microbatches_;
  std::vector<States> states_;            ///< [stage]
  std::vector<Slot> forward_;             ///< [stage, microbatch] what the forward hands on
  std::vector<Slot> backward_;            ///< [stage, microbatch] what the backward hands on
  std::vector<BufferId> saved_;           ///< [stage, microbatch]
  std::vector<std::vector<Item>> items_;  ///< [rank]
  std::vector<std::size_t> next_;         ///< [rank] items emitted
  std::vector<std::int64_t> clock_;       ///< [rank] in units of one computation
};

}  // namespace detail

/// The schedule of an activation pipeline: `program` with transfers, optimizer steps and, for a tied embedding, the
/// all-reduce between the first and last stage.
///
/// @throws ScheduleError  if the program's order cannot be run: a computation whose input is never produced before it.
inline Schedule pipeline(std::string name, const Workload& workload, const PipelineProgram& program,
                         const PipelineOptions& options, std::vector<std::pair<std::string, std::string>> named_options = {}) {
  return detail::PipelineBuilder{std::move(name), workload, program, options, std::move(named_options)}.build();
}

}  // namespace tawpipe::schedules
