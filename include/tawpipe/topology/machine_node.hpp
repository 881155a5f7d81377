// A node of eight equal devices, from what a machine's data sheet says: how they are joined, their slots,
// and its adapters.
// Not: any other node (topology/node_graph.hpp), nor which machines there are (topology/clusters.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/peer_access.hpp"
#include "tawpipe/topology/routing.hpp"

namespace tawpipe::inline v0 {

/// What a machine's sheet says; the speeds of the rest are link_speeds() of its device.
struct MachineNode {
  std::string_view device;     ///< by name (topology/devices.hpp)
  int adapters = 8;            ///< several beside one device carry its messages together, as one of their sum
  double gigabits = 400;       ///< a second, of each adapter
  int devices_per_switch = 1;  ///< of PCI Express
  double socket = 10;          ///< GB/s from one CPU to the other, as NCCL assumes (socket_speed())
  double gigatransfers = 0;    ///< of its slots; 0: as usual for the device
  double host_gigabytes = 0;   ///< GB of its memory; 0: usual_host_memory(), which is said as assumed
};

/// The node of such a machine. Devices with NVLinks meet in NVSwitches, those with XGMI or Ethernet ports have some of
/// these to each other one (Peers). Switches of PCI Express are divided between two CPUs, and an adapter is
/// beside the first of the devices that share it; Gaudi's are on the devices.
/// @param type_name  of the node
/// @throws InputError  for an unknown device.
inline NodeType machine_node(std::string type_name, const MachineNode& machine) {
  const KnownDevice& device = known_device(machine.device);
  const LinkSpeeds speeds = link_speeds(device);
  constexpr int devices = 8;
  const bool mesh = is_mesh(device.peers);
  const BytesPerSecond slot = machine.gigatransfers > 0 ? pcie_speed(machine.gigatransfers) : speeds.pcie;
  NodeGraph graph;
  graph.host_memory.capacity = Bytes{static_cast<std::int64_t>(machine.host_gigabytes * 1e9)};
  const int nvswitch = !mesh && device.links > 0 ? graph.add_switch("NVSwitch") : -1;
  const int cpus[] = {graph.add_cpu("CPU0"), graph.add_cpu("CPU1")};
  graph.connect(cpus[0], cpus[1], LinkClass::socket, {BytesPerSecond{machine.socket * 1e9}, speeds.hop_latency});
  const int ports = std::min(machine.adapters, devices);
  const BytesPerSecond port{machine.gigabits * machine.adapters / ports * 1e9 / 8};
  int next = 0;   // adapter
  int above = 0;  // the switch of these devices and adapters
  std::vector<int> gpus;
  for (int i = 0; i < devices; ++i) {
    if (i % machine.devices_per_switch == 0) {
      above = graph.add_switch(concat("PCIe", i / machine.devices_per_switch));
      graph.connect(above, cpus[2 * i / devices], LinkClass::pcie, {slot, speeds.hop_latency});
    }
    gpus.push_back(graph.add_device(concat("GPU", i), spec_of(device)));
    if (nvswitch >= 0)
      graph.connect(gpus.back(), nvswitch, LinkClass::nvlink, {speeds.nvlink * device.links, speeds.nvlink_latency});
    graph.connect(gpus.back(), above, LinkClass::pcie, {slot, speeds.device_pcie_latency});
    for (int j = 0; mesh && j < i; ++j) {
      graph.connect(gpus[static_cast<std::size_t>(j)], gpus.back(), mesh_class(device.peers), mesh_link(device));
    }
    if (next >= ports || next * devices / ports != i) continue;
    const int adapter = graph.add_adapter(concat("NIC", next++), {port, speeds.network_latency});
    if (device.peers == Peers::roce) {
      graph.connect(adapter, gpus.back(), LinkClass::roce, {port, speeds.device_pcie_latency});
    } else {
      graph.connect(adapter, above, LinkClass::pcie, {slot, speeds.hop_latency});
    }
  }
  return make_node_type(std::move(type_name), graph);
}

/// `nodes` of a kind, on a network without limits of its own.
inline Cluster of_nodes(NodeType node, int nodes) {
  std::string name = node.name;
  return Cluster{std::move(name), {std::move(node)}, std::vector<std::int32_t>(static_cast<std::size_t>(nodes), 0)};
}

}  // namespace tawpipe
