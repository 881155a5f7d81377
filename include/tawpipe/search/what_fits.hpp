// If nothing fits the devices' memory: the smallest change of layout with which something does.
// Not: the fastest of all layouts.
#pragma once

#include <optional>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// A change of a problem with which something fits, with its fastest schedule and its prediction.
struct FittingLayout {
  Problem problem;  ///< as asked, with its mesh, recomputation, microbatch, sharding, offload and loss in chunks
  ScheduleChoice choice;
  Summary summary;
  bool all_run = true;  ///< each of the problem's schedules can be built so
};

/// The first variant that fits, with its fastest schedule: more tensor parallelism, then context
/// parallelism, then data parallelism, each without, with selective and with full recomputation; then on each mesh
/// as few as needed of that, states shared out further, microbatches of one sequence, a loss in
/// chunks; and last optimizer states and activations in host memory. Of Problem::stack only host
/// memory is tried: its parts state what is computed again, and no ranks share its layers. None
/// without a model, or if none of these fits. Complexity: that of about ten predictions for each
/// schedule and mesh, of which there are about three and twice the logarithm of the devices; most
/// are dropped by bounds if a schedule's options are open.
TAWPIPE_INLINE std::optional<FittingLayout> find_fitting_layout(const Problem& problem, const Registry& registry);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>
#include <vector>

#include "tawpipe/search/choose.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Its mesh with more tensor parallelism by doubling, within a node; with experts on more devices;
/// then with context parallelism over nodes; then with data parallelism.
inline std::vector<Mesh> wider_meshes(const Problem& problem) {
  int node = problem.cluster.ranks();
  const DeviceGroups nodes = problem.cluster.groups_by_node();
  for (int n = 0; n < nodes.count(); ++n) node = std::min(node, nodes.size(n));
  std::vector<Mesh> meshes{problem.mesh};
  const auto fits = [&](const Mesh& mesh) { return mesh.copies() * 2 <= problem.cluster.ranks(); };
  for (Mesh mesh = problem.mesh; fits(mesh) && mesh.tensor * 2 <= node && problem.model->heads % (mesh.tensor * 2) == 0;) {
    mesh.tensor *= 2;
    meshes.push_back(mesh);
  }
  const Mesh widest = meshes.back();
  const auto divides = [&](const Mesh& mesh) { return problem.model->experts % mesh.shared() == 0; };
  for (Mesh mesh = problem.mesh; problem.model->is_routed() && fits(mesh);) {
    mesh.expert *= 2;
    mesh.whole_experts = true;
    if (!divides(mesh)) break;
    meshes.push_back(mesh);
  }
  for (int Mesh::*axis : {&Mesh::context, &Mesh::data}) {
    for (Mesh mesh = widest; fits(mesh);) {
      mesh.*axis *= 2;
      meshes.push_back(mesh);
    }
  }
  return meshes;
}

/// The fastest of the problem's schedules that fit, with their options chosen; with `any`, the first
/// found that fits.
inline std::optional<FittingLayout> fastest_fitting(const Problem& problem, const Registry& registry, bool any = false) {
  std::optional<FittingLayout> best;
  bool all_run = true;
  for (const ScheduleChoice& choice : problem.schedules) {
    try {
      if (any && best) break;
      std::optional<Chosen> chosen = choose_fitting(problem, choice, registry, any);
      if (!chosen || (best && best->summary.makespan <= chosen->summary.makespan)) continue;
      Chosen& next = *chosen;
      best = FittingLayout{.problem = problem, .choice = std::move(next.choice), .summary = std::move(next.summary)};
      best->problem.recompute = next.recompute;
      if (next.recompute_layers > 0) best->problem.model->recompute_layers = next.recompute_layers;
      best->problem.microbatch_sizes = {best->summary.microbatch_size};
    } catch (const InputError&) {  // the ranks or the batch cannot be divided so
      all_run = false;
    }
  }
  if (best) best->all_run = all_run;
  return best;
}

template <class T>
bool take(T& to, const T& from) {
  const bool differs = !(to == from);
  to = from;
  return differs;
}

