// The workspace that a computation of a stage needs while it runs.
// Not: whose buffer it is (schedules/common.hpp, execute/detail/dataflow_builder.hpp).
#pragma once

#include <algorithm>

#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0 {

/// Of a forward, a backward, or one of its halves by itself: a backward_weight needs none.
inline Bytes workspace_of(const StageWork& stage, Op op) {
  const Passes passes = traits(op).passes;
  Bytes most;
  if (passes.forward) most = stage.forward_workspace;
  if (passes.backward_input) most = std::max(most, passes.backward_weight ? stage.backward_workspace : stage.input_workspace());
  return most;
}

}  // namespace tawpipe
