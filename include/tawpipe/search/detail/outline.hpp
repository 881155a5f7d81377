// A pipeline's schedule without sizes: what each rank computes and sends, in order, and what it
// keeps meanwhile. One outline gives the times of all layouts on which stages run so.
// Not: how long anything takes (pipeline_price.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Read from a schedule of one replica, with few microbatches.
struct Outline {
  /// A computation, or a message between two ranks. Later steps of a lane wait for it.
  struct Step {
    Op op = Op::forward;
    std::int32_t stage = -1;
    std::int32_t message = -1;  ///< in `messages`; -1: a computation
    std::int32_t lane = 0;      ///< of all ranks' lanes
    std::int32_t peer_lane = 0;
    std::uint32_t after = 0;  ///< the end of what it waits for, in Outline::after; it begins where the step before ends
  };
  /// Who sends activations or their gradients to whom.
  struct Message {
    Rank from{};
    Rank to{};
    StageId stage{};
    bool operator==(const Message&) const = default;
  };
  /// What a rank holds between two of its computations, both included: a part of what its stage saves,
  /// stashes or sends.
  struct Kept {
    std::int32_t rank = 0;
    std::int32_t stage = 0;
    ContentKind kind = ContentKind::saved;
    float part = 1;
    std::int32_t first = 0;
    std::int32_t last = 0;
  };
  /// A stage on a rank, which has its states.
  struct Held {
    std::int32_t rank = 0;
    std::int32_t stage = 0;
    std::int32_t first = -1;  ///< its first computation there, in `steps`
    std::int32_t last = -1;   ///< the last one that adds to its gradients
  };

  int ranks = 0;
  int lanes = 0;
  std::vector<StageWork> stages;  ///< of the schedule that it was read from
  std::vector<Step> steps;
  std::vector<std::int32_t> after;
  std::vector<Message> messages;
  std::vector<Kept> kept;
  std::vector<Held> held;                  ///< in the order of their last computations
  std::vector<std::int32_t> computations;  ///< [rank]
  bool copies = false;                     ///< a stage is held by two ranks, whose gradients are summed
  bool splits_backward = false;

  /// @pre its schedule is a pipeline's: stages stay where they are
  explicit Outline(const Schedule& logical);

 private:
  void add_kept(const Schedule& logical);
};

inline Outline::Outline(const Schedule& logical)
    : ranks{logical.ranks()},
      lanes{static_cast<int>(logical.lanes().size())},
      stages{logical.stages().begin(), logical.stages().end()},
      computations(static_cast<std::size_t>(logical.ranks()), 0) {
  for (StageWork& stage : stages) stage.kernels.clear();
  std::vector<std::int32_t> step_of(logical.tasks().size(), -1);
  // Few for each stage.
  std::vector<std::vector<std::int32_t>> messages_to(stages.size());
  std::vector<std::vector<std::int32_t>> holders(stages.size());
  const auto place = [](std::vector<std::int32_t>& few, auto& all, auto&& is_it) {
    for (const std::int32_t one : few) {
      if (is_it(all[static_cast<std::size_t>(one)])) return one;
    }
    few.push_back(static_cast<std::int32_t>(all.size()));
    all.emplace_back();
    return few.back();
  };
  const auto lane_of = [&](Rank rank, LaneId lane) { return number(rank) * lanes + number(lane); };
  for (std::size_t t = 0; t < logical.tasks().size(); ++t) {
    const Task& task = logical.tasks()[t];
    const bool sends = is_point_to_point(task.op) && is_of_tokens(task.payload);
    if (!is_stage_work(task.op) && !sends) continue;
    step_of[t] = static_cast<std::int32_t>(steps.size());
    Step step{.op = task.op, .stage = number(task.stage), .lane = lane_of(task.rank, task.lane)};
    step.peer_lane = step.lane;
    if (sends) {
      const Message message{task.rank, task.peer, task.stage};
      step.message = place(messages_to[index(task.stage)], messages, [&](const Message& one) { return one == message; });
      messages[static_cast<std::size_t>(step.message)] = message;
      step.peer_lane = lane_of(task.peer, task.peer_lane);
    } else {
      splits_backward = splits_backward || task.op == Op::backward_weight;
      const auto is_it = [&](const Held& one) { return one.rank == number(task.rank); };
      Held& one = held[static_cast<std::size_t>(place(holders[index(task.stage)], held, is_it))];
      if (one.first < 0) one = {number(task.rank), step.stage, step_of[t]};
      if (leaves_gradients(task.op)) one.last = step_of[t];
    }
    for (const TaskId earlier : logical.dependencies(id<TaskId>(t))) {
      if (step_of[index(earlier)] >= 0) after.push_back(step_of[index(earlier)]);
    }
    step.after = static_cast<std::uint32_t>(after.size());
    steps.push_back(step);
  }
  std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.last < b.last; });
  std::vector<char> seen(stages.size(), 0);
  for (const Held& one : held) copies = copies || std::exchange(seen[static_cast<std::size_t>(one.stage)], char{1}) != 0;
  add_kept(logical);
}

inline void Outline::add_kept(const Schedule& logical) {
  struct Life {
    std::int32_t first = std::numeric_limits<std::int32_t>::max();
    std::int32_t last = -1;
  };
  std::vector<Life> lives(logical.buffers().size());
  for (std::size_t t = 0; t < logical.tasks().size(); ++t) {
    const Task& task = logical.tasks()[t];
    if (!is_stage_work(task.op)) continue;
    const std::int32_t now = computations[index(task.rank)]++;
    for (const Use& use : logical.uses(id<TaskId>(t))) {
      if (logical.buffer(use.buffer).rank != task.rank) continue;
      Life& life = lives[index(use.buffer)];
      life = {std::min(life.first, now), std::max(life.last, now)};
    }
  }
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const Buffer& buffer = logical.buffers()[b];
    const ContentKind kind = buffer.content.kind();
    if (buffer.persistent || lives[b].last < 0 || !is_of_microbatch(kind) || buffer.content.stage() == none<StageId>) continue;
    const StageWork& stage = stages[index(buffer.content.stage())];
    const Bytes whole = kind == ContentKind::saved ? stage.saved : kind == ContentKind::stash ? stage.stash : stage.boundary;
    if (whole <= Bytes{}) continue;
    kept.push_back({number(buffer.rank), number(buffer.content.stage()), kind, static_cast<float>(buffer.bytes / whole),
                    lives[b].first, lives[b].last});
  }
}

}  // namespace tawpipe::inline v0::detail
