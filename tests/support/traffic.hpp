// Bytes that leave each node, counted message by message.
// Not: the links they cross inside a node, nor time.
#pragma once

#include <vector>

#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace support {

/// [node] bytes sent to other nodes in one iteration; collectives as rings and chains in the order
/// of their members.
inline std::vector<double> bytes_leaving_nodes(const tawpipe::Schedule& schedule, const tawpipe::Cluster& cluster) {
  std::vector<double> leaving(static_cast<std::size_t>(cluster.nodes()));
  const auto send = [&](tawpipe::Rank from, tawpipe::Rank to, double bytes) {
    if (!cluster.same_node(from, to)) leaving[tawpipe::index(cluster.node_of(from))] += bytes;
  };
  for (const auto& task : schedule.tasks()) {
    if (tawpipe::is_compute(task.op)) continue;
    const auto bytes = static_cast<double>(task.bytes.value());
    if (tawpipe::is_point_to_point(task.op)) {
      send(task.rank, task.peer, bytes);
      if (task.op == tawpipe::Op::exchange) send(task.peer, task.rank, bytes);
      continue;
    }
    const auto shape =
        tawpipe::collective_shape(task.op, tawpipe::Algorithm::ring, schedule.group(task.group), task.rank, cluster);
    for (const auto& [from, to] : shape.edges) send(from, to, bytes * shape.fraction);
  }
  return leaving;
}

}  // namespace support
