// The path of a message over the edges of its shape: shared by cost models that charge links by
// their routes.
// Not: the costs of measured or tuned links (cost/measured.hpp, cost/nccl_collectives.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/detail/merge_loads.hpp"
#include "tawpipe/cost/detail/mesh_loads.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

/// The loads of equal messages between any two of the members, where nodes share no links: those that
/// leave or enter a node are counted, not walked. Adds nothing else, and the sum of all latencies.
/// Complexity: O(members x members of a node).
inline double add_even_pairs(std::vector<LinkLoad>& loads, std::span<const Rank> members, const Cluster& cluster) {
  double latency = 0;
  const auto add = [&](const Route& route, std::size_t times) {
    if (times == 0) return;
    for (const LinkId link : route.links) loads.push_back({link, static_cast<double>(times)});
    latency += static_cast<double>(times) * to_seconds(route.latency);
  };
  std::map<std::int32_t, std::vector<Rank>> nodes;
  for (const Rank member : members) nodes[number(cluster.node_of(member))].push_back(member);
  for (const auto& [node, inside] : nodes) {
    for (const Rank from : inside) {
      for (const Rank to : inside) add(cluster.route(from, to), from == to ? 0 : 1);
      const std::size_t outside = members.size() - inside.size();
      if (outside == 0) continue;
      add(cluster.to_network(from), outside);
      add(cluster.from_network(from), outside);
    }
  }
  return latency;
}

/// Each edge loads the links of its route by its share; the routes' latencies come after
/// `overhead`, between ranks.
inline Path edge_path(const Schedule& schedule, const Task& task, const Cluster& cluster, Algorithm all_reduce,
                      Duration overhead) {
  Path path;
  double latency = 0;
  if (is_all_pairs(task.op) && task.split == none<SplitId> && cluster.fabric().links.empty()) {
    const auto members = schedule.group(task.group);
    const auto count = static_cast<double>(members.size());
    latency = add_even_pairs(path.loads, members, cluster);
    path.latency = overhead + (members.size() > 1 ? seconds(latency / (count * (count - 1))) : Duration{});
    path.fraction = 1 / count;
    merge_loads(path.loads);
    return path;
  }
  const CollectiveShape shape = communication_shape(schedule, task, all_reduce, cluster);
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
