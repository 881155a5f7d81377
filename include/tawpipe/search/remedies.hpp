// If no plan fits the devices' memory: which changes of the request would make one fit.
// Not: the fastest with any of them (search/plan.hpp), nor changes of one layout (search/what_fits.hpp).
#pragma once

#include <string>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/plan_result.hpp"

namespace tawpipe::inline v0 {

/// A change of a request with which something fits.
struct Remedy {
  std::string what;  ///< "any recomputation (leave out --recompute)", "4 nodes (32 devices)"
  int nodes = 0;     ///< of the cluster with it
  int devices = 0;
  Plan plan;  ///< the first found that fits
};

/// What would make a request fit of which plan() found nothing: each of its conditions left open by itself, or
/// all of them; then more nodes by doubling, as it is and with optimizer states and activations in host memory
/// where that is open. The cheapest first. Empty if none of that fits, up to 4,096 devices or four times as many.
/// Deterministic, for any number of threads.
/// Complexity: that of a few predictions for each.
TAWPIPE_INLINE std::vector<Remedy> find_remedies(const PlanRequest& request, const Registry& registry, PlanThreads parallel);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/topology/changed_links.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The schedules that need the least memory, of those that the request allows.
inline std::vector<ScheduleChoice> lean_schedules(const PlanRequest& request) {
  if (!request.schedules.empty()) return request.schedules;
  return {{"fsdp", {{"prefetch", "1"}}}, {"1f1b", {{"overlap", "off"}}}};
}

/// A plan that fits, of the layouts that need the least memory; none if none of the first does.
inline std::optional<Plan> first_that_fits(PlanRequest request, const Registry& registry) {
  constexpr std::size_t tried = 12;
  constexpr double max_tasks = 2e6;  // about 0.2 s to simulate
  if (std::find(request.recompute.begin(), request.recompute.end(), Recompute::full) != request.recompute.end())
    request.recompute = {Recompute::full};
  if (request.microbatch_sizes.empty()) request.microbatch_sizes = {1};
  request.orders.resize(1);
  if (int& chunk = request.problem.model->loss_chunk; chunk == 0) chunk = request.loss_chunk;
  std::vector<PlanLayout> layouts;
  try {
    layouts = planned_layouts(request);
  } catch (const InputError&) {
    return std::nullopt;  // no layout is so
  }
  LayoutBounds bounds{request};
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const PlanLayout& layout = layouts[i];
    const double tasks = 3 * microbatches_of(request, layout) * layout.mesh.pipeline * request.problem.model->layers;
    if (tasks <= max_tasks && bounds.can_hold(layout)) order.emplace_back(bounds.usual_share(layout), i);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), tried));
  for (const auto& [share, i] : order) {
    for (const ScheduleChoice& choice : lean_schedules(request)) {
      check_stop();
      if (!request.allows(layouts[i], choice)) continue;
      try {
        Plan one{.layout = layouts[i], .choice = choice, .bound = {}, .summary = {}};
        one.summary = v0::predict(problem_of(request, one.layout, choice), registry).summary;
        if (one.summary.fits()) return one;
      } catch (const InputError&) {  // the schedule does not exist there
      }
    }
  }
  return std::nullopt;
}

/// A request with a condition less, and its words.
using Relaxed = std::pair<std::string, PlanRequest>;

