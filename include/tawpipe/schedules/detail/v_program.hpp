// The orders of V-Half and V-Min, from the places of one microbatch's computations.
// Not: orders that wait for nothing but messages (schedules/zero_bubble_v.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/schedules/detail/slots.hpp"
#include "tawpipe/schedules/detail/v_shape.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// A building block on a grid of equal slots: one microbatch's path down the first stages, up the
/// second ones, and back. It repeats every six slots, so a rank's four computations need four
/// different slots modulo six; the two backward_weights take the other two. The lifetime of a
/// stage's activation determines how many are live at once.
struct VBlock {
  int down = 1;             ///< slots from one rank to the next, forward down
  int up = 1;               ///< forward up
  int back_down = 1;        ///< backward down
  int back_up = 1;          ///< backward up
  int turn[3] = {0, 0, 0};  ///< waiting slots where one pass ends and the next begins
  int period = 6;

  /// The slots on `rank`: first forward, second forward, second backward, first backward.
  std::vector<std::int64_t> slots(int rank, int ranks) const {
    const std::int64_t far = ranks - 1;
    const std::int64_t first = std::int64_t{down} * rank;
    const std::int64_t second = down * far + 1 + turn[0] + up * (far - rank);
    const std::int64_t back = (down + up) * far + 2 + turn[0] + turn[1] + std::int64_t{back_down} * rank;
    const std::int64_t last = (down + up + back_down) * far + 3 + turn[0] + turn[1] + turn[2] + back_up * (far - rank);
    return {first, second, back, last};
  }

  bool repeats(int ranks) const {
    for (int r = 0; r < ranks; ++r) {
      const auto own = slots(r, ranks);
      for (std::size_t i = 0; i < own.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if ((own[i] - own[j]) % period == 0) return false;
        }
      }
    }
    return true;
  }

  /// Adds the least waiting for which the block can repeat on each of `ranks` ranks.
  void settle(int ranks) {
    for (int sum = 0; sum <= 3 * (period - 1); ++sum) {
      for (turn[0] = 0; turn[0] <= sum; ++turn[0]) {
        for (turn[1] = 0; turn[0] + turn[1] <= sum; ++turn[1]) {
          turn[2] = sum - turn[0] - turn[1];
          if (repeats(ranks)) return;
        }
      }
    }
    throw ScheduleError(concat("no building block of this shape repeats every ", period, " slots on ", ranks, " ranks"));
  }
};

/// Repeats the block for each microbatch and lets everything start as early as the order allows. A
/// backward_weight is placed where a rank would wait, or before a forward that finds `limit`
/// activations of a stage held.
inline PipelineProgram v_program(int ranks, std::int32_t microbatches, VBlock block, int limit) {
  block.settle(ranks);
  PipelineProgram program;
  place_v(program, ranks);
  struct Drawn {
    std::int64_t slot;
    int rank;
    Action action;
  };
  std::vector<Drawn> drawn;
  for (int r = 0; r < ranks; ++r) {
    const auto slots = block.slots(r, ranks);
    for (std::int32_t m = 0; m < microbatches; ++m) {
      for (std::size_t i = 0; i < 4; ++i) {
        const int stage = i == 0 || i == 3 ? r : 2 * ranks - 1 - r;
        const Op op = i < 2 ? Op::forward : Op::backward_input;
        drawn.push_back({slots[i] + std::int64_t{block.period} * m, r, {op, stage, m}});
      }
    }
  }
  std::sort(drawn.begin(), drawn.end(),
            [](const Drawn& a, const Drawn& b) { return a.slot != b.slot ? a.slot < b.slot : a.rank < b.rank; });

  struct Line {
    std::int64_t clock = 0;
    int held = 0;
    std::size_t weights = 0;
    std::vector<Action> waiting;
  };
  std::vector<Line> lines(static_cast<std::size_t>(ranks));
  program.actions.resize(lines.size());
  const int stages = 2 * ranks;
  std::vector<std::int64_t> arrived(static_cast<std::size_t>(stages) * 2 * static_cast<std::size_t>(microbatches));
  const auto end_of = [&](const Action& action, int stage) -> std::int64_t& {
    const std::size_t way = action.op == Op::forward ? 0 : static_cast<std::size_t>(stages);
    return arrived[(way + static_cast<std::size_t>(stage)) * static_cast<std::size_t>(microbatches) +
                   static_cast<std::size_t>(action.microbatch)];
  };
  for (const auto& [slot, rank, action] : drawn) {
    Line& line = lines[static_cast<std::size_t>(rank)];
    auto& actions = program.actions[static_cast<std::size_t>(rank)];
    const bool forward = action.op == Op::forward;
    const int before = forward ? action.stage - 1 : action.stage + 1;
    const std::int64_t there = before < 0 || before == stages ? 0 : end_of(action, before);
    while (line.weights < line.waiting.size() && (line.clock < there || (forward && line.held >= limit))) {
      actions.push_back(line.waiting[line.weights++]);
      --line.held;
      ++line.clock;
    }
    line.clock = std::max(line.clock, there) + 1;
    end_of(action, action.stage) = line.clock;
    actions.push_back(action);
    if (forward) {
      ++line.held;
    } else {
      line.waiting.push_back({Op::backward_weight, action.stage, action.microbatch});
    }
  }
  for (std::size_t r = 0; r < lines.size(); ++r) {
    auto& actions = program.actions[r];
    actions.insert(actions.end(), lines[r].waiting.begin() + static_cast<std::ptrdiff_t>(lines[r].weights),
                   lines[r].waiting.end());
  }
  return program;
}

}  // namespace tawpipe::schedules::detail
