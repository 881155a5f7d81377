// Activation pipelines from programs: the rank of each stage and each rank's order of computations.
// Not: any one pipeline's program (gpipe.hpp, one_f_one_b.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/detail/pipeline_items.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// Turns a program into tasks: adds the transfers between stages on different ranks, the optimizer,
/// and the all-reduces between copies of a stage and of a tied embedding.
class PipelineBuilder {
 public:
  PipelineBuilder(std::string name, const Workload& workload, const PipelineProgram& program, const PipelineOptions& options,
                  const std::vector<std::pair<std::string, std::string>>& named_options)
      : builder_{std::move(name), workload, static_cast<int>(program.actions.size())},
        lanes_{builder_, options.overlap},
        program_{program},
        options_{options},
        stages_{static_cast<int>(program.rank_of_stage.size())},
        microbatches_{static_cast<std::int32_t>(workload.microbatches())},
        ranks_{place_microbatches(program, workload.microbatches())} {
    builder_.options(named_options);
    builder_.stages(workload.split(stages_));
  }

  Schedule build() {
    add_buffers();
    for (std::size_t r = 0; r < program_.actions.size(); ++r) items_.push_back(items_of(static_cast<int>(r)));
    if (!options_.overlap) fuse_exchanges(items_);
    emit_all();
    finish();
    return builder_.build();
  }

 private:
  using Item = PipelineItem;
  /// One message: a stage's output of a forward (to the next stage) or backward (to the previous).
  struct Slot {
    std::int64_t ready = -1;  ///< the earliest start of its consumer, once known
    BufferId sent = none<BufferId>;
    BufferId received = none<BufferId>;
    TaskId arrived = none<TaskId>;  ///< the transfer
  };

  int rank_of(int stage, std::int32_t microbatch) const { return ranks_[at(stage, microbatch)]; }
  /// The model states that `rank` uses for the stage: its first copy or its second.
  const States& states(int stage, int rank) const {
    const auto s = static_cast<std::size_t>(stage);
    return states_[program_.rank_of_stage[s] == rank ? s : s + static_cast<std::size_t>(stages_)];
  }
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
  /// The message that must arrive before `action`: the forward of the stage before, or the backward
  /// of the next.
  Action input(const Action& action) const {
    return is_forward(action.op) ? Action{Op::forward, action.stage - 1, action.microbatch}
                                 : Action{Op::backward, action.stage + 1, action.microbatch};
  }
  bool has_input(const Action& action) const {
    return is_forward(action.op) ? action.stage > 0 : sends_back(action.op) && action.stage + 1 < stages_;
  }

  void add_buffers() {
    const auto slots = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(microbatches_);
    forward_.resize(slots);
    backward_.resize(slots);
    released_.resize(slots, none<BufferId>);
    kept_.resize(slots, none<BufferId>);
    stash_.resize(slots, none<BufferId>);
    for (const auto* holders : {&program_.rank_of_stage, &program_.second_rank_of_stage}) {
      for (int s = 0; s < static_cast<int>(holders->size()); ++s) {
        states_.push_back(add_states(builder_, holders->at(static_cast<std::size_t>(s)), builder_.space().all_of(s), s));
      }
    }
    for (std::size_t r = 0; r < program_.actions.size(); ++r) add_workspace(builder_, static_cast<int>(r));
  }

  std::vector<Item> items_of(int rank) const {
    std::vector<Item> items;
    for (Action action : program_.actions[static_cast<std::size_t>(rank)]) {
      action.joined = action.joined && options_.overlap;
      const int from = has_input(action) ? rank_of(input(action).stage, action.microbatch) : rank;
      if (!options_.overlap && from != rank) items.push_back({Item::Kind::receive, {}, input(action), from});
      items.push_back({Item::Kind::compute, action, {}, -1});
      const int to = consumer(action) >= 0 ? rank_of(consumer(action), action.microbatch) : rank;
      if (!options_.overlap && to != rank) items.push_back({Item::Kind::send, message(action), {}, to});
    }
    return items;
  }
  /// The action as a message's name: the two forms of backward that send count as one.
  static Action message(const Action& action) {
    return {is_forward(action.op) ? Op::forward : Op::backward, action.stage, action.microbatch};
  }

