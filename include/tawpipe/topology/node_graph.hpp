// A node as a graph: devices, switches, sockets and adapters, connected by full-duplex links.
// Not: the routes through it (topology/routing.hpp); a Cluster keeps only these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/device.hpp"
#include "tawpipe/topology/link.hpp"

namespace tawpipe::inline v0 {

/// The kind of a vertex in a node's graph.
enum class VertexKind : std::uint8_t {
  device,   ///< a GPU: routes start and end here, none passes through
  switch_,  ///< an NVSwitch or a PCI Express switch
  cpu,      ///< a socket with its root ports
  adapter,  ///< a network adapter: routes that leave the node end here
};
inline constexpr int vertex_kinds = 4;

/// The kind's name in files and messages: "device", "switch", "cpu", "adapter".
constexpr std::string_view name(VertexKind kind) {
  constexpr std::string_view names[vertex_kinds] = {"device", "switch", "cpu", "adapter"};
  return names[static_cast<int>(kind)];
}

/// A vertex of a NodeGraph. `device` is used for devices, `network` (the adapter's own port) for
/// adapters.
struct NodeVertex {
  VertexKind kind = VertexKind::device;
  std::string name;
  DeviceSpec device = {};
  LinkSpec network = {};
};

/// A full-duplex link between vertices `a` and `b`; `link` applies in each direction.
struct NodeEdge {
  int a = 0;
  int b = 0;
  LinkClass kind = LinkClass::pcie;
  LinkSpec link = {};
};

/// A node as a graph. Devices are numbered in the order in which they were added.
///
/// Example:
/// ```cpp
/// tawpipe::NodeGraph graph;
/// const int gpu0 = graph.add_device("GPU0", tawpipe::device_named("L40S-48G"));
/// const int gpu1 = graph.add_device("GPU1", tawpipe::device_named("L40S-48G"));
/// const int pcie = graph.add_switch("PCIe switch");
/// graph.connect(gpu0, pcie, tawpipe::LinkClass::pcie, {24_GBps, 3_us});
/// graph.connect(gpu1, pcie, tawpipe::LinkClass::pcie, {24_GBps, 3_us});
/// const tawpipe::NodeType node = tawpipe::make_node_type("pair", graph);
/// ```
struct NodeGraph {
  std::vector<NodeVertex> vertices;
  std::vector<NodeEdge> edges;
  HostMemory host_memory = {};

  int add_device(std::string name, DeviceSpec spec) { return add({VertexKind::device, std::move(name), std::move(spec), {}}); }
  int add_switch(std::string name) { return add({VertexKind::switch_, std::move(name), {}, {}}); }
  int add_cpu(std::string name) { return add({VertexKind::cpu, std::move(name), {}, {}}); }
  /// @param network  the adapter's port, in each direction.
  int add_adapter(std::string name, LinkSpec network) { return add({VertexKind::adapter, std::move(name), {}, network}); }
  void connect(int a, int b, LinkClass kind, LinkSpec link) { edges.push_back({a, b, kind, link}); }

 private:
  int add(NodeVertex vertex) {
    vertices.push_back(std::move(vertex));
    return static_cast<int>(vertices.size()) - 1;
  }
};

}  // namespace tawpipe
