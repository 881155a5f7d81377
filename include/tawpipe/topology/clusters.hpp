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
#include "tawpipe/topology/changed_links.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/machine_node.hpp"

namespace tawpipe::inline v0 {

namespace clusters {

namespace detail {

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

// GB200 NVL72 data sheet: 72 GPUs on NVSwitches, 18 NVLinks of the fifth generation each, a 400 Gb/s
// adapter for each GPU; the memory of the modules' CPUs.
inline Cluster gb200_nvl72(int nodes) {
  return renamed(cluster_from_dimensions(concat(nodes, "x72"), "GB200-186G"), "gb200-nvl72");
}

// GB300 NVL72 data sheet: as that, with an 800 Gb/s ConnectX-8 for each GPU.
inline Cluster gb300_nvl72(int nodes) {
  const Cluster cluster = renamed(cluster_from_dimensions(concat(nodes, "x72"), "GB300-279G"), "gb300-nvl72");
  return with_changed_links(cluster, [](Link& link) {
    if (link.kind == LinkClass::network) link.bandwidth = BytesPerSecond{100e9};
  });
}

}  // namespace detail

/// A named cluster, as shown by `tawpipe list clusters`.
struct ClusterPreset {
  std::string_view name;
  std::string_view description;
  std::string_view source;
  int nodes;                    ///< of the named cluster; NAME*NODES replaces it
  Cluster (*build)(int nodes);  ///< null: nodes of `machine`
  MachineNode machine = {};

