// Builds regular clusters: nodes of equal devices, each device with its own port into a
// non-blocking switch.
// Not: irregular nodes (topology/routing.hpp) nor named ones (topology/clusters.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/host_memory.hpp"

namespace tawpipe::inline v0 {

/// A link's speed in one direction and the latency it adds to a message.
struct LinkSpec {
  BytesPerSecond bandwidth;
  Duration latency;
};

/// The limit on devices in a node: the paths of a node take 60 bytes for each ordered pair.
inline constexpr int max_devices_per_node = 2048;

/// Builds a regular Cluster. Unset parts have no default speed: build() names what is missing.
///
/// Example:
/// ```cpp
/// const auto cluster = tawpipe::ClusterBuilder{}
///     .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
///     .nodes(3).devices_per_node(8)
///     .intra_node({.bandwidth = 200_GBps, .latency = 3_us})
///     .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})   // one adapter a node, shared by its devices
///     .build();
/// ```
class ClusterBuilder {
 public:
  ClusterBuilder& name(std::string name) {
    name_ = std::move(name);
    return *this;
  }
  ClusterBuilder& device(DeviceSpec device) {
    device_ = std::move(device);
    return *this;
  }
  ClusterBuilder& nodes(int count) {
    nodes_ = count;
    return *this;
  }
  ClusterBuilder& devices_per_node(int count) {
    sizes_.clear();
    devices_per_node_ = count;
    return *this;
  }
  /// Nodes of unequal size: `{8, 8, 4}`. Replaces nodes() and devices_per_node().
  ClusterBuilder& devices_of_nodes(std::vector<std::int32_t> sizes) {
    sizes_ = std::move(sizes);
    return *this;
  }
  /// Each device's own port, in each direction, into the node's non-blocking switch.
  ClusterBuilder& intra_node(LinkSpec link, LinkClass kind = LinkClass::nvlink) {
    intra_ = link;
    intra_kind_ = kind;
    return *this;
  }
  /// In place of ports: each device's own link, in each direction, to each other device of its node.
  ClusterBuilder& mesh(LinkSpec link, LinkClass kind) {
    mesh_ = true;
    return intra_node(link, kind);
  }
  /// A node's adapters (full duplex) into a non-blocking network.
  ClusterBuilder& inter_node(LinkSpec link) {
    inter_ = link;
    return *this;
  }
  /// Number of adapters of a node (default 1). Device i uses adapter i * adapters / devices.
  ClusterBuilder& adapters_per_node(int count) {
    adapters_ = count;
    return *this;
  }

  /// Each device's own link, in each direction, to the memory of its host. Unset: unknown, so
  /// nothing can be copied there.
  ClusterBuilder& host_link(LinkSpec link, LinkClass kind = LinkClass::pcie) {
    host_ = link;
    host_kind_ = kind;
    return *this;
  }

  /// Of each node's host. Unset: that of the usual machine (usual_host_memory(), LinkSpeeds).
  ClusterBuilder& host_memory(HostMemory memory) {
    host_memory_ = memory;
    return *this;
  }

  /// @throws InputError  naming the part that is missing or impossible.
  Cluster build() const;

 private:
  /// Every pair of devices in a kind of node has a path: refuses numbers that would not fit in
  /// memory, before building any.
  static void require_room_for_paths(std::vector<std::int32_t> sizes);

  static void require(const LinkSpec& link, std::string_view what) {
    if (!(link.bandwidth.value() > 0)) throw InputError(concat("the ", what, " bandwidth must be above zero, such as 10Gbps"));
    if (link.latency < Duration{}) throw InputError(concat("the ", what, " latency must not be negative, such as 5us"));
  }

  NodeType node_type(int devices, bool joined) const;

  void add_adapters(int devices, NodeType& type) const;

  void add_host_links(int devices, NodeType& type) const {
    for (int i = 0; i < devices; ++i) {
      const auto first = static_cast<std::int32_t>(type.links.size());
      type.links.insert(type.links.end(), 2, Link{host_kind_, LinkEnd::host, host_.bandwidth, host_.latency});
      type.to_host.push_back({first});
      type.from_host.push_back({first + 1});
    }
  }

