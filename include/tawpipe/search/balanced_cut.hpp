// How layers are cut into stages by what a problem's costs say that they take.
// Not: the numbers of layers that follow (model/stage_cut.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/stage_cut.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// A cut weighted by the times of embedding, head and each layer relative to one, forward and backward on
/// the first device, with waits for the ranks that share them.
/// @param mesh  over all devices
/// @param work  of a replica, with the microbatch
/// @pre the problem has a model  @throws InputError  as the costs do
TAWPIPE_INLINE StageCut balanced_cut(const Problem& problem, const Mesh& mesh, const Workload& work);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <utility>
#include <variant>

#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/sharing.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE StageCut balanced_cut(const Problem& problem, const Mesh& mesh, const Workload& work) {
  Schedule::Parts parts;
  parts.ranks = problem.cluster.ranks();
  parts.mesh = mesh;
  const int kinds = 1 + static_cast<int>(work.model().others.size());
  parts.stages = {work.stage(0, 0, true, false), work.stage(work.model().layers, 0, false, true)};
  for (int kind = 0; kind < kinds; ++kind)  // one layer of each
    parts.stages.push_back(work.stage(work.model().first_of(static_cast<std::uint8_t>(kind)), 1, false, false));
  if (problem.model && mesh.shared() > 1) {
    parts.bodies = share_stages(*problem.model, work.batch(), problem.recompute, parts.stages, sharing_of(problem, mesh, true));
    for (std::size_t s = 0; s < parts.stages.size(); ++s) parts.stages[s] = parts.bodies[s].work;
  }
  for (int stage = 0; stage < kinds + 2; ++stage) {
    for (const Op op : {Op::forward, Op::backward})
      parts.tasks.push_back({.op = op, .rank = Rank{0}, .stage = StageId{stage}, .microbatch = 0});
  }
  const Schedule schedule{work, std::move(parts)};
  const auto time = [&](int stage) {
    return std::visit(
        [&](const auto& cost) {
          detail::LeastTimes times{schedule, problem.cluster, cost};
          return static_cast<double>(times.of(TaskId{2 * stage}) + times.of(TaskId{2 * stage + 1}));
        },
        problem.cost);
  };
  const double layer = std::max(1.0, time(2));
  StageCut cut{.balanced = true, .embedding = time(0) / layer, .head = time(1) / layer};
  for (const std::uint8_t kind : work.model().pattern) cut.each.push_back(time(2 + kind) / layer);
  return cut;
}

}  // namespace tawpipe
#endif