inline std::vector<Relaxed> relaxed_requests(const PlanRequest& request) {
  std::vector<Relaxed> found;
  PlanRequest all = request;
  const auto relax = [&](std::string what, auto&& change) {
    found.emplace_back(std::move(what), request);
    change(found.back().second);
    change(all);
  };
  if (!request.microbatch_sizes.empty() && request.microbatch_sizes != std::vector<std::int64_t>{1})
    relax("any microbatch (leave out --microbatch)", [](PlanRequest& one) { one.microbatch_sizes.clear(); });
  if (request.recompute != PlanRequest{.problem = request.problem}.recompute)
    relax("any recomputation (leave out --recompute)",
          [](PlanRequest& one) { one.recompute = PlanRequest{.problem = one.problem}.recompute; });
  if (request.problem.sharding < StateSharding::parameters && request.sharding.empty())
    relax("states shared out over data-parallel devices (--shard-states parameters)",
          [](PlanRequest& one) { one.problem.sharding = StateSharding::parameters; });
  if (!request.schedules.empty()) relax("any schedule (leave out --schedules)", [](PlanRequest& one) { one.schedules.clear(); });
  constexpr std::pair<MeshAxis, const char*> axes[] = {{MeshAxis::tensor, "--tensor-parallel"},
                                                       {MeshAxis::context, "--context-parallel"},
                                                       {MeshAxis::pipeline, "--pipeline-parallel"},
                                                       {MeshAxis::data, "--data-parallel"}};
  for (const auto& [axis, flag] : axes) {
    const auto at = static_cast<std::size_t>(axis);
    if (request.axes[at] == 0) continue;
    relax(concat("any ", name(axis), " parallelism (leave out ", flag, ")"), [at](PlanRequest& one) { one.axes[at] = 0; });
  }
  if (request.expert_parts > 0 && request.problem.model->is_routed())
    relax("any expert parallelism (leave out --expert-parallel)", [](PlanRequest& one) { one.expert_parts = 0; });
  if (!request.problem.offload.any() && request.offload.empty())
    relax("optimizer states and activations in host memory (--offload activations+optimizer)",
          [](PlanRequest& one) { one.problem.offload = {.activations = true, .optimizer = true}; });
  if (found.size() > 1) found.emplace_back("all of these left open", std::move(all));
  return found;
}

/// The least doubling of the nodes with which something fits, and what lies in host memory there.
inline std::optional<Remedy> more_nodes(const PlanRequest& request, const Offload& offload, const Registry& registry) {
  const Cluster& cluster = request.problem.cluster;
  const std::int64_t most = std::max(4096, 4 * cluster.ranks());
  for (std::int64_t times = 2; times * cluster.ranks() <= most; times *= 2) {
    PlanRequest larger = request;
    larger.problem.offload = offload;
    if (larger.axes[static_cast<std::size_t>(MeshAxis::data)] > 0) larger.axes[static_cast<std::size_t>(MeshAxis::data)] = 0;
    try {
      larger.problem.cluster = with_node_count(cluster, static_cast<int>(times * cluster.nodes()));
    } catch (const InputError&) {
      return std::nullopt;
    }
    const int nodes = larger.problem.cluster.nodes();
    const int devices = larger.problem.cluster.ranks();
    std::optional<Plan> found = first_that_fits(std::move(larger), registry);
    if (!found) continue;
    const bool hosted = !(offload == request.problem.offload);
    return Remedy{
        concat(nodes, " nodes (", devices, " devices)", hosted ? concat(" with ", name(offload), " in host memory") : ""), nodes,
        devices, *std::move(found)};
  }
  return std::nullopt;
}

}  // namespace detail

TAWPIPE_INLINE std::vector<Remedy> find_remedies(const PlanRequest& request, const Registry& registry, PlanThreads parallel) {
  const std::vector<detail::Relaxed> relaxed = detail::relaxed_requests(request);
  std::vector<Offload> offloads = request.offload;
  offloads.insert(offloads.begin(), request.problem.offload);
  std::vector<std::optional<Remedy>> found(relaxed.size() + offloads.size());
  const StopTold* const told = detail::stop_told;
  parallel(found.size(), [&](std::size_t i) {
    const StopScope inherited{told};
    if (i >= relaxed.size()) {
      found[i] = detail::more_nodes(request, offloads[i - relaxed.size()], registry);
      return;
    }
    const auto& [what, open] = relaxed[i];
    const Cluster& cluster = open.problem.cluster;
    if (std::optional<Plan> plan = detail::first_that_fits(open, registry))
      found[i] = Remedy{what, cluster.nodes(), cluster.ranks(), *std::move(plan)};
  });
  std::vector<Remedy> remedies;
  int fewest = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool of_nodes = i >= relaxed.size();
    const bool all_open = !of_nodes && i > 0 && i + 1 == relaxed.size();
    if (!found[i] || (all_open && !remedies.empty()) || (of_nodes && found[i]->nodes >= fewest)) continue;
    if (of_nodes) fewest = found[i]->nodes;
    remedies.push_back(*std::move(found[i]));
  }
  return remedies;
}

}  // namespace tawpipe
#endif
