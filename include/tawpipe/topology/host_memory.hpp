// The memory of a node's host: how much there is, and how fast all its devices together copy to it.
// Not: the links between the devices and it (topology/cluster_builder.hpp, topology/routing.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// Of one node; what is 0 is that of the usual machine.
struct HostMemory {
  Bytes capacity{};
  /// read and written together, shared by the copies of all devices
  BytesPerSecond bandwidth{};

  bool operator==(const HostMemory&) const = default;
};

/// Memory of a usual host: that of the modules' own CPUs; otherwise twice that of its devices, rounded up to a power of two GiB.
/// NVIDIA's DGX A100 of 8 x 40 and 8 x 80 GB have 1 and 2 TB, DGX H100 and H200 2, DGX B200 2 to 4 (data sheets).
inline Bytes usual_host_memory(const NodeType& type) {
  const KnownDevice* const known = find_device(type.devices.front().name);
  if (known != nullptr && known->host_gigabytes > 0)
    return Bytes{static_cast<std::int64_t>(known->host_gigabytes * 1e9) * static_cast<std::int64_t>(type.devices.size())};
  std::int64_t devices = 0;
  for (const DeviceSpec& device : type.devices) devices += device.memory.value();
  std::int64_t memory = std::int64_t{1} << 30;
  while (memory < 2 * devices) memory *= 2;
  return Bytes{memory};
}

/// Gives a node its host's memory: the capacity, and a link that ends the paths to it and begins
/// those from it. @pre its paths to the host are there
inline void add_host_memory(NodeType& type, const HostMemory& memory) {
  const KnownDevice* const device = find_device(type.devices.front().name);
  const bool given = memory.capacity > Bytes{};
  type.host_memory_assumed = !given && (device == nullptr || !(device->host_gigabytes > 0));
  type.host_memory = given ? memory.capacity : usual_host_memory(type);
  if (type.to_host.empty()) return;
  const BytesPerSecond usual =
      device == nullptr ? LinkSpeeds{}.host_memory
      : device->host_gigabytes_per_second > 0
          ? BytesPerSecond{device->host_gigabytes_per_second * 1e9 * static_cast<double>(type.devices.size())}
          : link_speeds(*device).host_memory;
  const auto link = static_cast<std::int32_t>(type.links.size());
  type.links.push_back({LinkClass::memory, LinkEnd::host, memory.bandwidth.value() > 0 ? memory.bandwidth : usual, Duration{}});
  for (LinkPath& path : type.to_host) path.push_back(link);
  for (LinkPath& path : type.from_host) path.insert(path.begin(), link);
}

}  // namespace tawpipe
