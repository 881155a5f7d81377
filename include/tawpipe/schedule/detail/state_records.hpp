// What is kept of the messages with model states while they are added to a composition.
// Not: which of them there are (detail/state_messages.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/detail/composed_copies.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// A sum over the copies of a logical rank that hold the same part of the parameters of a class.
struct StateSum {
  Rank logical;
  ParameterClass of;
  int part;
  TaskId update;  ///< that it is for
  TaskId task;
};

/// The copies' buffers of gathered weights, or of a gradient that is not yet summed.
struct WholeState {
  BufferId first = none<BufferId>;  ///< of copy 0; the others follow
  int begun = 0;                    ///< copies whose gradient has been written to
  std::int64_t computation = -2;    ///< of its rank, the last that read it
  std::int32_t microbatch = -1;     ///< and its microbatch
};
/// What a logical rank did last.
struct RecentWork {
  std::int64_t computations = 0;
  /// the last computation but one, and the last
  std::array<TaskId, 2> done{none<TaskId>, none<TaskId>};
  std::array<std::vector<StateSum>, 2> sums;  ///< of its last two gradients
};

/// The parameters of several sets, in order.
inline std::vector<ParameterRange> together(const Schedule& schedule, const std::vector<PiecesId>& sets) {
  std::vector<ParameterRange> all;
  for (const PiecesId one : sets) {
    for (const ParameterRange& range : schedule.pieces(one)) append(all, range);
  }
  return all;
}

}  // namespace tawpipe::detail
