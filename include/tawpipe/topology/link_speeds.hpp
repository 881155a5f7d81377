// How fast links really are: the effective speeds NCCL assumes for NVLink, PCI Express and the
// links between sockets.
// Not: the devices themselves (topology/devices.hpp) nor the sharing of links by transfers.
#pragma once

#include <string_view>

#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// One NVLink in one direction, as NCCL assumes it, by compute capability (80 is 8.0, an A100).
/// The data sheets say 25 GB/s a link (sm70 to sm90) and 50 (sm100); these are what a copy reaches.
/// Source: NCCL 2.28.9, src/graph/topo.h, SM60_NVLINK_BW to SM100_NVLINK_BW.
constexpr BytesPerSecond nvlink_speed(int sm) {
  if (sm >= 100) return BytesPerSecond{40.1e9};
  if (sm >= 90) return BytesPerSecond{20.6e9};
  if (sm == 86) return BytesPerSecond{12e9};
  if (sm >= 70) return BytesPerSecond{20e9};
  return BytesPerSecond{18e9};
}

/// PCI Express in one direction, by transfer rate and width: x16 is 12, 24, 48 GB/s for 8, 16, 32
/// GT/s.
/// Source: NCCL 2.28.9, src/graph/topo.cc, kvDictPciGen: GT/s x 7.5 / 80 GB/s a lane (gen 1 and 2:
/// x 6 / 80).
constexpr BytesPerSecond pcie_speed(double gigatransfers, int lanes = 16) {
  const double per_lane = gigatransfers * (gigatransfers < 8 ? 6.0 : 7.5) / 80.0;
  return BytesPerSecond{per_lane * lanes * 1e9};
}

/// Between two CPU sockets in one direction, from the vendor's CPUID name, family and model; 10
/// GB/s where unknown.
/// Source: NCCL 2.28.9, src/graph/topo.h: Broadwell 6, Skylake and Ice Lake 10, Sapphire Rapids 22,
/// Emerald Rapids 40, AMD 16, Arm 6, Power9 32, Zhaoxin 6 or 9.
constexpr BytesPerSecond socket_speed(std::string_view arch, std::string_view vendor, int family, int model) {
  if (arch == "arm64" || arch == "aarch64") return BytesPerSecond{6e9};
  if (arch == "ppc64") return BytesPerSecond{32e9};
  if (vendor == "AuthenticAMD") return BytesPerSecond{16e9};
  if (vendor == "CentaurHauls" || vendor == "  Shanghai  ") return BytesPerSecond{family == 7 && model == 0x5b ? 9e9 : 6e9};
  if (vendor == "GenuineIntel" && family == 6) {
    if (model >= 0xcf) return BytesPerSecond{40e9};
    if (model >= 0x8f) return BytesPerSecond{22e9};
    return BytesPerSecond{model >= 0x55 ? 10e9 : 6e9};
  }
  return BytesPerSecond{10e9};
}

/// What NCCL expects of a ring of its Simple protocol: a step by NVLink, by PCI Express and by the
/// network, and the start of an operation. Source: NCCL 2.28, src/graph/tuning.cc.
namespace nccl_latency {
inline constexpr Duration nvlink{3'400'000};
inline constexpr Duration pcie{5'700'000};
inline constexpr Duration network{14'000'000};
inline constexpr Duration start{8'400'000};
}  // namespace nccl_latency

/// The speeds, in each direction, that a topology without numbers (`nvidia-smi topo -m`) is given,
/// and the latency of a hop.
///
/// The latencies are NCCL's for one step (nccl_latency), divided over the links of a path: an NVLink
/// port has half of 3.4 us, a device's PCI link half of 5.7, each further PCI or socket link 0.1
/// (what a PCI Express switch adds), an adapter the rest of 14.
struct LinkSpeeds {
  BytesPerSecond nvlink{20e9};   ///< one NVLink
  BytesPerSecond pcie{24e9};     ///< an x16 slot
  BytesPerSecond socket{10e9};   ///< between two CPU sockets
  BytesPerSecond network{25e9};  ///< an adapter's port
  /// of the memory of both sockets of a host, read and written together
  BytesPerSecond host_memory{327e9};
  Duration nvlink_latency{1'700'000};
  Duration device_pcie_latency{2'850'000};
  Duration hop_latency{100'000};
  Duration network_latency{8'300'000};
};

/// The LinkSpeeds of the usual machine around a GPU of compute capability `sm`:
///
/// | sm | machine | NVLink | PCI x16 | sockets | adapter | host memory |
/// |---|---|---|---|---|---|---|
/// | 100 and above | HGX B200, Emerald Rapids, 400 Gb/s | 40.1 | 48 | 40 | 50 | 573 |
/// | 90 | HGX H100, Sapphire Rapids, NDR 400 Gb/s | 20.6 | 48 | 22 | 50 | 491 |
/// | 80, 89 | HGX A100 or L40S, Ice Lake, HDR 200 Gb/s | 20 | 24 | 10 | 25 | 327 |
/// | 86 | RTX 3090, 100 Gb/s | 12 | 24 | 10 | 12.5 | 327 |
/// | 70 and below | DGX-1, DGX-2, EDR 100 Gb/s | 20, 18 | 12 | 10 | 12.5 | 204 |
///
/// Host memory: 0.8, as STREAM reaches, of two sockets of 8 channels of DDR5-5600, DDR5-4800 and
/// DDR4-3200 (Intel's and AMD's data sheets of these processors), or 6 of DDR4-2666.
constexpr LinkSpeeds link_speeds(int sm) {
  LinkSpeeds speeds;
  speeds.nvlink = nvlink_speed(sm);
  speeds.pcie = pcie_speed(sm >= 90 ? 32 : sm >= 80 ? 16 : 8);
  speeds.socket = BytesPerSecond{sm >= 100 ? 40e9 : sm >= 90 ? 22e9 : 10e9};
  speeds.host_memory = BytesPerSecond{sm >= 100 ? 573e9 : sm >= 90 ? 491e9 : sm >= 80 ? 327e9 : 204e9};
  speeds.network = BytesPerSecond{sm >= 90 ? 50e9 : sm == 80 || sm == 89 ? 25e9 : 12.5e9};
  return speeds;
}

}  // namespace tawpipe
