// The loads of rings in nodes whose devices have a link to each other one.
// Not: public; the cost models use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

/// The members node by node: [begin, end) of each node.
inline std::vector<std::pair<std::size_t, std::size_t>> nodes_of_members(std::span<const Rank> members, const Cluster& cluster) {
  std::vector<std::pair<std::size_t, std::size_t>> nodes;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == 0 || !cluster.same_node(members[i - 1], members[i])) nodes.emplace_back(i, i);
    nodes.back().second = i + 1;
  }
  return nodes;
}

/// The links between each two of these members of a node, if each pair has one of its own (XGMI, Gaudi's Ethernet);
/// otherwise none.
inline std::vector<LinkId> mesh_links(std::span<const Rank> members, const Cluster& cluster) {
  std::vector<LinkId> links;
  for (const Rank from : members) {
    for (const Rank to : members) {
      if (from == to) continue;
      const Route route = cluster.route(from, to);
      if (route.links.size() != 1 || !joins_two(cluster.link(route.links.front()).kind)) return {};
      links.push_back(route.links.front());
    }
  }
  return links;
}

/// Rings and trees of a mesh take other links in each channel (RCCL, src/graph/rome_models.cc: eight rings over eight
/// MI300X), so that all links between members of a node carry the same: what a ring's link would, divided by the number
/// of links of a member.
/// @param loads  merged, in order of links
inline void spread_over_meshes(std::vector<LinkLoad>& loads, std::span<const Rank> members, const Cluster& cluster) {
  const auto on_mesh = [&](const LinkLoad& load) { return joins_two(cluster.link(load.link).kind); };
  if (std::none_of(loads.begin(), loads.end(), on_mesh)) return;  // as in most clusters, of whose every message this asks
  for (const auto& [begin, end] : nodes_of_members(members, cluster)) {
    const std::size_t size = end - begin;
    if (size < 3) continue;  // two members have one link anyway
    const std::vector<LinkId> links = mesh_links(members.subspan(begin, size), cluster);
    if (links.empty()) continue;
    double sum = 0;
    std::erase_if(loads, [&](const LinkLoad& load) {
      const bool one = std::find(links.begin(), links.end(), load.link) != links.end();
      if (one) sum += load.weight;
      return one;
    });
    // A chain has a link less than a ring, and its root sends as much.
    const double each = std::max(1.0, sum / static_cast<double>(size)) / static_cast<double>(size - 1);
    for (const LinkId link : links) loads.push_back({link, each});
  }
  std::sort(loads.begin(), loads.end(), [](const LinkLoad& a, const LinkLoad& b) { return a.link < b.link; });
}

}  // namespace tawpipe::inline v0::detail
