// Where a pipeline's computations get their inputs from and hand their outputs to, and how much a
// schedule of them holds.
// Not: when they run (schedules/pipeline.hpp) nor which exchanges there are (pipeline_items.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedule/task_workspace.hpp"
#include "tawpipe/schedules/detail/pipeline_items.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// A program's stages and microbatches, the ranks on which they meet, and how computations depend
/// on each other.
class PipelineRoutes {
 public:
  /// @throws ScheduleError  if the program is not complete.
  PipelineRoutes(PipelineProgram program, std::int64_t microbatches)
      : program_{std::move(program)},
        stages_{static_cast<int>(program_.rank_of_stage.size())},
        microbatches_{static_cast<std::int32_t>(microbatches)},
        ranks_{place_microbatches(program_, microbatches)} {
    if (program_.second_rank_of_stage.empty()) ranks_ = {};  // the stage determines it
  }

 protected:
  std::size_t slots() const { return static_cast<std::size_t>(stages_) * static_cast<std::size_t>(microbatches_); }
  int rank_of(int stage, std::int32_t microbatch) const {
    return ranks_.empty() ? program_.rank_of_stage[static_cast<std::size_t>(stage)] : ranks_[at(stage, microbatch)];
  }
  static bool is_forward(Op op) { return op == Op::forward; }
  static bool sends_back(Op op) { return op == Op::backward || op == Op::backward_input; }
  std::size_t at(int stage, std::int32_t microbatch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(microbatches_) + static_cast<std::size_t>(microbatch);
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
  /// The rank at the other end of the transfer.
  std::size_t peer_of(std::size_t rank, const PipelineItem& transfer) const {
    const Action message = transfer.action();
    const auto from = static_cast<std::size_t>(rank_of(message.stage, message.microbatch));
    return from != rank ? from : static_cast<std::size_t>(rank_of(consumer(message), message.microbatch));
  }

  /// The action as a message's name: the two forms of backward that send count as one.
  static Action message(const Action& action) {
    return {is_forward(action.op) ? Op::forward : Op::backward, action.stage, action.microbatch};
  }

  Bytes kept_bytes(const StageWork& work) const { return work.saved * program_.kept.numerator / program_.kept.denominator; }

  /// The steps of a rank, made from its actions, which are removed. @param overlap  off: with its
  /// ends of transfers
  std::vector<PipelineItem> take_items(int rank, bool overlap) {
    using Kind = PipelineItem::Kind;
    const std::vector<Action> actions = std::exchange(program_.actions[static_cast<std::size_t>(rank)], {});
    std::vector<PipelineItem> items;
    items.reserve(actions.size());
    for (Action action : actions) {
      action.joined = action.joined && overlap;
      const int from = has_input(action) ? rank_of(input(action).stage, action.microbatch) : rank;
      if (!overlap && from != rank) items.emplace_back(Kind::receive, input(action));
      items.emplace_back(Kind::compute, action);
      const int to = consumer(action) >= 0 ? rank_of(consumer(action), action.microbatch) : rank;
      if (!overlap && to != rank) items.emplace_back(Kind::send, message(action));
    }
    return items;
  }

  /// All that the steps of `items` and the end of an iteration add.
  /// @param works  [stage]
  /// @param workspaces  each computation has one of its own
  ScheduleBuilder::Sizes sizes(const std::vector<std::vector<PipelineItem>>& items, const std::vector<StageWork>& works,
                               bool workspaces) const {
    using Kind = PipelineItem::Kind;
    const std::size_t copies = program_.second_rank_of_stage.size();
    const std::size_t held = program_.rank_of_stage.size() + copies;
    ScheduleBuilder::Sizes all{.tasks = held + copies, .uses = 3 * held + 2 * copies, .buffers = 3 * held + items.size()};
    std::size_t exchange_ends = 0;
    for (std::size_t r = 0; r < items.size(); ++r) {
      for (const PipelineItem& item : items[r]) {
        if (item.kind == Kind::exchange) ++exchange_ends;
        if (item.kind != Kind::compute) continue;
        const Action action = item.action();
        const StageWork& work = works[static_cast<std::size_t>(action.stage)];
        const bool releases = kept_bytes(work) < work.saved;
        const bool stashes = work.stash > Bytes{};
        ++all.tasks;
        all.uses += has_input(action) ? 3 : 2;
        if (workspaces && workspace_of(work, action.op) > Bytes{}) {
          ++all.uses;
          ++all.buffers;
        }
        if (is_forward(action.op)) {
          all.uses += releases ? 1 : 0;
          all.buffers += releases ? 2 : 1;
        } else {
          if (action.op != Op::backward_weight && releases) ++all.uses;
          if (action.op != Op::backward && stashes) ++all.uses;
          if (action.op == Op::backward_input && stashes) ++all.buffers;
          if (action.op != Op::backward_input) ++all.uses;
        }
        const int to = consumer(action);
        if (to < 0) continue;
        const bool leaves = rank_of(to, action.microbatch) != static_cast<int>(r);
        all.tasks += leaves ? 1 : 0;
        all.uses += leaves ? 3 : 1;
        all.buffers += leaves ? 2 : 1;
      }
    }
    all.tasks -= exchange_ends / 2;
    return all;
  }

  bool splits_backwards() const {
    for (const std::vector<Action>& actions : program_.actions) {
      for (const Action& action : actions) {
        if (action.op == Op::backward_input) return true;
      }
    }
    return false;
  }

  PipelineProgram program_;
  int stages_;
  std::int32_t microbatches_;
  std::vector<int> ranks_;  ///< [stage, microbatch] the rank it passes on; empty: that of its stage
};

}  // namespace tawpipe::schedules::detail
