// Clusters by name, each with the source of its numbers.
// Not: the user's own machines (topology/cluster_file.hpp imports those).
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/routing.hpp"

namespace tawpipe::inline v0 {

namespace clusters {

namespace detail {

/// An HGX or DGX node: 8 GPUs on NVSwitches, pairs of `devices_per_switch` on a PCI Express switch
/// with an adapter for each GPU, half of the switches on each of two sockets.
inline NodeType hgx_node(std::string name, std::string_view gpu, int nvlinks, int devices_per_switch, BytesPerSecond sockets) {
  const KnownDevice& device = known_device(gpu);
  LinkSpeeds speeds = link_speeds(device.sm);
  const LinkSpec nvlink{speeds.nvlink * static_cast<double>(nvlinks), speeds.nvlink_latency};
  NodeGraph graph;
  graph.host_memory.capacity = Bytes{2'000'000'000'000};  // that of each DGX with these GPUs
  const int nvswitch = graph.add_switch("NVSwitch");
  const int cpus[] = {graph.add_cpu("CPU0"), graph.add_cpu("CPU1")};
  graph.connect(cpus[0], cpus[1], LinkClass::socket, {sockets, speeds.hop_latency});
  int pcie = 0;
  for (int i = 0; i < 8; ++i) {
    if (i % devices_per_switch == 0) {
      pcie = graph.add_switch(concat("PCIe", i / devices_per_switch));
      graph.connect(pcie, cpus[i / 4], LinkClass::pcie, {speeds.pcie, speeds.hop_latency});
    }
    const int gpu_vertex = graph.add_device(concat("GPU", i), spec_of(device));
    graph.connect(gpu_vertex, nvswitch, LinkClass::nvlink, nvlink);
    graph.connect(gpu_vertex, pcie, LinkClass::pcie, {speeds.pcie, speeds.device_pcie_latency});
    const int adapter = graph.add_adapter(concat("NIC", i), {speeds.network, speeds.network_latency});
    graph.connect(adapter, pcie, LinkClass::pcie, {speeds.pcie, speeds.hop_latency});
  }
  return make_node_type(std::move(name), graph);
}

inline Cluster of_nodes(NodeType node, int nodes) {
  std::string name = node.name;
  return Cluster{std::move(name), {std::move(node)}, std::vector<std::int32_t>(static_cast<std::size_t>(nodes), 0)};
}

// arXiv 2511.09741: nodes of 8 A800-SXM-80GB, 400 GB/s NVLink both ways, 10 GbE between nodes.
// Effective speeds: NVLink 8 links x 20 GB/s = 160 GB/s a direction (NCCL's figure for sm80; the
// sheet's 400 is both ways, 25 a link). Ethernet carries 1448 bytes of TCP payload in each 1538
// bytes on the wire (1500-byte frames with time stamps, plus 38 bytes of header, checksum, preamble
// and gap): 10 Gb/s x 1448 / 1538 = 1.177 GB/s. TCP's latency is about 30 us. The host is reached
// by an x16 slot of PCI Express gen 4 (A800 data sheet), 24 GB/s as NCCL assumes.
inline Cluster a800_10gbe(int nodes) {
  return ClusterBuilder{}
      .name("a800x24-10gbe")
      .device(device_named("A800-80G"))
      .nodes(nodes)
      .devices_per_node(8)
      .intra_node({nvlink_speed(80) * 8.0, nccl_latency::nvlink})
      .inter_node({BytesPerSecond{1.25e9 * 1448.0 / 1538.0}, Duration{30'000'000}})
      .host_link({pcie_speed(16), nccl_latency::pcie})
      .build();
}

// DGX A100 user guide: 8 GPUs with 12 NVLinks each, 4 PCIe gen 4 switches with 2 GPUs and 2 x 200
// Gb/s adapters, 2 x AMD Rome. 12 x 20 = 240 GB/s a direction; the adapter's 25 GB/s leaves by an
// x16 gen 4 slot of 24. 2 TB of host memory.
inline Cluster dgx_a100(int nodes) {
  return of_nodes(hgx_node("dgx-a100", "A100-80G", 12, 2, socket_speed("x86_64", "AuthenticAMD", 23, 49)), nodes);
}

// DGX H100 user guide: 2 TB of host memory, 18 NVLinks a GPU, a 400 Gb/s ConnectX-7 together with each GPU on one gen 5
// switch, 2 x Sapphire Rapids. 18 x 20.6 = 370.8 GB/s a direction; the adapter's 50 GB/s leaves by
// an x16 gen 5 slot of 48.
inline Cluster dgx_h100(int nodes) {
  return of_nodes(hgx_node("dgx-h100", "H100-80G", 18, 1, socket_speed("x86_64", "GenuineIntel", 6, 143)), nodes);
}

// HGX H200 data sheet: the H100 board with H200 GPUs. Host memory: DGX H200 data sheet, 2 TB.
inline Cluster hgx_h200(int nodes) {
  return of_nodes(hgx_node("hgx-h200", "H200-141G", 18, 1, socket_speed("x86_64", "GenuineIntel", 6, 143)), nodes);
}

// HGX B200 data sheet: 18 NVLinks of the fifth generation a GPU (40.1 GB/s each for NCCL), gen 5
// slots, 400 Gb/s adapters. Host memory: DGX B200 data sheet, 2 TB (4 as an option).
inline Cluster hgx_b200(int nodes) {
  return of_nodes(hgx_node("hgx-b200", "B200-180G", 18, 1, socket_speed("x86_64", "GenuineIntel", 6, 207)), nodes);
}

// GB200 NVL72 data sheet: 72 GPUs on NVSwitches, 18 NVLinks of the fifth generation each, a 400 Gb/s
// adapter for each GPU; the memory of the modules' CPUs.
inline Cluster gb200_nvl72(int nodes) {
  return renamed(cluster_from_dimensions(concat(nodes, "x72"), "GB200-186G"), "gb200-nvl72");
}

// L40S product brief: PCIe gen 4 x16, no NVLink. Two Ice Lake sockets, four PCIe switches with two
// GPUs each, and a 100 Gb/s adapter on the first switch of each socket.
inline Cluster l40s_pcie(int nodes) {
  const KnownDevice& device = known_device("L40S-48G");
  const LinkSpeeds speeds = link_speeds(device.sm);
  NodeGraph graph;
  const int cpus[] = {graph.add_cpu("CPU0"), graph.add_cpu("CPU1")};
  graph.connect(cpus[0], cpus[1], LinkClass::socket, {socket_speed("x86_64", "GenuineIntel", 6, 106), speeds.hop_latency});
  for (int s = 0; s < 4; ++s) {
    const int pcie = graph.add_switch(concat("PCIe", s));
    graph.connect(pcie, cpus[s / 2], LinkClass::pcie, {speeds.pcie, speeds.hop_latency});
    for (int i = 2 * s; i < 2 * s + 2; ++i) {
      const int gpu = graph.add_device(concat("GPU", i), spec_of(device));
      graph.connect(gpu, pcie, LinkClass::pcie, {speeds.pcie, speeds.device_pcie_latency});
    }
    if (s % 2 == 0) {
      const int adapter = graph.add_adapter(concat("NIC", s / 2), {BytesPerSecond{12.5e9}, speeds.network_latency});
      graph.connect(adapter, pcie, LinkClass::pcie, {speeds.pcie, speeds.hop_latency});
    }
  }
  return of_nodes(make_node_type("l40s-pcie", graph), nodes);
}

}  // namespace detail

/// A named cluster, as shown by `tawpipe list clusters`.
struct ClusterPreset {
  std::string_view name;
  std::string_view description;
  std::string_view source;
  int nodes;                   ///< of the named cluster; NAME*NODES replaces it
  Cluster (*make)(int nodes);  ///< builds it with that many nodes
};

/// Every preset. @see cluster_named
inline std::span<const ClusterPreset> all() {
  static constexpr ClusterPreset presets[] = {
      {"a800x24-10gbe", "3 nodes of 8 A800-80G, NVLink 160 GB/s, one 10 GbE adapter a node",
       "arXiv 2511.09741; NVLink and TCP at their effective speeds (8 x 20 GB/s as NCCL; 1448/1538 of 10 Gb/s)", 3,
       &detail::a800_10gbe},
      {"dgx-a100", "8 A100-80G on NVSwitch 240 GB/s, an HDR 200 Gb/s adapter for each GPU",
       "DGX A100 user guide; speeds as NCCL 2.28 assumes them", 1, &detail::dgx_a100},
      {"dgx-h100", "8 H100-80G on NVSwitch 370.8 GB/s, an NDR 400 Gb/s adapter for each GPU",
       "DGX H100 user guide; speeds as NCCL 2.28 assumes them", 1, &detail::dgx_h100},
      {"hgx-h200", "8 H200-141G on NVSwitch 370.8 GB/s, an NDR 400 Gb/s adapter for each GPU",
       "HGX H200 data sheet; speeds as NCCL 2.28 assumes them", 1, &detail::hgx_h200},
      {"hgx-b200", "8 B200-180G on NVSwitch 721.8 GB/s, a 400 Gb/s adapter for each GPU",
       "HGX B200 data sheet; speeds as NCCL 2.28 assumes them", 1, &detail::hgx_b200},
      {"gb200-nvl72", "72 GB200-186G on NVSwitch 721.8 GB/s, a 400 Gb/s adapter for each GPU",
       "GB200 NVL72 data sheet; speeds as NCCL 2.28 assumes them", 1, &detail::gb200_nvl72},
      {"l40s-pcie", "8 L40S-48G on four PCIe gen 4 switches and two sockets, two 100 Gb/s adapters",
       "L40S product brief; a usual two-socket server; speeds as NCCL 2.28 assumes them", 1, &detail::l40s_pcie},
  };
  return presets;
}

/// The names of all(), in their order.
inline std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& preset : all()) names.emplace_back(preset.name);
  return names;
}