  /// With that many nodes.
  Cluster make(int count) const {
    return build != nullptr ? build(count) : of_nodes(machine_node(std::string{name}, machine), count);
  }
};

/// Every preset. Speeds are those that NCCL 2.28 assumes: 12 NVLinks of an A100 are 12 x 20 = 240 GB/s a direction, 18 of an
/// H100 18 x 20.6, of a B200 18 x 40.1; an adapter's 25 or 50 GB/s leaves by an x16 slot of 24 (gen 4) or 48 (gen 5).
/// Sockets: socket_speed() of Skylake, Cascade Lake and Ice Lake 10, Sapphire Rapids 22, Emerald Rapids 40, AMD 16.
/// @see cluster_named
inline std::span<const ClusterPreset> all() {
  // device, adapters, Gb/s of each, devices a PCIe switch, GB/s of sockets, GT/s of slots, GB of host memory
  static constexpr ClusterPreset presets[] = {
      {"a800x24-10gbe", "3 nodes of 8 A800-80G, NVLink 160 GB/s, one 10 GbE adapter a node",
       "arXiv 2511.09741; NVLink and TCP at their effective speeds (8 x 20 GB/s as NCCL; 1448/1538 of 10 Gb/s)", 3,
       &detail::a800_10gbe},
      {"dgx-a100",
       "8 A100-80G on NVSwitch 240 GB/s, an HDR 200 Gb/s adapter for each GPU",
       "DGX A100 user guide: 4 PCIe switches of 2 GPUs, 2 x AMD Rome, 2 TB",
       1,
       nullptr,
       {"A100-80G", 8, 200, 2, 16, 0, 2000}},
      {"dgx-h100",
       "8 H100-80G on NVSwitch 370.8 GB/s, an NDR 400 Gb/s adapter for each GPU",
       "DGX H100 user guide: 2 x Sapphire Rapids, 2 TB",
       1,
       nullptr,
       {"H100-80G", 8, 400, 1, 22, 0, 2000}},
      {"hgx-h200",
       "8 H200-141G on NVSwitch 370.8 GB/s, an NDR 400 Gb/s adapter for each GPU",
       "HGX H200 data sheet; DGX H200 data sheet: 2 TB",
       1,
       nullptr,
       {"H200-141G", 8, 400, 1, 22, 0, 2000}},
      {"hgx-b200",
       "8 B200-180G on NVSwitch 721.8 GB/s, a 400 Gb/s adapter for each GPU",
       "HGX B200 data sheet; DGX B200 data sheet: 2 x Emerald Rapids, 2 TB (4 as an option)",
       1,
       nullptr,
       {"B200-180G", 8, 400, 1, 40, 0, 2000}},
      {"hgx-b300",
       "8 B300-270G on NVSwitch 721.8 GB/s, an 800 Gb/s adapter for each GPU, PCIe gen 6",
       "DGX B300 data sheet: 8 ConnectX-8 of 800 Gb/s, 2 TB; sockets as B200's: assumed",
       1,
       nullptr,
       {"B300-270G", 8, 800, 1, 40, 64, 2000}},
      {"gb200-nvl72", "72 GB200-186G on NVSwitch 721.8 GB/s, a 400 Gb/s adapter for each GPU", "GB200 NVL72 data sheet", 1,
       &detail::gb200_nvl72},
      {"gb300-nvl72", "72 GB300-279G on NVSwitch 721.8 GB/s, an 800 Gb/s adapter for each GPU", "GB300 NVL72 data sheet", 1,
       &detail::gb300_nvl72},
      {"p3dn.24xlarge",
       "8 V100-32G with 6 NVLinks 120 GB/s, one 100 Gb/s EFA adapter",
       "Amazon EC2 P3: 2 x Skylake, 768 GiB; its cube of NVLinks as a switch, which rings over 8 GPUs use as much",
       1,
       nullptr,
       {"V100-32G", 1, 100, 2, 10, 0, 824.6}},
      {"p4d.24xlarge",
       "8 A100-40G on NVSwitch 240 GB/s, four 100 Gb/s EFA adapters",
       "Amazon EC2 P4: 2 x Cascade Lake, 1152 GiB",
       1,
       nullptr,
       {"A100-40G", 4, 100, 2, 10, 0, 1236.9}},
      {"p4de.24xlarge",
       "8 A100-80G on NVSwitch 240 GB/s, four 100 Gb/s EFA adapters",
       "Amazon EC2 P4: 2 x Cascade Lake, 1152 GiB",
       1,
       nullptr,
       {"A100-80G", 4, 100, 2, 10, 0, 1236.9}},
      {"p5.48xlarge",
       "8 H100-80G on NVSwitch 370.8 GB/s, 32 EFA adapters of 100 Gb/s, four beside each GPU",
       "Amazon EC2 P5: 2 x AMD Milan, 2 TiB",
       1,
       nullptr,
       {"H100-80G", 32, 100, 1, 16, 0, 2199}},
      {"p5e.48xlarge",
       "8 H200-141G on NVSwitch 370.8 GB/s, 32 EFA adapters of 100 Gb/s, four beside each GPU",
       "Amazon EC2 P5: 2 x AMD Milan, 2 TiB",
       1,
       nullptr,
       {"H200-141G", 32, 100, 1, 16, 0, 2199}},
      {"p5en.48xlarge",
       "8 H200-141G on NVSwitch 370.8 GB/s, 16 EFA adapters of 200 Gb/s, two beside each GPU",
       "Amazon EC2 P5: 2 x Sapphire Rapids, 2 TiB",
       1,
       nullptr,
       {"H200-141G", 16, 200, 1, 22, 0, 2199}},
      {"a2-ultra",
       "8 A100-80G on NVSwitch 240 GB/s, one 100 Gb/s gVNIC",
       "Google Compute Engine, GPU machine types and network bandwidths: 1360 GB",
       1,
       nullptr,
       {"A100-80G", 1, 100, 2, 10, 0, 1360}},
      {"a3-high",
       "8 H100-80G on NVSwitch 370.8 GB/s, four 200 Gb/s adapters (GPUDirect-TCPX)",
       "Google Compute Engine, GPU machine types and network bandwidths: 1872 GB; TCP's latency as NCCL's: assumed",
       1,
       nullptr,
       {"H100-80G", 4, 200, 2, 22, 0, 1872}},
      {"a3-mega",
       "8 H100-80G on NVSwitch 370.8 GB/s, a 200 Gb/s adapter for each GPU (GPUDirect-TCPXO)",
       "Google Compute Engine, GPU machine types and network bandwidths: 1872 GB; TCP's latency as NCCL's: assumed",
       1,
       nullptr,
       {"H100-80G", 8, 200, 2, 22, 0, 1872}},
      {"nd-a100-v4",
       "8 A100-40G on NVSwitch 240 GB/s, an HDR 200 Gb/s adapter for each GPU",
       "Azure ND A100 v4: 2 x AMD Rome, 900 GiB",
       1,
       nullptr,
       {"A100-40G", 8, 200, 2, 16, 0, 966.4}},
      {"hgx-mi300x",
       "8 MI300X-192G, XGMI 48 GB/s between each two, a 400 Gb/s adapter for each GPU",
       "AMD Instinct MI300X platform data sheet; adapters: Azure ND MI300X v5; XGMI as RCCL assumes it",
       1,
       nullptr,
       {"MI300X-192G", 8, 400, 1, 16, 0, 0}},
      {"hgx-mi325x",
       "8 MI325X-256G, XGMI 48 GB/s between each two, a 400 Gb/s adapter for each GPU",
       "AMD Instinct MI325X platform data sheet; adapters as MI300X's: assumed; XGMI as RCCL assumes it",
       1,
       nullptr,
       {"MI325X-256G", 8, 400, 1, 16, 0, 0}},
      {"hgx-mi355x",
       "8 MI355X-288G, XGMI 48 GB/s between each two, a 400 Gb/s adapter for each GPU",
       "AMD Instinct MI355X platform data sheet; adapters as MI300X's: assumed; XGMI as RCCL assumes it",
       1,
       nullptr,
       {"MI355X-288G", 8, 400, 1, 16, 0, 0}},
      {"hgx-gaudi3",
       "8 Gaudi3-128G, Ethernet 75 GB/s between each two, three 200 Gb/s ports of each leave the node",
       "Intel Gaudi documentation, Network Configuration: HLS-3; host as an HGX H100's: assumed",
       1,
       nullptr,
       {"Gaudi3-128G", 24, 200, 1, 22, 0, 0}},
      {"rtx-pro-6000",
       "8 RTXPRO6000-SERVER-96G on four PCIe gen 5 switches and two sockets, two 200 Gb/s adapters",
       "Google Compute Engine G4: 400 Gb/s, AMD; switches as a usual server's: assumed",
       1,
       nullptr,
       {"RTXPRO6000-SERVER-96G", 2, 200, 2, 16, 0, 0}},
      {"l40s-pcie",
       "8 L40S-48G on four PCIe gen 4 switches and two sockets, two 100 Gb/s adapters",
       "L40S product brief; a usual server of two Ice Lake",
       1,
       nullptr,
       {"L40S-48G", 2, 100, 2, 10, 0, 0}},
  };
  return presets;
}

/// The names of all(), in their order.
inline std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& preset : all()) names.emplace_back(preset.name);
  return names;
}

