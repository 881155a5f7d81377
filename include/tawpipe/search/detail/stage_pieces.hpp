// What stages are made of on one of the ranks that share them: a layer of each kind and the model's
// edges, with their times and sizes, from which those of any stage follow.
// Not: the order in which a schedule runs stages (outline.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/task_workspace.hpp"
#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/problem.hpp"
#include "tawpipe/search/sharing.hpp"

namespace tawpipe::inline v0::detail {

/// A part of a stage for one microbatch, or a stage. Times in picoseconds, sizes in bytes, of a rank.
struct StagePiece {
  /// forward, backward, backward_input and backward_weight: the least, by themselves
  std::array<double, 4> times{};
  double saved = 0;
  double stash = 0;
  double boundary = 0;
  /// as `times`, held while each runs: the most of its parts
  std::array<double, 4> workspaces{};
  bool stashes_workspace = false;  ///< a backward_input keeps what else is in the workspace
  double dense = 0;                ///< parameters, without those of experts
  double experts = 0;

  static std::size_t of(Op op) { return op == Op::forward ? 0 : op == Op::backward ? 1 : op == Op::backward_input ? 2 : 3; }
  /// @param count  of equal parts
  void add(const StagePiece& other, double count = 1) {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] += count * other.times[i];
    saved += count * other.saved;
    stash += count * other.stash;
    dense += count * other.dense;
    experts += count * other.experts;
    boundary = std::max(boundary, other.boundary);
    for (std::size_t i = 0; i < workspaces.size(); ++i) workspaces[i] = std::max(workspaces[i], other.workspaces[i]);
    stashes_workspace = stashes_workspace || other.stashes_workspace;
  }
};

/// Of a model on the ranks that share its layers.
struct StagePieces {
  StagePiece before;               ///< the first edge
  StagePiece behind;               ///< the last edge
  std::vector<StagePiece> layers;  ///< [kind] the first of a stage
  StagePiece next = {};            ///< each further one, where all are of one kind

  StagePiece stage(const StageWork& work) const {
    StagePiece whole;
    if (work.first_edge) whole.add(before);
    if (work.last_edge) whole.add(behind);
    if (layers.size() == 1 && work.layers > 0) {
      whole.add(layers[0]);
      whole.add(next, work.layers - 1);
    }
    for (std::size_t kind = 0; layers.size() > 1 && kind < layers.size(); ++kind) {
      if (const int count = work.layers_of(static_cast<std::uint8_t>(kind)); count > 0) whole.add(layers[kind], count);
    }
    whole.boundary = std::max(before.boundary, layers.front().boundary);
    return whole;
  }
};

/// @param problem  with the layout's mesh, recomputation and microbatch
/// @pre problem has a model, and each stage's recomputation does not depend on its number of layers
inline StagePieces stage_pieces(const Problem& problem, const Workload& work) {
  const LayerStack& model = work.model();
  const int kinds = 1 + static_cast<int>(model.others.size());
  Schedule::Parts parts;
  parts.ranks = problem.cluster.ranks();
  parts.mesh = problem.mesh;
  parts.stages = {work.stage(0, 0, true, false), work.stage(model.layers, 0, false, true)};
  for (int kind = 0; kind < kinds; ++kind)
    parts.stages.push_back(work.stage(model.first_of(static_cast<std::uint8_t>(kind)), 1, false, false));
  if (kinds == 1 && model.layers > 1) parts.stages.push_back(work.stage(0, 2, false, false));
  if (problem.mesh.shared() > 1) {
    parts.bodies =
        share_stages(*problem.model, work.batch(), problem.recompute, parts.stages, sharing_of(problem, problem.mesh, true));
    for (std::size_t s = 0; s < parts.stages.size(); ++s) parts.stages[s] = parts.bodies[s].work;
  }
  constexpr std::array ops{Op::forward, Op::backward, Op::backward_input, Op::backward_weight};
  for (std::size_t s = 0; s < parts.stages.size(); ++s) {
    for (const Op op : ops) parts.tasks.push_back({.op = op, .rank = Rank{0}, .stage = id<StageId>(s), .microbatch = 0});
  }
  const Schedule schedule{work, std::move(parts)};
  std::vector<StagePiece> found;
  std::visit(
      [&](const auto& cost) {
        LeastTimes times{schedule, problem.cluster, cost};
        for (std::size_t s = 0; s < schedule.stages().size(); ++s) {
          const StageWork& stage = schedule.stages()[s];
          StagePiece piece;
          for (std::size_t op = 0; op < ops.size(); ++op) {
            piece.times[op] = static_cast<double>(times.of(id<TaskId>(ops.size() * s + op)));
            piece.workspaces[op] = static_cast<double>(workspace_of(stage, ops[op]).value());
          }
          piece.stashes_workspace = stage.stashed_workspace > Bytes{};
          piece.saved = static_cast<double>(stage.saved.value());
          piece.stash = static_cast<double>(stage.stash.value());
          piece.boundary = static_cast<double>(stage.boundary.value());
          // Of the whole stage even where ranks share it.
          const bool apart = problem.mesh.whole_experts;
          piece.experts = apart ? static_cast<double>(stage.expert_parameters) / problem.mesh.expert_parts() : 0;
          piece.dense = static_cast<double>(stage.parameters + stage.edge_parameters) - piece.experts;
          found.push_back(piece);
        }
      },
      problem.cost);
  StagePieces pieces{.before = found[0], .behind = found[1], .layers = {found.begin() + 2, found.begin() + 2 + kinds}};
  pieces.next = pieces.layers[0];
  if (kinds == 1 && model.layers > 1) {
    pieces.next = found.back();
    pieces.next.add(pieces.layers[0], -1);
  }
  return pieces;
}

}  // namespace tawpipe::inline v0::detail
