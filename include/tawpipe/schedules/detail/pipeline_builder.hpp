// Turns the program of an activation pipeline into tasks.
// Not: any one pipeline's program (schedules/gpipe.hpp, schedules/one_f_one_b.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/detail/pipeline_items.hpp"
#include "tawpipe/schedules/detail/pipeline_routes.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Turns a program into tasks: adds the transfers between stages on different ranks, the optimizer,
/// and the all-reduces between copies of a stage and of tied parameters.
class PipelineBuilder : PipelineRoutes {
 public:
  PipelineBuilder(std::string name, const Workload& workload, PipelineProgram program, const PipelineOptions& options,
                  const std::vector<std::pair<std::string, std::string>>& named_options)
      : PipelineRoutes{std::move(program), workload.microbatches()},
        builder_{std::move(name), workload, static_cast<int>(program_.actions.size())},
        lanes_{builder_, options},
        options_{options} {
    builder_.options(named_options);
    builder_.stages(workload.split(stages_));
    task_workspaces_ = splits_backwards() && has_task_workspaces(builder_);
  }

  Schedule build() {
    for (std::size_t r = 0; r < program_.actions.size(); ++r) items_.push_back(take_items(static_cast<int>(r), options_.overlap));
    if (!options_.overlap) {
      fuse_exchanges(
          items_, 2 * slots(),
          [this](const Action& message) {
            return at(message.stage, message.microbatch) + (is_forward(message.op) ? 0 : slots());
          },
          [this](std::size_t rank, const Item& item) { return peer_of(rank, item); });
    }
    builder_.reserve(sizes(items_, builder_.stages(), task_workspaces_));
    add_buffers();
    emit_all();
    finish();
    items_ = {};
    cells_ = {};
    return builder_.build();
  }

 private:
  using Item = PipelineItem;
  /// One message: a stage's output of a forward (to the next stage) or backward (to the previous).
  struct Slot {
    std::int32_t ready = -1;  ///< the earliest start of its consumer, once known
    BufferId sent = none<BufferId>;
    BufferId received = none<BufferId>;
    TaskId arrived = none<TaskId>;  ///< the transfer
  };
  /// What is known of a stage's computations for a microbatch. They are kept together, since each
  /// look at another place is a cache miss.
  struct alignas(16) Cell {
    Slot forward;   ///< the output of the forward
    Slot backward;  ///< the output of the backward
    /// the part of the saved activation held to the end of the backward
    BufferId kept = none<BufferId>;
    BufferId released = none<BufferId>;  ///< the part that backward_input releases, if any
    /// the data from backward_input for backward_weight, if any
    BufferId stash = none<BufferId>;
  };
  /// Where a rank is in its steps.
  struct Place {
    std::size_t next = 0;       ///< items emitted
    std::int64_t clock = 0;     ///< in units of one computation
    std::int64_t offered = -1;  ///< when its next item starts, if it is among those that can
  };

  /// The model states that `rank` uses for the stage: its first copy or its second.
  const States& states(int stage, int rank) const {
    const auto s = static_cast<std::size_t>(stage);
    return states_[program_.rank_of_stage[s] == rank ? s : s + static_cast<std::size_t>(stages_)];
  }
  Cell& cell(const Action& action) { return cells_[at(action.stage, action.microbatch)]; }
  Slot& slot(const Action& producer) { return is_forward(producer.op) ? cell(producer).forward : cell(producer).backward; }
  void add_buffers() {
    cells_.resize(slots());
    std::vector<std::vector<int>> stages(items_.size());  // [rank]
    for (const auto* holders : {&program_.rank_of_stage, &program_.second_rank_of_stage}) {
      for (int s = 0; s < static_cast<int>(holders->size()); ++s) {
        const int rank = holders->at(static_cast<std::size_t>(s));
        states_.push_back(add_states(builder_, rank, builder_.space().all_of(s), s));
        stages[static_cast<std::size_t>(rank)].push_back(s);
      }
    }
    for (std::size_t r = 0; r < items_.size() && !task_workspaces_; ++r) add_workspace(builder_, static_cast<int>(r), stages[r]);
  }

