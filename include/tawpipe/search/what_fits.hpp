// If nothing fits the devices' memory: the smallest change of layout with which something does.
// Not: the fastest of all layouts.
#pragma once

#include <optional>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// The first variant that fits, with its fastest schedule: more tensor parallelism, then context
/// parallelism, full recomputation, and last optimizer states and activations in host memory, in
/// this order. None without a model, or if none of these fits. Complexity: that of at most about
/// three dozen predictions for each schedule, most of them dropped by bounds if its options are
/// open.
TAWPIPE_INLINE std::optional<FittingLayout> find_fitting_layout(const Problem& problem, const Registry& registry);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>
#include <vector>

#include "tawpipe/search/choose.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Its mesh with more tensor parallelism by doubling, within a node; then with context parallelism
/// over nodes.
inline std::vector<Mesh> wider_meshes(const Problem& problem) {
  int node = problem.cluster.ranks();
  const DeviceGroups nodes = problem.cluster.groups_by_node();
  for (int n = 0; n < nodes.count(); ++n) node = std::min(node, nodes.size(n));
  std::vector<Mesh> meshes{problem.mesh};
  for (Mesh mesh = problem.mesh; mesh.tensor * 2 <= node && problem.model->heads % (mesh.tensor * 2) == 0;) {
    mesh.tensor *= 2;
    meshes.push_back(mesh);
  }
  for (Mesh mesh = meshes.back(); mesh.copies() * 2 <= problem.cluster.ranks();) {
    mesh.context *= 2;
    meshes.push_back(mesh);
  }
  return meshes;
}

/// The fastest of the problem's schedules that fit, with their options chosen.
inline std::optional<FittingLayout> fastest_fitting(const Problem& problem, const Registry& registry) {
  std::optional<FittingLayout> best;
  for (const ScheduleChoice& choice : problem.schedules) {
    try {
      Chosen next = choose(problem, choice, registry);
      if (!next.summary.fits() || (best && best->summary.makespan <= next.summary.makespan)) continue;
      best = FittingLayout{problem.mesh, next.recompute, problem.offload, std::move(next.summary)};
    } catch (const InputError&) {  // the ranks or the batch cannot be divided so
    }
  }
  return best;
}

}  // namespace detail

TAWPIPE_INLINE std::optional<FittingLayout> find_fitting_layout(const Problem& problem, const Registry& registry) {
  if (!problem.model) return std::nullopt;
  Problem changed = problem;
  std::vector<Offload> offloads{problem.offload};
  for (const bool activations : {problem.offload.activations, true}) {
    const Offload more{.activations = activations, .optimizer = true, .ahead = problem.offload.ahead};
    if (!(more == offloads.back())) offloads.push_back(more);
  }
  for (const Offload& offload : offloads) {
    changed.offload = offload;
    for (const Mesh& mesh : detail::wider_meshes(problem)) {
      changed.mesh = mesh;
      const bool asked = mesh == problem.mesh && offload == problem.offload;
      if (!problem.recomputes.empty()) {
        if (asked) continue;  // does not fit
        if (auto found = detail::fastest_fitting(changed, registry)) return found;
        continue;
      }
      for (const Recompute recompute : {problem.recompute, Recompute::full}) {
        changed.recompute = recompute;
        if (asked && recompute == problem.recompute) continue;
        if (auto found = detail::fastest_fitting(changed, registry)) return found;
        if (recompute == Recompute::full) break;
      }
    }
  }
  return std::nullopt;
}

}  // namespace tawpipe
#endif
