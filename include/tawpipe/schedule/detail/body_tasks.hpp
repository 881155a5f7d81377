// The steps of a shared stage's bodies as tasks of a schedule: which body a task has, a step's work,
// the ranks and sizes of its collectives, and where two bodies take turns.
// Not: the tasks themselves (schedule/expand.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// The steps of a pass through a stage; none where it is a single computation.
inline const StageBody* body_of(const Schedule& schedule, const Task& task) {
  const Passes passes = traits(task.op).passes;
  if (schedule.parts().bodies.empty() || !is_work(task.op) || !passes.any()) return nullptr;
  const SharedStage& stage = schedule.parts().bodies[index(task.stage)];
  const StageBody& body = passes.forward           ? stage.forward
                          : !passes.backward_input ? stage.backward_weight
                          : passes.backward_weight ? stage.backward
                                                   : stage.backward_input;
  return body.empty() ? nullptr : &body;
}

/// A body's operations, and the collectives that the host launches.
struct BodyTotals {
  Flops flops;
  double collectives = 0;
  bool kernels = false;  ///< whether its steps know their own

  explicit BodyTotals(const StageBody& body) {
    for (const BodyStep& step : body) {
      kernels = kernels || !step.kernels.empty();
      flops += step.flops;
      collectives += step.is_compute() ? 0 : 1.0 / step.pieces;
    }
  }
};

/// The work of one step of a stage's body, with what it runs of each kernel (Kernel::share). Kernels
/// that no operator has, copies around collectives, are run by all steps, by their operations.
inline StageWork work_of_step(StageWork work, const BodyStep& step, const BodyTotals& body, const Passes& passes) {
  const bool weight = !passes.forward && !passes.backward_input;
  work.forward = step.flops;
  work.recompute = Flops{};
  work.backward_input = weight ? Flops{} : step.flops;
  work.backward_weight = weight ? step.flops : Flops{};
  work.forward_traffic = work.backward_traffic = step.traffic;
  work.pieces = step.pieces;
  work.collectives = body.collectives;
  work.fraction = body.flops.value() > 0 ? step.flops.value() / body.flops.value() : 0;
  if (!body.kernels) work.kernels.clear();
  for (Kernel& kernel : work.kernels) {
    kernel.share = kernel.op < 0 ? work.fraction : 0;
    for (const StepKernels& own : step.kernels) {
      if (!own.has(kernel)) continue;
      // Of one of the layers of its kind, or of those that are recomputed.
      const std::int32_t layers = own.of_edge                         ? 1
                                  : own.pass == KernelPass::recompute ? work.recomputed_of(own.layer_kind)
                                                                      : work.layers_of(own.layer_kind);
      kernel.share += own.share / std::max(1, layers);
    }
  }
  return work;
}

/// The ranks of a collective step, of which one is at `place`.
inline std::vector<Rank> body_group(const Mesh& mesh, const MeshPlace& place, BodyStep::Axis axis) {
  switch (axis) {
    case BodyStep::Axis::tensor:
      return mesh.group(place, {MeshAxis::tensor});
    case BodyStep::Axis::context:
      return mesh.group(place, {MeshAxis::context});
    case BodyStep::Axis::all:
      break;
  }
  return mesh.group(place, {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert});
}

/// The operation of a collective step.
inline Op op_of(BodyStep::Kind kind) {
  switch (kind) {
    case BodyStep::Kind::compute:
      break;
    case BodyStep::Kind::all_reduce:
      return Op::all_reduce;
    case BodyStep::Kind::all_gather:
      return Op::all_gather;
    case BodyStep::Kind::reduce_scatter:
      return Op::reduce_scatter;
    case BodyStep::Kind::all_to_all:
    case BodyStep::Kind::ring:
      return Op::all_to_all;
  }
  return Op::forward;
}

/// Whether a step is an all_to_all in which not every member sends to every other.
inline bool has_pairs(const BodyStep& step) { return step.kind == BodyStep::Kind::ring || step.inner > 0; }

/// Its sizes [from * members + to]: in a ring each member sends to only one other, otherwise to its
/// neighbours, and what is relayed to the members at its place among others. @pre has_pairs(step)
inline std::vector<Bytes> pairs_of(const BodyStep& step, int members) {
  std::vector<Bytes> sizes(static_cast<std::size_t>(members) * static_cast<std::size_t>(members));
  const auto size = [&](int from, int to) -> Bytes& { return sizes[static_cast<std::size_t>(from * members + to)]; };
  const int inner = std::max(1, step.inner);
  for (int from = 0; from < members; ++from) {
    if (step.kind == BodyStep::Kind::ring) {
      size(from, (from + inner) % members) = step.bytes;
      continue;
    }
    const int first = from / inner * inner;
    if (const int others = members / inner - 1; step.relayed > Bytes{} && others > 0) {
      for (int to = from % inner; to < members; to += inner) size(from, to) = step.relayed / others;
    }
    for (int to = first; to < std::min(first + inner, members); ++to) size(from, to) = (step.bytes - step.relayed) / inner;
  }
  return sizes;
}

/// Past the steps of a body's turn that begins with step `begin`: up to its next all-to-all among all
/// ranks that share the stage, with computations right after that which do not wait for it.
inline std::size_t end_of_turn(const StageBody& body, std::size_t begin) {
  std::size_t s = begin;
  while (s < body.size() && !(body[s].kind == BodyStep::Kind::all_to_all && body[s].axis == BodyStep::Axis::all)) ++s;
  if (s == body.size()) return s;
  const auto sent = static_cast<std::int32_t>(s);
  ++s;
  while (s < body.size() && body[s].is_compute() && body[s].after[0] < sent && body[s].after[1] < sent) ++s;
  return s;
}

}  // namespace tawpipe::v0::detail