/// Another name of a preset.
struct OtherName {
  std::string_view name;
  std::string_view preset;
};

/// Boards of the same parts, and clouds' machines whose pages print the same devices and adapters: Azure ND and NDm A100 v4,
/// ND H100 v5, H200 v5 and MI300X v5, Amazon EC2 P6-B200 (8 EFA of 400 Gb/s), Google A3 Ultra and A4 (8 of 400 Gb/s).
inline std::span<const OtherName> other_names() {
  static constexpr OtherName others[] = {
      {"hgx-a100", "dgx-a100"},         {"ndm-a100-v4", "dgx-a100"},    {"hgx-h100", "dgx-h100"},
      {"nd-h100-v5", "dgx-h100"},       {"dgx-h200", "hgx-h200"},       {"nd-h200-v5", "hgx-h200"},
      {"a3-ultra", "hgx-h200"},         {"a3-ultragpu-8g", "hgx-h200"}, {"dgx-b200", "hgx-b200"},
      {"p6-b200.48xlarge", "hgx-b200"}, {"a4-high", "hgx-b200"},        {"a4-highgpu-8g", "hgx-b200"},
      {"dgx-b300", "hgx-b300"},         {"a2-ultragpu-8g", "a2-ultra"}, {"a3-highgpu-8g", "a3-high"},
      {"a3-megagpu-8g", "a3-mega"},     {"nd-mi300x-v5", "hgx-mi300x"}};
  return others;
}

/// The preset of that name or of another for the same machine, in any case; null if there is none.
inline const ClusterPreset* find(std::string_view name) {
  std::string lower = lower_case(name);
  for (const auto& [other, preset] : other_names()) lower = lower == other ? preset : lower;
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