  /// Emits all items, each once its inputs are there, in the order in which they would start if
  /// every computation took one unit of time and transfers none: one sequential order that keeps
  /// each rank's own. Where messages take turns, backwards come first among those that start at once:
  /// the receive of a gradient is posted before the forward next to its backward runs.
  void emit_all() {
    places_.assign(items_.size(), {});
    std::size_t left = 0;
    for (const auto& items : items_) left += items.size();
    // Ranks whose next item can start, earliest first. Only the latest entry of a rank counts.
    using Entry = std::tuple<std::int64_t, bool, std::size_t>;  // start, whether others come first, rank
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> startable;
    // An item that can start at some time still can at that time, until it is emitted.
    const auto offer = [&](std::size_t rank) {
      if (places_[rank].offered >= 0) return;
      const std::int64_t start = start_of(rank);
      if (start < 0) return;
      places_[rank].offered = start;
      startable.emplace(start, options_.p2p == P2pStreams::pair && is_forward(head(rank)->op), rank);
    };
    for (std::size_t r = 0; r < items_.size(); ++r) offer(r);
    while (left > 0) {
      if (startable.empty()) throw ScheduleError(stuck());
      const auto [start, later, rank] = startable.top();
      startable.pop();
      if (places_[rank].offered != start) continue;
      const Item item = *head(rank);
      if (!startable.empty()) look_ahead(std::get<2>(startable.top()), 1);
      left -= emit(rank, start);
      look_ahead(rank, 3);
      // Offers what may start now: the rank itself, consumers of its output, its partner, and ranks
      // waiting for either.
      offer(rank);
      if (item.kind == Item::Kind::compute) {
        const std::size_t next = places_[rank].next;
        for (std::size_t i = item.joined ? next - 2 : next - 1; i < next; ++i) {
          const Action done = items_[rank][i].action();
          const int to = consumer(done) >= 0 ? rank_of(consumer(done), done.microbatch) : static_cast<int>(rank);
          if (to != static_cast<int>(rank)) offer(static_cast<std::size_t>(to));
        }
      } else {
        const std::size_t peer = peer_of(rank, item);
        look_ahead(peer, 3);
        offer(peer);
        offer_sender(peer, offer);
      }
      offer_sender(rank, offer);
    }
  }

  /// Offers the rank from which the next item of `rank` receives.
  template <class Offer>
  void offer_sender(std::size_t rank, const Offer& offer) {
    const Item* item = head(rank);
    if (item != nullptr && item->kind != Item::Kind::compute) offer(peer_of(rank, *item));
  }

  /// Loads what the rank's next `count` items will need.
  void look_ahead(std::size_t rank, std::size_t count) {
    const std::vector<Item>& items = items_[rank];
    const std::size_t next = places_[rank].next;
    for (std::size_t i = next; i < std::min(next + count, items.size()); ++i) {
      const Action action = items[i].action();
      const Cell& own = cell(action);
      if (i == next) {
        for (const BufferId buffer : {own.kept, own.released, own.stash}) builder_.prefetch(buffer);
      } else {
        tawpipe::detail::prefetch(&own);
        tawpipe::detail::prefetch(&own.stash);
      }
      if (has_input(action)) tawpipe::detail::prefetch(&slot(input(action)));
    }
  }

  const Item* head(std::size_t rank) const {
    return places_[rank].next < items_[rank].size() ? &items_[rank][places_[rank].next] : nullptr;
  }

  /// When the input of `action` is there, or -1 if it is not.
  std::int64_t ready_of(const Action& action) {
    return lacks_forward(action) ? -1 : has_input(action) ? slot(input(action)).ready : 0;
  }

  /// When the rank's next item can start, or -1 while it cannot. A receive starts with its send.
  std::int64_t start_of(std::size_t rank) {
    const Item* item = head(rank);
    if (item == nullptr || item->kind == Item::Kind::receive) return -1;
    const std::int64_t clock = places_[rank].clock;
    if (item->kind == Item::Kind::compute) {
      const std::int64_t ready = ready_of(item->action());
      if (!item->joined || ready < 0) return ready < 0 ? -1 : std::max(clock, ready);
      const std::int64_t partner = ready_of(item[1].action());
      return partner < 0 ? -1 : std::max({clock, ready, partner});
    }
    const std::size_t peer = peer_of(rank, *item);
    const Item* other = head(peer);
    if (other == nullptr) return -1;
    const bool matches = item->kind == Item::Kind::exchange
                             ? other->kind == Item::Kind::exchange && other[0].action() == item[1].action() &&
                                   other[1].action() == item[0].action()
                             : other->kind == Item::Kind::receive && other->action() == item->action();
    return matches ? std::max(clock, places_[peer].clock) : -1;
  }

  /// Emits the rank's next item and returns the number of items emitted.
  std::size_t emit(std::size_t rank, std::int64_t start) {
    Place& place = places_[rank];
    const Item* const item = head(rank);
    const Action action = item->action();
    place.offered = -1;
    if (item->kind == Item::Kind::compute) {
      const bool joined = item->joined;
      const Action partner = joined ? item[1].action() : Action{};
      const bool waits = joined && has_input(partner);
      TaskId last = emit_compute(static_cast<int>(rank), action, waits ? slot(input(partner)).arrived : none<TaskId>);
      place.next += joined ? 2 : 1;
      if (joined) last = emit_compute(static_cast<int>(rank), partner);
      place.clock = start + (joined ? 2 : 1);
      if (joined) hand_on(static_cast<int>(rank), partner, last);
      hand_on(static_cast<int>(rank), action, last);
      return joined ? 2 : 1;
    }
    Place& peer = places_[peer_of(rank, *item)];
    peer.offered = -1;
    peer.clock = place.clock = start;
    slot(action).ready = static_cast<std::int32_t>(start);
    const bool both = item->kind == Item::Kind::exchange;
    const Action returned = both ? item[1].action() : Action{};
    if (both) slot(returned).ready = static_cast<std::int32_t>(start);
    emit_transfer(action, both ? &returned : nullptr);
    place.next += both ? 2 : 1;
    peer.next += both ? 2 : 1;
    return both ? 4 : 2;
  }

