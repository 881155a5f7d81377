// Nodes whose devices have no switch of their own: links between each two, or messages through the host's memory.
// Not: which devices these are (topology/devices.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// The other devices of a node that XGMI links and Gaudi's ports are divided among.
inline constexpr int mesh_peers = 7;

/// Whether devices of a usual node have links to each other one.
constexpr bool is_mesh(Peers peers) { return peers == Peers::xgmi || peers == Peers::roce; }

/// The class of these.
constexpr LinkClass mesh_class(Peers peers) { return peers == Peers::xgmi ? LinkClass::xgmi : LinkClass::roce; }

/// The links of a device to one other. @pre is_mesh(device.peers)
inline LinkSpec mesh_link(const KnownDevice& device) {
  return {link_speeds(device).nvlink * (static_cast<double>(device.links) / mesh_peers), nccl_latency::nvlink};
}

/// @throws InputError  for more devices in a node than have links to each other.
inline void check_mesh(const KnownDevice& device, int devices) {
  if (!is_mesh(device.peers) || devices <= mesh_peers + 1) return;
  throw InputError(concat("a node of ", devices, " ", device.name, " is impossible: each has links to ", mesh_peers,
                          " others; give nodes of at most ", mesh_peers + 1));
}

/// Lets messages between the halves of a node of more than four devices cross the link between its two CPUs.
/// @pre each device has its own port, as ClusterBuilder gives it
inline void pass_sockets(NodeType& type, const LinkSpec& socket) {
  const std::size_t devices = type.devices.size();
  if (devices <= 4) return;
  const auto first = static_cast<std::int32_t>(type.links.size());
  type.links.insert(type.links.end(), 2, Link{LinkClass::socket, LinkEnd::inside, socket.bandwidth, socket.latency});
  for (std::size_t path = 0; path < type.paths.size(); ++path) {
    const bool from = 2 * (path / devices) >= devices;
    const bool to = 2 * (path % devices) >= devices;
    if (from != to) type.paths[path].insert(type.paths[path].begin() + 1, first + (from ? 1 : 0));
  }
}

/// Lets all messages of devices without peer access pass the memory of their host: each byte is written there and read
/// again, so half of what the memory reads and writes together is left for them. What has links of its own is unchanged.
/// Source: NCCL 2.28.9, src/transport/shm.cc; GeForce 30, 40 and 50 have no peer access over PCI Express
/// (NVIDIA/nccl#1127, #1637, NVIDIA/nccl-tests#117).
inline void pass_host_memory(NodeType& type) {
  const KnownDevice* const device = find_device(type.devices.front().name);
  if (device == nullptr || device->peers != Peers::host) return;
  const auto memory = static_cast<std::int32_t>(type.links.size());
  bool any = false;
  // A path to the network ends with its adapter, one from it begins with that.
  const auto pass = [&](std::vector<LinkPath>& paths, bool before_last) {
    for (LinkPath& path : paths) {
      const bool own = std::any_of(path.begin(), path.end(), [&](std::int32_t link) {
        return joins_devices(type.links[static_cast<std::size_t>(link)].kind);
      });
      if (path.empty() || own) continue;
      path.insert(before_last ? path.end() - 1 : path.begin() + 1, memory);
      any = true;
    }
  };
  pass(type.paths, false);
  pass(type.to_network, true);
  pass(type.from_network, false);
  const BytesPerSecond half{link_speeds(*device).host_memory.value() / 2};
  if (any) type.links.push_back({LinkClass::memory, LinkEnd::inside, half, Duration{}});
}

}  // namespace tawpipe