/// The preset of that name, or of another for the same machine; null if there is none.
inline const ClusterPreset* find(std::string_view name) {
  // Azure's ND H100 v5 is an HGX H100 with a 400 Gb/s adapter for each GPU (its product page).
  static constexpr std::pair<std::string_view, std::string_view> others[] = {{"hgx-a100", "dgx-a100"},
                                                                             {"hgx-h100", "dgx-h100"},
                                                                             {"nd-h100-v5", "dgx-h100"},
                                                                             {"dgx-h200", "hgx-h200"},
                                                                             {"dgx-b200", "hgx-b200"}};
  std::string lower = lower_case(name);
  for (const auto& [other, preset] : others) lower = lower == other ? preset : lower;
  for (const auto& preset : all()) {
    if (preset.name == lower) return &preset;
  }
  return nullptr;
}

/// The preset called `name`, with its own number of nodes. @throws InputError  with the nearest
/// name and all that exist.
inline Cluster named(std::string_view name) {
  const ClusterPreset* const preset = find(name);
  if (preset == nullptr) throw InputError(unknown_name("cluster", name, names()));
  return preset->make(preset->nodes);
}

}  // namespace clusters

/// The preset that `text` names and its number of nodes, with a different number if the text ends
/// in one: "dgx-h100", "dgx-h100*16" or "dgx-h100x16". Null if there is no such preset.
/// @throws InputError  for an impossible number of nodes.
inline std::pair<const clusters::ClusterPreset*, int> find_sized_cluster(std::string_view text) {
  if (const clusters::ClusterPreset* const preset = clusters::find(text)) return {preset, preset->nodes};
  const auto [name, nodes] = split_node_count(text);
  if (const clusters::ClusterPreset* const preset = clusters::find(name)) return {preset, nodes == 0 ? preset->nodes : nodes};
  const std::size_t x = std::min(text.rfind('x'), text.size());
  const clusters::ClusterPreset* const preset = clusters::find(text.substr(0, x));
  return {preset, preset == nullptr ? 0 : split_node_count(concat(preset->name, "*", text.substr(x + 1))).second};
}

