// Clusters given only by their size: "3x8" nodes by devices, "8+8+4" unequal nodes.
// Not: clusters with names (topology/clusters.hpp) or files (topology/cluster_file.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/changed_links.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/peer_access.hpp"

namespace tawpipe::inline v0 {

/// The limit on devices in a cluster.
inline constexpr int max_cluster_devices = 1'000'000;

/// @throws InputError  if `nodes` times `devices_per_node` is below one or above
/// max_cluster_devices.
inline void check_cluster_size(std::int64_t nodes, std::int64_t devices_per_node) {
  if (nodes < 1) throw InputError(concat("a cluster of ", nodes, " nodes is impossible; it needs at least 1"));
  if (devices_per_node < 1) {
    throw InputError(concat("a node of ", devices_per_node, " devices is impossible; it needs at least 1"));
  }
  if (nodes > max_cluster_devices || devices_per_node > max_cluster_devices || nodes * devices_per_node > max_cluster_devices) {
    throw InputError(concat("a cluster of ", nodes, " nodes by ", devices_per_node, " devices is too large; at most ",
                            max_cluster_devices, " devices fit"));
  }
}

namespace detail {

/// A whole number that fills `text`, or -1; one too large for 32 bits is 2147483647.
inline std::int32_t whole_number(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return -1;
  return to_number<std::int32_t>(text).value_or(2'147'483'647);
}

inline InputError wrong_dimensions(std::string_view text) {
  return InputError(concat(
      quote(text), " is not a cluster size: write nodes x devices such as 3x8, or the devices of each node such as 8+8+4"));
}

}  // namespace detail

/// "NAME*NODES" split in two; the number is 0 where there is no "*". @throws InputError  if it is
/// not a number or is below one.
inline std::pair<std::string_view, int> split_node_count(std::string_view text) {
  const auto star = text.rfind('*');
  if (star == std::string_view::npos) return {text, 0};
  const int nodes = detail::whole_number(text.substr(star + 1));
  if (nodes < 1) {
    throw InputError(concat(quote(text), " does not say how many nodes: write a whole number above zero after '*', such as ",
                            text.substr(0, star), "*4"));
  }
  return {text.substr(0, star), nodes};
}

/// The same cluster under another name.
inline Cluster renamed(const Cluster& cluster, std::string_view name) {
  std::vector<std::int32_t> nodes;
  for (int node = 0; node < cluster.nodes(); ++node) nodes.push_back(cluster.kind_index(NodeId{node}));
  return Cluster{std::string{name}, cluster.kinds(), std::move(nodes), cluster.fabric()};
}

/// Whether `text` is meant as a size: digits, 'x' and '+' only, with an 'x' or '+' among them.
inline bool looks_like_dimensions(std::string_view text) {
  return text.find_first_of("x+") != std::string_view::npos && text.find_first_not_of("0123456789x+") == std::string_view::npos;
}

/// A cluster of that size at the speeds of the usual machine around its device (link_speeds(),
/// usual_nvlinks()), with an adapter and a slot to the host for each device. For an A100-80G, which
/// is assumed if `device` is "": NVLink 12 x 20 GB/s, adapters of 24 GB/s (200 Gb/s limited by a
/// gen 4 slot), gen 4 slots. Devices without NVLink reach each other through their slots: GeForce through the memory
/// of the host, with one adapter for all; AMD's and Intel's have links to each other (ClusterBuilder::mesh()).
/// @param device  its name (topology/devices.hpp)
/// @param text  "3x8": 3 nodes of 8 devices; "8+8+4": three nodes of these sizes.
/// @throws InputError  for anything else, sizes below one, and more than max_cluster_devices
/// devices.
inline Cluster cluster_from_dimensions(std::string_view text, std::string_view device = "") {
  std::vector<std::int32_t> sizes;
  const auto cross = text.find('x');
  if (cross != std::string_view::npos) {
    const std::int32_t nodes = detail::whole_number(text.substr(0, cross));
    const std::int32_t devices = detail::whole_number(text.substr(cross + 1));
    if (nodes < 0 || devices < 0) throw detail::wrong_dimensions(text);
    check_cluster_size(nodes, devices);
    sizes.assign(static_cast<std::size_t>(nodes), devices);
  } else {
    for (std::string_view rest = text;;) {
      const auto plus = std::min(rest.find('+'), rest.size());
      const std::int32_t size = detail::whole_number(rest.substr(0, plus));
      if (size < 0) throw detail::wrong_dimensions(text);
      check_cluster_size(1, size);
      sizes.push_back(size);
      if (plus == rest.size()) break;
      rest.remove_prefix(plus + 1);
    }
    std::int64_t total = 0;
    for (const auto size : sizes) total += size;
    check_cluster_size(1, total);
  }
  const int largest = *std::max_element(sizes.begin(), sizes.end());
  const KnownDevice& known = known_device(device.empty() ? "A100-80G" : device);
  const LinkSpeeds speeds = link_speeds(known);
  check_mesh(known, largest);
  const LinkSpec slot{speeds.pcie, nccl_latency::pcie};
  const int nvlinks = usual_nvlinks(known);
  ClusterBuilder builder;
  builder.name(std::string{text})
      .device(device.empty() ? assumed_spec(known) : spec_of(known))
      .devices_of_nodes(std::move(sizes))
      .adapters_per_node(known.peers == Peers::host ? 1 : largest)
      .intra_node(nvlinks > 0 ? LinkSpec{speeds.nvlink * nvlinks, nccl_latency::nvlink} : slot,
                  nvlinks > 0 ? LinkClass::nvlink : LinkClass::pcie)
      // Gaudi's ports are its own; other adapters leave by a slot.
      .inter_node({known.peers == Peers::roce ? speeds.network : std::min(speeds.network, speeds.pcie), nccl_latency::network})
      .host_link(slot);
  if (is_mesh(known.peers)) builder.mesh(mesh_link(known), mesh_class(known.peers));
  const Cluster cluster = builder.build();
  if (known.peers != Peers::host) return cluster;
  std::vector<NodeType> kinds = cluster.kinds();
  for (NodeType& kind : kinds) {
    pass_sockets(kind, {speeds.socket, speeds.hop_latency});
    pass_host_memory(kind);
  }
  return detail::with_kinds(cluster, std::move(kinds), {});
}

}  // namespace tawpipe
