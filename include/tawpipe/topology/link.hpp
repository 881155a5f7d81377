// One direction of a link or adapter: the capacity that transfers share.
// Not: paths over several links (topology/cluster.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// The technology of a link; traffic is reported by these classes.
enum class LinkClass : std::uint8_t {
  nvlink,   ///< NVLink, through an NVSwitch or direct
  pcie,     ///< PCI Express, switch or root port
  socket,   ///< between the CPU sockets of a node (UPI, Infinity Fabric)
  network,  ///< a node's adapter, and everything between adapters
  memory,   ///< a host's own memory, both ways together
  xgmi,     ///< AMD's, between two devices
  roce,     ///< Ethernet between two devices of a node (Gaudi)
};
inline constexpr int link_classes = 7;

/// Whether such a link joins two devices of a node, and no others.
constexpr bool joins_two(LinkClass kind) { return kind == LinkClass::xgmi || kind == LinkClass::roce; }
/// Whether such links join devices of a node beside PCI Express.
constexpr bool joins_devices(LinkClass kind) { return kind == LinkClass::nvlink || joins_two(kind); }

/// The class's name in reports: "nvlink", "pcie", "socket", "network", "memory", "xgmi", "roce".
constexpr std::string_view name(LinkClass kind) {
  constexpr std::string_view names[link_classes] = {"nvlink", "pcie", "socket", "network", "memory", "xgmi", "roce"};
  return names[static_cast<int>(kind)];
}

/// The position of a link relative to a node.
enum class LinkEnd : std::uint8_t {
  inside,       ///< within a node
  adapter_out,  ///< an adapter's sending direction
  adapter_in,   ///< an adapter's receiving direction
  fabric,       ///< between nodes: a switch's uplink
  host,         ///< only to the memory of the host: a device's own link, and the memory itself
};

inline constexpr int link_ends = 5;

/// The end's name in files: "inside", "adapter_out", "adapter_in", "fabric", "host".
constexpr std::string_view name(LinkEnd end) {
  constexpr std::string_view names[link_ends] = {"inside", "adapter_out", "adapter_in", "fabric", "host"};
  return names[static_cast<int>(end)];
}

/// One direction of a link. A full-duplex link is two of these.
struct Link {
  LinkClass kind = LinkClass::nvlink;
  LinkEnd end = LinkEnd::inside;
  /// effective, in this direction, shared max-min fairly by the transfers that cross it
  BytesPerSecond bandwidth;
  Duration latency;  ///< added once to each message that crosses it

  bool operator==(const Link&) const = default;
};

}  // namespace tawpipe
