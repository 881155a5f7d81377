// Sets of nodes that a cluster's network may join to the others by less than their adapters, and
// the bandwidth at which it does.
// Not: single nodes and devices (search/bound.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

/// Some nodes, and the bytes a second that all others together can send them and receive from them.
struct NodeCut {
  std::vector<int> nodes;  ///< ascending
  double bytes_per_s = 0;

  /// "nodes 4 to 7", or how many and which is the first.
  std::string name() const {
    const int size = static_cast<int>(nodes.size());
    if (nodes.back() - nodes.front() + 1 == size) return concat("nodes ", nodes.front(), " to ", nodes.back());
    return concat(size, " nodes with node ", nodes.front());
  }
};

/// The cuts of a fabric's links: each link's sources are on one side.
///
/// If some links are taken so that each path out of a set crosses one of them, no more than their
/// bandwidths leaves the set. Three such choices are tried: the first link of each path, the last,
/// and one that these nodes share.
class FabricCuts {
 public:
  explicit FabricCuts(const Cluster& cluster)
      : fabric_{cluster.fabric()}, nodes_{cluster.nodes()}, sources_(fabric_.links.size()), targets_(fabric_.links.size()) {
    if (fabric_.paths.empty()) return;
    for (int from = 0; from < nodes_; ++from) {
      for (int to = 0; to < nodes_; ++to) {
        for (const auto link : path(from, to)) add(sources_[static_cast<std::size_t>(link)], from);
      }
    }
    for (int to = 0; to < nodes_; ++to) {
      for (int from = 0; from < nodes_; ++from) {
        for (const auto link : path(from, to)) add(targets_[static_cast<std::size_t>(link)], to);
      }
    }
  }

  std::vector<std::vector<int>> sets() const {
    std::vector<std::vector<int>> found;
    for (const auto* of : {&sources_, &targets_}) {
      for (const std::vector<int>& nodes : *of) {
        if (nodes.size() > 1 && static_cast<int>(nodes.size()) < nodes_) found.push_back(nodes);
      }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  /// Over the fabric's links, out of the set and into it. [node] `inside`: whether it is in the set
  double bandwidth(const std::vector<int>& nodes, const std::vector<char>& inside) const {
    if (fabric_.paths.empty()) return std::numeric_limits<double>::infinity();
    return leaving(nodes, inside, false) + leaving(nodes, inside, true);
  }

 private:
  const LinkPath& path(int from, int to) const {
    return fabric_.paths[static_cast<std::size_t>(from) * static_cast<std::size_t>(nodes_) + static_cast<std::size_t>(to)];
  }
  static void add(std::vector<int>& nodes, int node) {
    if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
  }
  double leaving(const std::vector<int>& nodes, const std::vector<char>& inside, bool backwards) const {
    const std::vector<std::vector<int>>& owners = backwards ? targets_ : sources_;
    std::vector<char> taken[3];
    for (std::vector<char>& one : taken) one.assign(fabric_.links.size(), 0);
    for (const int node : nodes) {
      for (int other = 0; other < nodes_; ++other) {
        if (inside[static_cast<std::size_t>(other)] != 0) continue;
        const LinkPath& links = backwards ? path(other, node) : path(node, other);
        if (links.empty()) return std::numeric_limits<double>::infinity();
        const auto shared =
            std::find_if(links.begin(), links.end(), [&](auto link) { return owners[static_cast<std::size_t>(link)] == nodes; });
        taken[0][static_cast<std::size_t>(links.front())] = 1;
        taken[1][static_cast<std::size_t>(links.back())] = 1;
        taken[2][static_cast<std::size_t>(shared == links.end() ? links.front() : *shared)] = 1;
      }
    }
    double least = std::numeric_limits<double>::infinity();
    for (const std::vector<char>& one : taken) {
      double sum = 0;
      for (std::size_t link = 0; link < one.size(); ++link) sum += one[link] != 0 ? fabric_.links[link].bandwidth.value() : 0;
      least = std::min(least, sum);
    }
    return least;
  }

  const Fabric& fabric_;
  int nodes_;
  std::vector<std::vector<int>> sources_;  ///< [link] nodes from which paths lead over it
  std::vector<std::vector<int>> targets_;  ///< [link] and to which
};

/// Sets of nodes whose cut may be tighter than those of single nodes: those that share a link of
/// the fabric, and, where nodes differ, those with the least bandwidth for their rate.
/// @param rates     [node] work a second
/// @param adapters  [node] bytes a second that leave and enter by its adapters
/// Complexity: O(nodes^2) with a fabric.
inline std::vector<NodeCut> node_cuts(const Cluster& cluster, const std::vector<double>& rates,
                                      const std::vector<double>& adapters) {
  const FabricCuts fabric{cluster};
  std::vector<std::vector<int>> sets = fabric.sets();
  if (cluster.kinds().size() > 1) {
    std::vector<int> order;
    for (int node = 0; node < cluster.nodes(); ++node) order.push_back(node);
    const auto at = [](const std::vector<double>& values, int node) { return values[static_cast<std::size_t>(node)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return at(adapters, a) * at(rates, b) < at(adapters, b) * at(rates, a); });
    for (std::size_t size = 2; size < order.size(); ++size) {
      sets.emplace_back(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(size));
      std::sort(sets.back().begin(), sets.back().end());
    }
  }
  std::vector<NodeCut> cuts;
  for (std::vector<int>& nodes : sets) {
    std::vector<char> inside(adapters.size(), 0);
    for (const int node : nodes) inside[static_cast<std::size_t>(node)] = 1;
    double sides[2] = {0, 0};  // the others' adapters, and the set's
    for (std::size_t node = 0; node < inside.size(); ++node) sides[inside[node] != 0 ? 1 : 0] += adapters[node];
    const double bandwidth = std::min({sides[0], sides[1], fabric.bandwidth(nodes, inside)});
    cuts.push_back({std::move(nodes), bandwidth});
  }
  return cuts;
}

}  // namespace tawpipe::inline v0::detail
