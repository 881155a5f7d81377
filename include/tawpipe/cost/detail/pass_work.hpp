// The part of a stage's work in a computation's passes, for cost models that charge operations and
// traffic.
// Not: rates (cost/roofline.hpp, cost/kernel_cost.hpp).
#pragma once

#include "tawpipe/core/units.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::detail {

struct PassWork {
  Flops flops;
  Bytes traffic;  ///< of device memory
};

/// The operations and the memory-bound traffic of one microbatch, recomputation with the gradients
/// of inputs.
inline PassWork pass_work(const StageWork& work, const Passes& passes) {
  PassWork sum;
  if (passes.forward) sum = {work.forward, work.forward_traffic};
  if (passes.backward_input) sum = {work.recompute + work.backward_input, work.backward_traffic};
  if (passes.backward_weight) sum.flops = sum.flops + work.backward_weight;
  return sum;
}

}  // namespace tawpipe::detail
