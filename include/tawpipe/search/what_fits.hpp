// Where nothing fits the devices' memory: the smallest change of layout with which something does.
// Not: the fastest layout there is.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tawpipe/search/choose.hpp"

namespace tawpipe::inline v0 {

/// Of the problem with more tensor parallelism, or all activations computed again: the first that fits in this order, with its
/// fastest schedule. First within a node, by doubling; then with context parallelism over nodes. None without a model, or where
/// none of these does. Complexity: that of at most about a dozen predictions for each schedule.
inline std::optional<FittingLayout> find_fitting_layout(const Problem& problem, const Registry& registry) {
  if (!problem.model) return std::nullopt;
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
  for (const Mesh& mesh : meshes) {
    for (const Recompute recompute : {problem.recompute, Recompute::full}) {
      if (mesh == problem.mesh && (recompute == problem.recompute || !problem.recomputes.empty())) continue;  // does not fit
      Problem changed = problem;
      changed.mesh = mesh;
      changed.recompute = recompute;
      std::optional<FittingLayout> best;
      try {
        for (const ScheduleChoice& choice : changed.schedules) {
          Chosen next = choose(changed, choice, registry);
          if (!next.summary.fits() || (best && best->summary.makespan <= next.summary.makespan)) continue;
          best = FittingLayout{mesh, next.recompute, std::move(next.summary)};
        }
      } catch (const InputError&) {  // the ranks or the batch cannot be cut so
        continue;
      }
      if (best) return best;
      if (recompute == Recompute::full || !problem.recomputes.empty()) break;
    }
  }
  return std::nullopt;
}

}  // namespace tawpipe
