// What each rank of a pipeline computes, in order, before transfers are added.
// Not: the tasks made of it (pipeline.hpp) nor a particular pipeline's order (gpipe.hpp,
// zero_bubble.hpp, ...).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::schedules {

/// One computation in a rank's program.
struct Action {
  Op op = Op::forward;  ///< forward, backward, backward_input or backward_weight
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  /// Runs as one block with the next action, a forward with a backward: the block starts when the
  /// inputs of both are there, and sends both outputs at its end. It takes the sum of their times.
  /// Where transfers hold the compute lane they come between the two, which are then not a block
  /// (PipelineOptions::overlap off).
  bool joined = false;

  bool operator==(const Action&) const = default;
};

/// A pipeline before transfers are added. A microbatch passes each stage on the rank whose list
/// names it.
struct PipelineProgram {
  std::vector<int> rank_of_stage;            ///< [stage] the rank that holds it
  std::vector<std::vector<Action>> actions;  ///< [rank]
  /// [stage] the rank that holds a second copy of it, as bidirectional pipelines do; their
  /// gradients are summed at the end.
  /// Empty: there is one copy.
  std::vector<int> second_rank_of_stage = {};
  /// Of a saved activation, the part that backward_weight still needs when backward_input is done;
  /// the rest is released.
  Share kept = {};
};

/// Removes the microbatches from `microbatches` on. What is left keeps its order, so a program that
/// could run still can.
inline void keep_microbatches(PipelineProgram& program, std::int32_t microbatches) {
  for (auto& actions : program.actions) {
    const bool all =
        std::all_of(actions.begin(), actions.end(), [&](const Action& one) { return one.microbatch < microbatches; });
    if (all) continue;
    std::vector<Action> kept;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].microbatch >= microbatches) continue;
      kept.push_back(actions[i]);
      if (actions[i].joined && actions[i + 1].microbatch >= microbatches) kept.back().joined = false;
    }
    actions = std::move(kept);
  }
}

/// The peak number of saved activations that each rank holds, in stages' activations of one
/// microbatch: divide by the stages a rank has to get microbatches. Counted as zero-bubble papers
/// do, from a forward to the end of its backward or, in two halves, its backward_weight.
/// @return [rank]
inline std::vector<int> peak_saved(const PipelineProgram& program) {
  std::vector<int> peaks;
  for (const auto& actions : program.actions) {
    int held = 0;
    int most = 0;
    for (const Action& action : actions) {
      if (action.op == Op::forward) most = std::max(most, ++held);
      if (leaves_gradients(action.op)) --held;
    }
    peaks.push_back(most);
  }
  return peaks;
}

namespace detail {

/// Which rank each stage's microbatch passes on, [stage * microbatches + microbatch].
/// @throws ScheduleError  unless each microbatch occurs once forward and once backward, whole or in
/// two halves, on one rank that holds the stage.
inline std::vector<int> place_microbatches(const PipelineProgram& program, std::int64_t microbatches) {
  const std::size_t stages = program.rank_of_stage.size();
  struct Seen {
    int rank = -1;
    int forward = 0, backward = 0, input = 0, weight = 0;
  };
  std::vector<Seen> seen(stages * static_cast<std::size_t>(microbatches));
  const auto fail = [](std::size_t rank, const Action& action, const char* what) {
    throw ScheduleError(concat("the pipeline's program names ", tawpipe::name(action.op), " of stage ", action.stage,
                               ", microbatch ", action.microbatch, " on rank ", rank, ", ", what));
  };
  for (std::size_t r = 0; r < program.actions.size(); ++r) {
    for (const Action& action : program.actions[r]) {
      const auto s = static_cast<std::size_t>(action.stage);
      if (action.stage < 0 || s >= stages) fail(r, action, "a stage that does not exist");
      if (action.microbatch < 0 || action.microbatch >= microbatches) fail(r, action, "a microbatch that does not exist");
      const bool second = !program.second_rank_of_stage.empty() && program.second_rank_of_stage[s] == static_cast<int>(r);
      if (program.rank_of_stage[s] != static_cast<int>(r) && !second) fail(r, action, "which does not hold the stage");
      Seen& here = seen[s * static_cast<std::size_t>(microbatches) + static_cast<std::size_t>(action.microbatch)];
      if (here.rank >= 0 && here.rank != static_cast<int>(r)) fail(r, action, "which passes the stage on another rank too");
      here.rank = static_cast<int>(r);
      if (action.op == Op::forward) ++here.forward;
      if (action.op == Op::backward) ++here.backward;
      if (action.op == Op::backward_input) ++here.input;
      if (action.op == Op::backward_weight) ++here.weight;
    }
  }
  std::vector<int> ranks;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const Seen& here = seen[i];
    if (here.forward != 1 || here.backward + here.input != 1 || here.input != here.weight) {
      throw ScheduleError(concat("the pipeline's program must name stage ", i / static_cast<std::size_t>(microbatches),
                                 ", microbatch ", i % static_cast<std::size_t>(microbatches),
                                 " once forward and once backward, but has ", here.forward, " forward, ", here.backward,
                                 " backward, ", here.input, " backward_input and ", here.weight, " backward_weight"));
    }
    ranks.push_back(here.rank);
  }
  return ranks;
}

}  // namespace detail

}  // namespace tawpipe::schedules
