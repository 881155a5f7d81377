// What buffers hold when tasks use them (V5xx), and whether every update sees the whole gradient once (V703 to V707).
// Not: data in no order at all (verify/check_races.hpp), nor tasks that are missing (verify/check_completeness.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/contents_walk.hpp"
#include "tawpipe/verify/detail/message_sizes.hpp"
#include "tawpipe/verify/detail/transfer_walk.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Checks the updates during a walk, and what is left at its end.
class UpdateCheck {
 public:
  UpdateCheck(const Schedule& schedule, ContentsWalk& walk)
      : schedule_{schedule}, walk_{walk}, updates_(schedule.buffers().size(), 0) {}

  void update(TaskId t) {
    const Task& task = schedule_.task(t);
    Held found;
    found.holds = Holds::gradient;
    bool unwritten = false;
    BufferId weights = none<BufferId>;
    BufferId optimizer = none<BufferId>;
    std::int64_t over_copies = 0;
    for (const Use& use : schedule_.uses(t)) {
      const Buffer& buffer = schedule_.buffer(use.buffer);
      const bool gradient = buffer.kind() == BufferKind::gradients || buffer.kind() == BufferKind::transfer;
      if (buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::optimizer) {
        // Weights may be written anew: the optimizer states have a copy of full precision.
        const bool anew = buffer.kind() == BufferKind::weights && use.access == Access::write;
        const bool changed = anew || use.access == Access::read_write;
        if (changed) ++updates_[index(use.buffer)];
        if (changed && buffer.kind() == BufferKind::weights) weights = use.buffer;
        if (changed && buffer.kind() == BufferKind::optimizer) optimizer = use.buffer;
        continue;
      }
      if (!gradient || use.access == Access::write || use.access == Access::accumulate) {
        if (buffer.kind() != BufferKind::workspace) walk_.overwrites(t, use);
        continue;
      }
      const Held& content = walk_.look(t, use);
      unwritten = unwritten || content.holds == Holds::nothing;
      over_copies += content.over_copies;
      found.sum += content.sum;
      found.edge_sum += content.edge_sum;
      found.contributions += content.contributions;
      found.scattered = found.scattered || content.scattered;
      if (!walk_.partial_sums().contains(use.buffer)) continue;
      walk_.error(
          "V703", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " sees a gradient of which pieces are missing, or have been added twice");
          },
          "bring each piece of a sum to the owner once, before its update");
    }
    if (weights == none<BufferId>) {
      walk_.error(
          "V707", t, task.rank, [&] { return concat(describe(schedule_, t), " changes no weights"); },
          "name the weights that it updates");
      return;
    }
    const StageId stage = schedule_.buffer(weights).stage();
    if (task.stage != stage) {
      walk_.error(
          "V507", t, task.rank, [&] { return concat(describe(schedule_, t), " updates ", describe(schedule_, weights)); },
          "give the update the stage of its weights");
    }
    if (!unwritten) compare(t, stage, found);
    Held& content = walk_[weights];
    content.updated = true;
    const std::int64_t updated = parameters(optimizer);
    const std::int64_t needed = updated * walk_.layout().gradient - walk_.layout().rounding();
    if (over_copies > 0 && over_copies < needed) {
      walk_.error(
          "V305", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " needs ", needed, " bytes of a sum over replicas that moved ", over_copies);
          },
          "let the message be as large as what it carries");
    }
    const bool all =
        stage != none<StageId> && updated + walk_.layout().lost() >= walk_.layout().own_parameters(schedule_.stage(stage));
    if (found.scattered && all && updated > 0) {
      walk_.error(
          "V703", t, task.rank,
          [&] { return concat(describe(schedule_, t), " sees a sum over all ranks in a piece of its gradient only"); },
          "gather the pieces of a scattered sum before an update of all of it");
    }
    if (updated == 0 || updated + walk_.layout().lost() >= parameters(weights)) return;
    content.pieces = walk_.pieces().only(Rank{walk_.layout().place(task.rank).logical});
    partly_.push_back({weights, updated});
  }

  /// Weights and optimizer states that no update has changed, or more than one.
  void finish(Diagnostics& out) {
    stale(out);
    for (std::size_t b = 0; b < updates_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      const bool states = buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::optimizer;
      if (!buffer.persistent || !states || updates_[b] == 1) continue;
      if (buffer.kind() == BufferKind::optimizer && buffer.bytes == Bytes{}) continue;
      const bool never = updates_[b] == 0;
      out.error(
          never ? "V705" : "V706", none<TaskId>, buffer.rank,
          [&] {
            return concat(describe(schedule_, id<BufferId>(b)), never ? " is never updated" : " is updated ",
                          never ? "" : concat(updates_[b], " times"));
          },
          "every rank updates what it owns once, reading and writing the optimizer states in place");
    }
  }

 private:
  struct Sums {
    std::uint64_t sum = 0;
    std::uint64_t edge_sum = 0;
    std::uint64_t other_edge_sum = 0;  ///< as good as edge_sum
    std::int64_t contributions = 0;
    bool known = false;
  };

  /// How many parameters the buffer has, by its bytes; 0 if that cannot be told.
  std::int64_t parameters(BufferId b) const {
    if (b == none<BufferId>) return 0;
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    const Buffer& buffer = schedule_.buffer(b);
    const std::int64_t each = buffer.kind() == BufferKind::optimizer ? bytes.optimizer : bytes.weight;
    return each == 0 ? 0 : buffer.bytes.value() / each;
  }

  /// Weights of which the rank updates a part, and that the others' parts have not reached at the end.
  void stale(Diagnostics& out) {
    std::map<std::pair<StageId, std::int32_t>, std::int64_t> parts;  // parameters by stage and owner
    for (const Part& part : partly_) {
      const Buffer& buffer = schedule_.buffer(part.weights);
      parts[{buffer.stage(), walk_.layout().place(buffer.rank).logical}] = part.updated;  // alike on all copies
    }
    for (const Part& part : partly_) {
      const Buffer& buffer = schedule_.buffer(part.weights);
      const std::int64_t needed = parameters(part.weights);
      std::int64_t got = 0;
      for (const std::int32_t owner : walk_.pieces().members(walk_[part.weights].pieces)) {
        got += parts[{buffer.stage(), owner}] + walk_.layout().lost();
      }
      if (got >= needed) continue;
      out.error(
          "V709", none<TaskId>, buffer.rank,
          [&] { return concat(describe(schedule_, part.weights), " ends with ", got, " of ", needed, " parameters updated"); },
          "gather the updated weights from the ranks that updated them");
    }
  }

  /// Every microbatch's contribution to one tensor-parallel rank's part, from all tokens.
  std::uint64_t over_microbatches(std::int64_t stage, int tensor) const {
    std::uint64_t sum = 0;
    for (std::int64_t m = 0; m < schedule_.workload().microbatches(); ++m) {
      for (int c = 0; c < walk_.layout().context; ++c) sum += walk_.layout().contribution(stage, m, tensor, c);
    }
    return sum;
  }

  /// The sum that an update of weights of `stage` (none: of no one stage) must see.
  const Sums& expected(StageId stage, int tensor) {
    const ModelLayout& layout = walk_.layout();
    const std::size_t stages = schedule_.stages().size() + 1;
    if (expected_.empty()) expected_.resize(stages * static_cast<std::size_t>(layout.tensor));
    Sums& sums = expected_[(stage == none<StageId> ? stages - 1 : index(stage)) + stages * static_cast<std::size_t>(tensor)];
    if (sums.known) return sums;
    sums.known = true;
    const auto covers = [&](std::size_t s) { return stage == none<StageId> ? layout.owned[s] == 0 : s == index(stage); };
    for (std::size_t s = 0; s < schedule_.stages().size(); ++s) {
      if (!covers(s)) continue;
      sums.contributions += schedule_.workload().microbatches() * layout.context;
      if (schedule_.stages()[s].parameters > 0) sums.sum += over_microbatches(static_cast<std::int64_t>(s), tensor);
    }
    const auto has_edge = [&](std::int32_t s) { return schedule_.stages()[static_cast<std::size_t>(s)].edge_parameters > 0; };
    const auto edge = [&](std::int32_t s, std::int64_t contribution) {
      const bool here = layout.edge_copies ? stage == none<StageId> : covers(static_cast<std::size_t>(s));
      return here && has_edge(s) ? over_microbatches(contribution, tensor) : 0;
    };
    const std::uint64_t first = edge(layout.embedding, embedding_stage);
    const std::uint64_t last = edge(layout.head, head_stage);
    sums.edge_sum = sums.other_edge_sum = first + last;
    const Workload& workload = schedule_.workload();
    if (stage == none<StageId> || workload.is_abstract() || !workload.model().tied || (first == 0) == (last == 0)) return sums;
    // A tied matrix whose two copies lie on different ranks has its two gradients summed; on one rank it may be one matrix.
    const std::uint64_t both = over_microbatches(embedding_stage, tensor) + over_microbatches(head_stage, tensor);
    if (layout.lent) {
      if (first != 0) sums.edge_sum = sums.other_edge_sum = both;
      return sums;
    }
    if (!on_one_rank(layout.embedding, layout.head)) sums.edge_sum = both;
    sums.other_edge_sum = both;
    return sums;
  }

  bool on_one_rank(std::int32_t a, std::int32_t b) const {
    std::vector<char> holds_a(static_cast<std::size_t>(schedule_.ranks()), 0);
    std::vector<char> holds_b = holds_a;
    for (const Buffer& buffer : schedule_.buffers()) {
      if (!buffer.persistent || buffer.kind() != BufferKind::weights) continue;
      if (number(buffer.stage()) == a) holds_a[index(buffer.rank)] = 1;
      if (number(buffer.stage()) == b) holds_b[index(buffer.rank)] = 1;
    }
    for (std::size_t r = 0; r < holds_a.size(); ++r) {
      if (holds_a[r] != 0 && holds_b[r] != 0) return true;
    }
    return false;
  }

  void compare(TaskId t, StageId stage, const Held& found) {
    // With more microbatches than tasks most are missing, and their sum would take too long.
    if (schedule_.workload().microbatches() > static_cast<std::int64_t>(schedule_.tasks().size())) return;
    const int tensor = walk_.layout().place(schedule_.task(t).rank).tensor;
    const Sums& sums = expected(stage, tensor);
    const bool edge_fits = found.edge_sum == sums.edge_sum || found.edge_sum == sums.other_edge_sum;
    if (found.sum == sums.sum && edge_fits) return;
    const Rank rank = schedule_.task(t).rank;
    const bool parts = found.sum != sums.sum;
    const std::int64_t missing = sums.contributions - found.contributions;
    walk_.error(
        parts && missing <= 0 ? "V704" : "V703", t, rank,
        [&] {
          if (!parts) return concat(describe(schedule_, t), " sees an incomplete gradient of embedding or head");
          return concat(describe(schedule_, t), " sees a gradient of ", found.contributions, " contributions instead of ",
                        sums.contributions, single(stage, tensor, sums.sum - found.sum));
        },
        parts && missing <= 0 ? "let each backward's gradient arrive once; a buffer holding an old sum may have been added again"
                              : "bring the gradient of every microbatch into the owner's sum before its update");
  }

  /// Names the one contribution that explains the difference of two sums, if one does.
  std::string single(StageId stage, int tensor, std::uint64_t difference) const {
    const ModelLayout& layout = walk_.layout();
    for (std::size_t s = 0; s < schedule_.stages().size(); ++s) {
      if (stage != none<StageId> && s != index(stage)) continue;
      for (std::int64_t m = 0; m < schedule_.workload().microbatches(); ++m) {
        for (int c = 0; c < layout.context; ++c) {
          const std::uint64_t one = layout.contribution(static_cast<std::int64_t>(s), m, tensor, c);
          if (difference != one && difference != ~one + 1) continue;
          return concat(": stage ", s, ", microbatch ", m, layout.context > 1 ? concat(", context rank ", c) : "",
                        difference == one ? " is missing" : " counts twice");
        }
      }
    }
    return {};
  }

  const Schedule& schedule_;
  ContentsWalk& walk_;
  std::vector<std::uint32_t> updates_;  ///< [buffer] of weights and optimizer states
  struct Part {
    BufferId weights;
    std::int64_t updated;  ///< parameters
  };
  std::vector<Part> partly_;    ///< updates of less than their weights
  std::vector<Sums> expected_;  ///< [tensor-parallel rank][stage], then of no stage
};