/// A preset, with a different number of nodes if `text` ends in one. @see find_sized_cluster
/// @throws InputError  for an unknown name, or an impossible number of nodes.
inline Cluster cluster_named(std::string_view text) {
  const auto [preset, nodes] = find_sized_cluster(text);
  if (preset == nullptr) throw InputError(unknown_name("cluster", split_node_count(text).first, clusters::names()));
  check_cluster_size(nodes, 8);
  return renamed(preset->make(nodes), text);
}

/// So many of a device in the usual machines around it, nodes of 8 or racks of 72: "8xH100", "H100x64",
/// "8x4090". Nothing if the text is something else.
/// @throws InputError  for a number that these do not have
inline std::optional<Cluster> cluster_of_devices(std::string_view text) {
  for (std::size_t at = text.find('x'); at < text.size(); at = text.find('x', at + 1)) {
    const std::string_view first = text.substr(0, at);
    const std::string_view second = text.substr(at + 1);
    for (const auto& [number, name] : {std::pair{first, second}, std::pair{second, first}}) {
      const int count = detail::whole_number(number);
      const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
      const KnownDevice* const device = count < 1 || !plain ? nullptr : device_called(name);
      if (device == nullptr) continue;
      const int largest = device->name.starts_with("GB") ? 72 : 8;
      if (count > largest && count % largest != 0) {
        throw InputError(concat(quote(text), ": ", count, " devices are no whole number of nodes of ", largest,
                                "; write nodes x devices and --device ", device->name));
      }
      const int nodes = std::max(1, count / largest);
      return renamed(cluster_from_dimensions(concat(nodes, "x", count / nodes), device->name), text);
    }
  }
  return std::nullopt;
}

}  // namespace tawpipe