  /// Sends the output of `action`, once task `done` has ended.
  void hand_on(int rank, const Action& action, TaskId done) {
    const int to = consumer(action);
    if (to < 0) return;
    const bool stays = rank_of(to, action.microbatch) == rank;
    if (stays || options_.overlap) {
      slot(message(action)).ready = static_cast<std::int32_t>(places_[static_cast<std::size_t>(rank)].clock);
    }
    if (!stays && options_.overlap) emit_transfer(action, nullptr, done);
  }

  /// @param after  dependencies in addition to its own input
  TaskId emit_compute(int rank, const Action& action, TaskId after = none<TaskId>) {
    const StageWork& work = builder_.stage(action.stage);
    const States& own = states(action.stage, rank);
    Cell& here = cell(action);
    uses_.clear();
    uses_.push_back(reads(own.weights));
    if (has_input(action)) uses_.push_back(reads(slot(input(action)).received));
    if (is_forward(action.op)) {
      const Bytes kept = kept_bytes(work);
      const Content saved = content(ContentKind::saved, action);
      uses_.push_back(writes(here.kept = builder_.transient(rank, saved, kept)));
      if (kept < work.saved) {
        uses_.push_back(writes(here.released = builder_.transient(rank, saved, work.saved - kept)));
      }
    } else {
      uses_.push_back(reads(here.kept));
      if (action.op == Op::backward_input && work.stash > Bytes{}) {
        uses_.push_back(writes(here.stash = builder_.transient(rank, content(ContentKind::stash, action), work.stash)));
      }
      if (action.op == Op::backward_weight && here.stash != none<BufferId>) uses_.push_back(reads(here.stash));
      if (action.op != Op::backward_weight && here.released != none<BufferId>) uses_.push_back(reads(here.released));
      if (action.op != Op::backward_input) uses_.push_back(adds_to(own.gradients));
    }
    if (task_workspaces_) add_task_workspace(builder_, action.op, rank, action.stage, uses_);
    const int to = consumer(action);
    if (to >= 0) {
      Slot& out = slot(message(action));
      const Content made = content(is_forward(action.op) ? ContentKind::activation : ContentKind::activation_gradient, action);
      out.sent = builder_.transient(rank, made, output_bytes(action));
      out.received = out.sent;
      uses_.push_back(writes(out.sent));
      const int there = rank_of(to, action.microbatch);
      if (there != rank) out.received = builder_.transient(there, made, output_bytes(action));
    }
    return builder_.add(compute(action.op, rank, action.stage, action.microbatch), uses_, std::span<const TaskId>{&after, 1});
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
    uses_.assign({reads(out.sent), writes(out.received)});
    if (returned != nullptr) {
      const Slot& back = slot(*returned);
      uses_.push_back(reads(back.sent));
      uses_.push_back(writes(back.received));
    }
    out.arrived = builder_.add(task, uses_, std::span<const TaskId>{&after, 1});
  }

  /// The gradients of a stage's two copies and those of tied parameters are summed; then everything
  /// is updated. Where the first and last stage are on one rank, it has the tied parameters once,
  /// and they need no sum.
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
      all_reduce(Payload::edge_gradients, -1, first, last, {workload.model().blocks().first_edge()},
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
    return !is_forward(action.op) && cells_[at(action.stage, action.microbatch)].kept == none<BufferId>;
  }

  /// Names a waiting rank: if possible one that waits for itself, not for another waiting rank.
  std::string stuck() const {
    std::size_t rank = items_.size();
    for (std::size_t r = items_.size(); r-- > 0;) {
      if (head(r) != nullptr) rank = r;
    }
    if (rank == items_.size()) return "the pipeline's program is empty";
    for (std::size_t r = items_.size(); r-- > 0;) {
      const Item* item = head(r);
      if (item != nullptr && item->kind == Item::Kind::compute && lacks_forward(item->action())) rank = r;
    }
    const Action action = head(rank)->action();
    return concat("the pipeline's program cannot go on: rank ", rank, " waits at ", tawpipe::name(action.op), " of stage ",
                  action.stage, ", microbatch ", action.microbatch, ", whose input no rank produces in the order given");
  }

  ScheduleBuilder builder_;
  PipelineLanes lanes_;
  PipelineOptions options_;
  bool task_workspaces_ = false;          ///< each computation has a workspace of its own
  std::vector<States> states_;            ///< [copy, stage]
  std::vector<Cell> cells_;               ///< [stage, microbatch]
  std::vector<std::vector<Item>> items_;  ///< [rank]
  std::vector<Place> places_;             ///< [rank]
  std::vector<Use> uses_;                 ///< of the task being emitted
};

}  // namespace tawpipe::schedules::detail