/// Activations that a task writes and none reads.
inline void check_unread(const Schedule& schedule, Diagnostics& out) {
  std::vector<TaskId> writer(schedule.buffers().size(), none<TaskId>);
  std::vector<char> read(schedule.buffers().size(), 0);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      if (use.access == Access::read || use.access == Access::read_write) read[index(use.buffer)] = 1;
      if (use.access != Access::read) writer[index(use.buffer)] = id<TaskId>(t);
    }
  }
  for (std::size_t b = 0; b < read.size(); ++b) {
    const Buffer& buffer = schedule.buffers()[b];
    if (buffer.persistent || buffer.kind() != BufferKind::activations || read[b] != 0 || writer[b] == none<TaskId>) continue;
    out.error(
        "V509", writer[b], buffer.rank,
        [&] {
          return concat(describe(schedule, writer[b]), " fills ", describe(schedule, id<BufferId>(b)), ", which nothing reads");
        },
        "let the backward read what its forward saved, and the next stage what this one hands on");
  }
}

}  // namespace detail

/// Runs `schedule` on symbols and adds what does not fit: reads of nothing, weights of another stage, missing pieces, wrong
/// activations, gradients that are incomplete, doubled or foreign at their update.
///
/// Weights carry the stage and the owners whose pieces they have, activations their stage and microbatch, gradients a sum of
/// random numbers, one for each stage and microbatch (detail/contents.hpp). Where no two tasks race, every order of running
/// gives what this one gives.
/// @param order  all tasks, each after what it waits for (check_cycles gives one)
/// Complexity: O(uses + buffers + stages * microbatches).
inline void check_contents(const Schedule& schedule, std::span<const TaskId> order, Diagnostics& out) {
  detail::ContentsWalk walk{schedule, out};
  detail::TransferWalk transfers{schedule, walk};
  detail::UpdateCheck updates{schedule, walk};
  for (const TaskId t : order) {
    const Op op = schedule.task(t).op;
    if (op == Op::update) {
      updates.update(t);
    } else if (is_work(op)) {
      walk.compute(t);
    } else if (!is_compute(op)) {
      transfers.run(t);
    }
  }
  transfers.finish();
  updates.finish(out);
  detail::check_pieces(schedule, walk.layout(), out);
  detail::check_unread(schedule, out);
}

}  // namespace tawpipe
