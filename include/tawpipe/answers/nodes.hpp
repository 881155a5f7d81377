// A cluster's name with a different number of nodes.
// Not: the cluster of a name (topology/cluster_file.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/clusters.hpp"

namespace tawpipe::inline v0::answers {

/// "a800x24-10gbe" or "3x8" with a different number of nodes.
inline std::string with_nodes(const std::string& cluster, std::int64_t nodes) {
  const auto cross = cluster.find('x');
  const bool plain = cross != std::string::npos && cluster.find_first_not_of("0123456789x") == std::string::npos;
  if (plain) return concat(nodes, cluster.substr(cross));
  const std::string name = cluster.substr(0, cluster.find('*'));
  const clusters::ClusterPreset* const preset = find_sized_cluster(cluster).first;
  return preset != nullptr ? concat(preset->name, "x", nodes) : concat(name, "*", nodes);
}

}  // namespace tawpipe::answers
