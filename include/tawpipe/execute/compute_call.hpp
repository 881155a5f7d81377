// A forward or a backward with all its arguments, resolved once from the addresses of its buffers.
// Not: the choice of buffers (execute/dataflow.hpp) nor the computation
// (backend/layer_compute.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedule/task_workspace.hpp"

namespace tawpipe::inline v0 {

/// The same in each iteration, except for the contents of its memory.
struct ComputeCall {
  Op op = Op::forward;
  ForwardArgs forward;                        ///< for a forward
  BackwardArgs backward;                      ///< for other computations
  std::vector<std::span<std::byte>> cleared;  ///< gradients to set to zero first
  StepPlan steps;                             ///< of a stage that ranks share

  template <LayerCompute Layer>
  void run(Layer& layer) const {
    const Passes passes = traits(op).passes;
    if (passes.forward) return layer.forward(forward);
    if (!passes.backward_weight) return layer.backward_input(backward);
    if (!passes.backward_input) return layer.backward_weight(backward);
    layer.backward(backward);
  }
  /// A step of a body, or the memory of one that is a collective.
  template <SharedLayerCompute Layer>
  void run_step(Layer& layer, std::size_t step) const {
    if (steps.passes.forward) return layer.run(steps, step, forward);
    layer.run(steps, step, backward);
  }
  template <SharedLayerCompute Layer>
  ExchangeArgs exchange(const Layer& layer, std::size_t step) const {
    return steps.passes.forward ? layer.exchange(steps, step, forward) : layer.exchange(steps, step, backward);
  }
};

/// The workspace that a rank's computations without one of their own share.
inline Bytes shared_workspace(const Schedule& schedule, const Dataflow& flow, const Program& program) {
  Bytes most;
  for (int lane = 0; lane < program.lanes(); ++lane) {
    for (const Launch& launch : program.lane(lane)) {
      const Task& task = schedule.task(launch.task);
      if (!is_stage_work(task.op) || flow.compute(launch.task).workspace != none<BufferId>) continue;
      most = std::max(most, workspace_of(schedule.stage(task.stage), task.op));
    }
  }
  return most;
}

/// @param memory  of the task's rank: `weight_at(Place)` and `gradient_at(Place)` give addresses,
/// `gradient_bytes()` the width of a gradient, `memory(BufferId)` and `boundary(BufferId)` spans,
/// `workspace()` a span, `tokens(microbatch)` and `targets(microbatch)` ids, `loss(microbatch)` the
/// address of its loss
template <class Memory>
ComputeCall compute_call(const Schedule& schedule, TaskId id, const ComputeFlow& flow, const Memory& memory) {
  const Task& task = schedule.task(id);
  const StageWork& stage = schedule.stage(task.stage);
  const auto at = [&](const std::array<Place, stage_parts>& parts, auto&& address) {
    std::array<std::byte*, stage_parts> found{};
    for (std::size_t i = 0; i < parts.size(); ++i) found[i] = parts[i] ? address(parts[i]) : nullptr;
    return found;
  };
  const auto weights = at(flow.weights, [&](const Place& place) { return memory.weight_at(place); });
  const auto gradients = at(flow.gradients, [&](const Place& place) { return memory.gradient_at(place); });
  ComputeCall call;
  call.op = task.op;
  // The arguments common to forward and backward.
  const auto set = [&](auto& args) {
    args.stage = &stage;
    args.microbatch = task.microbatch;
    args.weights = {weights[0], weights[1], weights[2]};
    args.saved = memory.memory(flow.saved);
    args.workspace = flow.workspace == none<BufferId> ? memory.workspace() : memory.memory(flow.workspace);
    args.tokens = memory.tokens(task.microbatch);
    args.targets = memory.targets(task.microbatch);
  };
  if (traits(task.op).passes.forward) {
    ForwardArgs& args = call.forward;
    set(args);
    if (!stage.first_edge) args.input = memory.boundary(flow.input);
    if (!stage.last_edge) args.output = memory.boundary(flow.output);
    args.loss = memory.loss(task.microbatch);
    return call;
  }
  for (const Run& run : flow.cleared) {
    call.cleared.push_back({memory.gradient_at(run.place), static_cast<std::size_t>(run.count * memory.gradient_bytes())});
  }
  BackwardArgs& args = call.backward;
  set(args);
  args.gradients = {gradients[0], gradients[1], gradients[2]};
  if (!stage.last_edge && flow.input != none<BufferId>) args.output_gradient = memory.boundary(flow.input);
  if (!stage.first_edge && flow.output != none<BufferId>) args.input_gradient = memory.boundary(flow.output);
  if (flow.stash != none<BufferId>) args.stash = memory.memory(flow.stash);
  args.scale = 1.0 / static_cast<double>(schedule.workload().microbatches());
  return call;
}

}  // namespace tawpipe