  /// Emits all items, each once its inputs are there, in the order in which they would start if
  /// every computation took one unit of time and transfers none: one sequential order that keeps
  /// each rank's own.
  void emit_all() {
    next_.assign(items_.size(), 0);
    clock_.assign(items_.size(), 0);
    std::size_t left = 0;
    for (const auto& items : items_) left += items.size();
    // Ranks whose next item can start, earliest first. Only the latest entry of a rank counts.
    using Entry = std::pair<std::int64_t, std::size_t>;  // start, rank
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> startable;
    std::vector<std::int64_t> offered(items_.size(), -1);
    const auto offer = [&](std::size_t rank) {
      const std::int64_t start = start_of(rank);
      if (start < 0 || start == offered[rank]) return;
      offered[rank] = start;
      startable.emplace(start, rank);
    };
    for (std::size_t r = 0; r < items_.size(); ++r) offer(r);
    while (left > 0) {
      if (startable.empty()) throw ScheduleError(stuck());
      const auto [start, rank] = startable.top();
      startable.pop();
      if (offered[rank] != start) continue;
      offered[rank] = -1;
      if (start_of(rank) != start) {
        offer(rank);
        continue;
      }
      const Item item = *head(rank);
      left -= emit(rank, start);
      // Offers what may start now: the rank itself, consumers of its output, its partner, and ranks
      // waiting for either.
      offer(rank);
      if (item.kind == Item::Kind::compute) {
        for (std::size_t i = item.action.joined ? next_[rank] - 2 : next_[rank] - 1; i < next_[rank]; ++i) {
          const Action& done = items_[rank][i].action;
          const int to = consumer(done) >= 0 ? rank_of(consumer(done), done.microbatch) : static_cast<int>(rank);
          if (to != static_cast<int>(rank)) offer(static_cast<std::size_t>(to));
        }
      } else {
        offer(static_cast<std::size_t>(item.peer));
        offer_sender(static_cast<std::size_t>(item.peer), offer);
      }
      offer_sender(rank, offer);
    }
  }

  /// Offers the rank from which the next item of `rank` receives.
  template <class Offer>
  void offer_sender(std::size_t rank, const Offer& offer) {
    const Item* item = head(rank);
    if (item != nullptr && item->peer >= 0) offer(static_cast<std::size_t>(item->peer));
  }

  const Item* head(std::size_t rank) const { return next_[rank] < items_[rank].size() ? &items_[rank][next_[rank]] : nullptr; }

  /// When the input of `action` is there, or -1 if it is not.
  std::int64_t ready_of(const Action& action) {
    return lacks_forward(action) ? -1 : has_input(action) ? slot(input(action)).ready : 0;
  }

