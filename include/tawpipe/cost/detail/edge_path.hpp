// The path of a message over the edges of its shape: shared by cost models that charge links by
// their routes.
// Not: the costs of measured or tuned links (cost/measured.hpp, cost/nccl_collectives.hpp).
#pragma once

#include <cstddef>

#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/detail/merge_loads.hpp"
#include "tawpipe/cost/detail/mesh_loads.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

/// Each edge loads the links of its route by its share; the routes' latencies come after
/// `overhead`, between ranks.
inline Path edge_path(const Schedule& schedule, const Task& task, const Cluster& cluster, Algorithm all_reduce,
                      Duration overhead) {
  const CollectiveShape shape = communication_shape(schedule, task, all_reduce, cluster);
  Path path;
  double latency = 0;
  for (std::size_t e = 0; e < shape.edges.size(); ++e) {
    const Route route = cluster.route(shape.edges[e].first, shape.edges[e].second);
    for (const LinkId link : route.links) path.loads.push_back({link, shape.share(e)});
    latency += to_seconds(route.latency);
  }
  path.latency = (is_host_copy(task.op) ? Duration{} : overhead) + shape.latency(latency);
  path.fraction = shape.fraction;
  merge_loads(path.loads);
  if (is_collective(task.op) && !is_all_pairs(task.op)) spread_over_meshes(path.loads, schedule.group(task.group), cluster);
  return path;
}

}  // namespace tawpipe::detail