/// What a problem may change to need less memory, the costliest in time first. Each takes a part of
/// `from` and returns whether that is a change.
inline constexpr bool (*memory_savings[])(Problem& to, const Problem& from) = {
    [](Problem& to, const Problem& from) {
      const bool of_policy = take(to.recompute, from.recompute);
      return take(to.model->recompute_layers, from.model->recompute_layers) || of_policy;
    },
    [](Problem& to, const Problem& from) {
      const bool less = from.recompute == Recompute::none && to.recompute == Recompute::full && from.recomputes.empty();
      if (less) to.recompute = Recompute::selective;
      return less;
    },
    [](Problem& to, const Problem& from) { return take(to.sharding, from.sharding); },
    [](Problem& to, const Problem& from) {
      return to.sharding > from.sharding && take(to.sharding, std::max(from.sharding, StateSharding::gradients));
    },
    [](Problem& to, const Problem& from) { return take(to.microbatch_sizes, from.microbatch_sizes); },
    [](Problem& to, const Problem& from) { return take(to.model->loss_chunk, from.model->loss_chunk); }};

/// The problem with full recomputation, if that may be chosen.
inline Problem fully_recomputed(Problem problem) {
  if (!problem.recomputes.empty()) return problem;
  problem.recompute = Recompute::full;
  problem.model->recompute_layers = 0;
  return problem;
}

/// The problem with all of them, states shared out to `sharding`.
inline Problem with_savings(Problem problem, StateSharding sharding) {
  problem = fully_recomputed(std::move(problem));
  problem.sharding = std::max(problem.sharding, sharding);
  if (problem.microbatches == 0 && !problem.microbatch_sizes.empty()) problem.microbatch_sizes = {1};
  if (problem.model->loss_chunk == 0) problem.model->loss_chunk = 8192;
  return problem;
}

/// What fits with as few of them as needed, if all together do.
inline std::optional<FittingLayout> fitting_with_savings(const Problem& asked, Problem changed, const Registry& registry) {
  std::optional<FittingLayout> found = fastest_fitting(changed, registry, true);
  if (!found) return found;
  for (const auto saving : memory_savings) {
    Problem less = changed;
    if (!saving(less, asked)) continue;
    std::optional<FittingLayout> without = fastest_fitting(less, registry, true);
    if (!without) continue;
    changed = std::move(less);
    found = std::move(without);
  }
  const std::vector<ScheduleChoice>& schedules = changed.schedules;
  const bool is_fastest = schedules.size() == 1 && only_variant(changed, schedules[0], registry);
  return is_fastest ? found : fastest_fitting(changed, registry);
}

}  // namespace detail

TAWPIPE_INLINE std::optional<FittingLayout> find_fitting_layout(const Problem& problem, const Registry& registry) {
  if (!problem.has_model()) return std::nullopt;
  std::vector<Offload> offloads{problem.offload};
  Offload more = problem.offload;
  more.optimizer = true;
  if (!(more == offloads.back())) offloads.push_back(more);
  more.activations = true;
  more.layers = 0;
  if (!(more == offloads.back())) offloads.push_back(more);
  Problem asked = problem;
  if (problem.stack) {
    for (const Offload& offload : offloads) {
      asked.offload = offload;
      if (offload == problem.offload) continue;  // does not fit
      if (auto found = detail::fastest_fitting(asked, registry)) return found;
    }
    return std::nullopt;
  }
  const bool all_recomputed =
      !problem.recomputes.empty() || (problem.recompute == Recompute::full && problem.model->recompute_layers == 0);
  const std::vector<Mesh> meshes = detail::wider_meshes(problem);
  for (const Offload& offload : offloads) {
    asked.offload = offload;
    for (const Mesh& mesh : meshes) {
      asked.mesh = mesh;
      if (all_recomputed && mesh == problem.mesh && offload == problem.offload) continue;  // does not fit
      if (auto found = detail::fitting_with_savings(asked, detail::fully_recomputed(asked), registry)) return found;
    }
    for (const Mesh& mesh : meshes) {
      asked.mesh = mesh;
      for (const StateSharding sharding : {problem.sharding, StateSharding::parameters}) {
        if (auto found = detail::fitting_with_savings(asked, detail::with_savings(asked, sharding), registry)) return found;
        if (mesh.data * mesh.token_ranks() == 1 || sharding == StateSharding::parameters) break;
      }
    }
  }
  return std::nullopt;
}

}  // namespace tawpipe
#endif