  std::string name_ = "cluster";
  DeviceSpec device_;
  int nodes_ = 1;
  int devices_per_node_ = 1;
  std::vector<std::int32_t> sizes_;
  LinkSpec intra_;
  LinkClass intra_kind_ = LinkClass::nvlink;
  bool mesh_ = false;
  LinkSpec inter_;
  int adapters_ = 1;
  LinkSpec host_;
  LinkClass host_kind_ = LinkClass::pcie;
  HostMemory host_memory_;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Cluster ClusterBuilder::build() const {
  std::vector<std::int32_t> sizes = sizes_;
  if (sizes.empty()) {
    if (nodes_ < 1) throw InputError(concat("a cluster of ", nodes_, " nodes is impossible; it needs at least 1"));
    if (devices_per_node_ < 1) {
      throw InputError(concat("a node of ", devices_per_node_, " devices is impossible; it needs at least 1"));
    }
    sizes.assign(static_cast<std::size_t>(nodes_), devices_per_node_);
  }
  require_room_for_paths(sizes);
  std::vector<NodeType> kinds;
  std::vector<std::int32_t> kind_of_node;
  for (const auto size : sizes) {
    std::size_t kind = 0;
    while (kind < kinds.size() && kinds[kind].devices.size() != static_cast<std::size_t>(size)) ++kind;
    if (kind == kinds.size()) kinds.push_back(node_type(size, sizes.size() > 1));
    kind_of_node.push_back(static_cast<std::int32_t>(kind));
  }
  return Cluster{name_, std::move(kinds), std::move(kind_of_node)};
}

TAWPIPE_INLINE void ClusterBuilder::require_room_for_paths(std::vector<std::int32_t> sizes) {
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.back() > max_devices_per_node) {
    throw InputError(concat("a node of ", sizes.back(), " devices is too large: every pair has a path, so at most ",
                            max_devices_per_node, " fit; spread them over several nodes"));
  }
  std::int64_t paths = 0;
  for (const std::int64_t size : sizes) paths += size * size;
  if (paths > std::int64_t{4} * max_devices_per_node * max_devices_per_node) {  // about 1 GB
    throw InputError("so many large nodes of different sizes are too much for one cluster; give them equal sizes");
  }
}

TAWPIPE_INLINE NodeType ClusterBuilder::node_type(int devices, bool joined) const {
  if (devices < 1) throw InputError(concat("a node of ", devices, " devices is impossible; it needs at least 1"));
  if (devices > 1) require(intra_, "intra-node");
  if (joined) require(inter_, "inter-node");
  if (adapters_ < 1) throw InputError("a node needs at least one adapter");
  if (host_memory_.capacity < Bytes{} || host_memory_.bandwidth.value() < 0)
    throw InputError("the host's memory must be above zero, such as 2TB at 400GBps; leave it out for that of the usual machine");
  NodeType type;
  type.name = device_.name;
  type.devices.assign(static_cast<std::size_t>(devices), device_);
  // Links: a port out and a port in for each device, then an adapter out and in for each adapter.
  // A hop's latency is on the sending port; the receiving port adds none.
  for (int i = 0; i < devices && devices > 1 && !mesh_; ++i) {
    type.links.push_back({intra_kind_, LinkEnd::inside, intra_.bandwidth, intra_.latency});
    type.links.push_back({intra_kind_, LinkEnd::inside, intra_.bandwidth, Duration{}});
  }
  type.paths.resize(static_cast<std::size_t>(devices) * static_cast<std::size_t>(devices));
  for (int i = 0; i < devices; ++i) {
    for (int j = 0; j < devices; ++j) {
      if (i == j) continue;
      LinkPath& path = type.paths[static_cast<std::size_t>(i * devices + j)];
      path = {2 * i, 2 * j + 1};
      if (!mesh_) continue;
      path = {static_cast<std::int32_t>(type.links.size())};
      type.links.push_back({intra_kind_, LinkEnd::inside, intra_.bandwidth, intra_.latency});
    }
  }
  if (inter_.bandwidth.value() > 0) add_adapters(devices, type);
  if (host_.bandwidth.value() > 0) add_host_links(devices, type);
  add_host_memory(type, host_memory_);
  return type;
}

TAWPIPE_INLINE void ClusterBuilder::add_adapters(int devices, NodeType& type) const {
  const auto first = static_cast<std::int32_t>(type.links.size());
  for (int a = 0; a < adapters_; ++a) {
    type.links.push_back({LinkClass::network, LinkEnd::adapter_out, inter_.bandwidth, inter_.latency});
    type.links.push_back({LinkClass::network, LinkEnd::adapter_in, inter_.bandwidth, Duration{}});
  }
  for (int i = 0; i < devices; ++i) {
    const std::int32_t adapter = adapters_ >= devices ? i : i * adapters_ / devices;
    type.to_network.push_back({first + 2 * adapter});
    type.from_network.push_back({first + 2 * adapter + 1});
  }
}

}  // namespace tawpipe
#endif