  /// When the rank's next item can start, or -1 while it cannot. A receive starts with its send.
  std::int64_t start_of(std::size_t rank) {
    const Item* item = head(rank);
    if (item == nullptr || item->kind == Item::Kind::receive) return -1;
    if (item->kind == Item::Kind::compute) {
      const std::int64_t ready = ready_of(item->action);
      if (!item->action.joined || ready < 0) return ready < 0 ? -1 : std::max(clock_[rank], ready);
      const std::int64_t partner = ready_of(items_[rank][next_[rank] + 1].action);
      return partner < 0 ? -1 : std::max({clock_[rank], ready, partner});
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

  /// Emits the rank's next item and returns the number of items emitted.
  std::size_t emit(std::size_t rank, std::int64_t start) {
    const Item item = items_[rank][next_[rank]++];
    if (item.kind == Item::Kind::compute) {
      const Action* partner = item.action.joined ? &items_[rank][next_[rank]].action : nullptr;
      const bool waits = partner != nullptr && has_input(*partner);
      TaskId last = emit_compute(static_cast<int>(rank), item.action, waits ? slot(input(*partner)).arrived : none<TaskId>);
      if (partner == nullptr) {
        clock_[rank] = start + 1;
        hand_on(static_cast<int>(rank), item.action, last);
        return 1;
      }
      ++next_[rank];
      last = emit_compute(static_cast<int>(rank), *partner);
      clock_[rank] = start + 2;
      hand_on(static_cast<int>(rank), *partner, last);
      hand_on(static_cast<int>(rank), item.action, last);
      return 2;
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

  /// Sends the output of `action`, once task `done` has ended.
  void hand_on(int rank, const Action& action, TaskId done) {
    const int to = consumer(action);
    if (to < 0) return;
    const bool stays = rank_of(to, action.microbatch) == rank;
    if (stays || options_.overlap) slot(message(action)).ready = clock_[static_cast<std::size_t>(rank)];
    if (!stays && options_.overlap) emit_transfer(action, nullptr, done);
  }

  /// @param after  dependencies in addition to its own input
  TaskId emit_compute(int rank, const Action& action, TaskId after = none<TaskId>) {
    const StageWork& work = builder_.stage(action.stage);
    const States& own = states(action.stage, rank);
    BufferId& released = released_[at(action.stage, action.microbatch)];
    BufferId& kept = kept_[at(action.stage, action.microbatch)];
    BufferId& stash = stash_[at(action.stage, action.microbatch)];
    std::vector<Use> uses{reads(own.weights)};
    if (has_input(action)) uses.push_back(reads(slot(input(action)).received));
    if (is_forward(action.op)) {
      const Bytes kept_bytes = work.saved * program_.kept.numerator / program_.kept.denominator;
      const Content saved = content(ContentKind::saved, action);
      uses.push_back(writes(kept = builder_.transient(rank, saved, kept_bytes)));
      if (kept_bytes < work.saved) {
        uses.push_back(writes(released = builder_.transient(rank, saved, work.saved - kept_bytes)));
      }
    } else {
      uses.push_back(reads(kept));
      if (action.op == Op::backward_input && work.stash > Bytes{}) {
        uses.push_back(writes(stash = builder_.transient(rank, content(ContentKind::stash, action), work.stash)));
      }
      if (action.op == Op::backward_weight && stash != none<BufferId>) uses.push_back(reads(stash));
      if (action.op != Op::backward_weight && released != none<BufferId>) uses.push_back(reads(released));
      if (action.op != Op::backward_input) uses.push_back(adds_to(own.gradients));
    }
    const int to = consumer(action);
    if (to >= 0) {
      Slot& out = slot(message(action));
      const Content made = content(is_forward(action.op) ? ContentKind::activation : ContentKind::activation_gradient, action);
      out.sent = builder_.transient(rank, made, output_bytes(action));
      out.received = out.sent;
      uses.push_back(writes(out.sent));
      const int there = rank_of(to, action.microbatch);
      if (there != rank) out.received = builder_.transient(there, made, output_bytes(action));
    }
    return builder_.add(compute(action.op, rank, action.stage, action.microbatch), uses, std::span<const TaskId>{&after, 1});
  }

  static Content content(ContentKind kind, const Action& action) { return {kind, StageId{action.stage}, action.microbatch}; }
  Bytes output_bytes(const Action& action) const {
    return builder_.stage(is_forward(action.op) ? action.stage : action.stage - 1).boundary;
  }

  /// The message of `sent`, with `returned` coming back at once where it is not null.
  void emit_transfer(const Action& sent, const Action* returned, TaskId after = none<TaskId>) {
    const bool forward = is_forward(sent.op);
    Slot& out = slot(message(sent));
    const int from = rank_of(sent.stage, sent.microbatch);
    const int to = rank_of(consumer(sent), sent.microbatch);
    // Neighbours on the ring of ranks: "next" is the rank above, and the first for the last.
    const bool upward = to == from + 1 || (from > to + 1);
    Task task{.op = returned == nullptr ? Op::pass : Op::exchange,
              .payload = forward ? Payload::activations : Payload::activation_gradients,
              .rank = Rank{from},
              .peer = Rank{to},
              .stage = StageId{consumer(sent)},
              .microbatch = sent.microbatch,
              .bytes = output_bytes(sent)};
    task.lane = upward ? lanes_.send_next : lanes_.send_previous;
    task.peer_lane = upward ? lanes_.receive_previous : lanes_.receive_next;
    std::vector<Use> uses{reads(out.sent), writes(out.received)};
    if (returned != nullptr) {
      const Slot& back = slot(*returned);
      uses.push_back(reads(back.sent));
      uses.push_back(writes(back.received));
    }
    out.arrived = builder_.add(task, uses, std::span<const TaskId>{&after, 1});
  }

  /// The gradients of a stage's two copies and those of a tied embedding are summed; then
  /// everything is updated. Where the first and last stage are on one rank, the tied embedding is
  /// one matrix there and needs no sum.
  void finish() {
    const Workload& workload = builder_.workload();
    const int first = program_.rank_of_stage.front();
    const int last = program_.rank_of_stage.back();
    const bool copies = !program_.second_rank_of_stage.empty();
    for (std::size_t s = 0; copies && s < program_.rank_of_stage.size(); ++s) {
      all_reduce(Payload::gradients, static_cast<int>(s), program_.rank_of_stage[s], program_.second_rank_of_stage[s],
                 builder_.space().all_of(static_cast<int>(s)),
                 {changes(states_[s].gradients), changes(states_[s + static_cast<std::size_t>(stages_)].gradients)});
    }
    if (!copies && !workload.is_abstract() && workload.model().tied && first != last) {
      all_reduce(Payload::edge_gradients, -1, first, last, {workload.model().blocks().embedding()},
                 {changes(states_.front().gradients), changes(states_.back().gradients)});
    }
    for (const auto* holders : {&program_.rank_of_stage, &program_.second_rank_of_stage}) {
      for (std::size_t s = 0; s < holders->size(); ++s) {
        const States& own = states(static_cast<int>(s), (*holders)[s]);
        builder_.add(update((*holders)[s], static_cast<int>(s), own.bytes),
                     {reads(own.gradients), changes(own.weights), changes(own.optimizer)});
      }
    }
  }

  void all_reduce(Payload payload, int stage, int one, int other, const std::vector<ParameterRange>& parameters,
                  std::initializer_list<Use> uses) {
    builder_.add({.op = Op::all_reduce,
                  .payload = payload,
                  .rank = Rank{one},
                  .group = builder_.group({Rank{one}, Rank{other}}),
                  .stage = StageId{stage},
                  .split = builder_.split({builder_.pieces(parameters)}),
                  .bytes = gradient_bytes(builder_.workload(), parameters_in(parameters))},
                 uses);
  }

  /// A backward whose own forward has not yet run.
  bool lacks_forward(const Action& action) const {
    return !is_forward(action.op) && kept_[at(action.stage, action.microbatch)] == none<BufferId>;
  }

  /// Names a waiting rank: one that waits for itself rather than those that wait for it.
  std::string stuck() const {
    std::size_t rank = items_.size();
    for (std::size_t r = items_.size(); r-- > 0;) {
      if (head(r) != nullptr) rank = r;
    }
    if (rank == items_.size()) return "the pipeline's program is empty";
    for (std::size_t r = items_.size(); r-- > 0;) {
      const Item* item = head(r);
      if (item != nullptr && item->kind == Item::Kind::compute && lacks_forward(item->action)) rank = r;
    }
    const Action& action = head(rank)->action;
    return concat("the pipeline's program cannot go on: rank ", rank, " waits at ", tawpipe::name(action.op), " of stage ",
                  action.stage, ", microbatch ", action.microbatch, ", whose input no rank produces in the order given");
  }

  ScheduleBuilder builder_;
  PipelineLanes lanes_;
  PipelineProgram program_;
  PipelineOptions options_;
  int stages_;
  std::int32_t microbatches_;
  std::vector<int> ranks_;                ///< [stage, microbatch] the rank it passes on
  std::vector<States> states_;            ///< [copy, stage]
  std::vector<Slot> forward_;             ///< [stage, microbatch] the output of the forward
  std::vector<Slot> backward_;            ///< [stage, microbatch] the output of the backward
  std::vector<BufferId> released_;        ///< [stage, microbatch] the part that backward_input releases, if any
  std::vector<BufferId> kept_;            ///< [stage, microbatch] the part held to the end of the backward
  std::vector<BufferId> stash_;           ///< [stage, microbatch] the data from backward_input for backward_weight, if any
  std::vector<std::vector<Item>> items_;  ///< [rank]
  std::vector<std::size_t> next_;         ///< [rank] items emitted
  std::vector<std::int64_t> clock_;       ///< [rank] in units of one computation
};

}  // namespace detail

/// The schedule of an activation pipeline: `program` with transfers, optimizer steps and, for a
/// tied embedding, the all-reduce between the first and last stage.
///
/// @throws ScheduleError  if the program is not complete (each microbatch once forward and once
/// backward through each stage),
///                        or its order cannot be run: a computation whose input is never produced before it.
inline Schedule pipeline(std::string name, const Workload& workload, const PipelineProgram& program,
                         const PipelineOptions& options,
                         const std::vector<std::pair<std::string, std::string>>& named_options = {}) {
  return detail::PipelineBuilder{std::move(name), workload, program, options, named_options}.build();
}

}  // namespace tawpipe::schedules
