// NCCL's own cost table: latency and bandwidth of each algorithm and protocol, and NCCL's choice
// among them.
// Not: the links loaded (cost/nccl_collectives.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0 {

/// The protocol of a collective's data: words with flags (LL: 8 bytes with 4 of data; LL128: 128
/// with 120), or whole chunks with a fence.
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };
inline constexpr int nccl_protocols = 3;

/// "LL", "LL128", "Simple".
constexpr std::string_view name(NcclProtocol protocol) {
  constexpr std::string_view names[nccl_protocols] = {"LL", "LL128", "Simple"};
  return names[static_cast<int>(protocol)];
}

/// The ranks and links of a collective. Bandwidths are bytes/s in one direction.
struct NcclRing {
  int ranks = 2;
  int nodes = 1;
  bool nvlink = true;        ///< inside a node; otherwise PCI Express
  double bus_bandwidth = 0;  ///< of all channels together, at the ring's slowest link
  /// the maximum of LL: 87.7e9 on A100, 141e9 on H100, 282e9 on B200; see max_ll()
  double max_low_latency = 141e9;
  /// all channels visit the ranks in the same order: a broadcast then pays one hop's latency
  bool same_channels = true;
  /// seconds that a hop inside a node takes beyond NCCL's figure, for any protocol
  double extra_inside = 0;
  double extra_network = 0;  ///< the same between nodes
  int sm = 80;               ///< compute capability of the ranks
  bool rccl = false;         ///< AMD's: its start of an operation, and its steps over XGMI
  /// ranks of a node that sum in its NVSwitches (NVLink SHARP); 0: none can
  int heads = 0;
  double nvlink_bandwidth = 0;  ///< of one rank into those
};

/// The maximum bandwidth of LL, by compute capability (80, 90, 100) and number of nodes. Across
/// nodes on a machine with Intel CPUs NCCL uses its oldest row.
/// Source: NCCL 2.28.9, src/graph/tuning.cc, llMaxBws.
constexpr double max_ll(int sm, int nodes) {
  if (nodes == 1) return sm >= 100 ? 282e9 : sm >= 90 ? 141e9 : sm >= 80 ? 87.7e9 : 39e9;
  return nodes <= 2 ? 39e9 : 20.4e9;
}

struct NcclCost {
  double latency_s = 0;
  double bytes_per_second = 0;  ///< of the whole buffer ("algbw"); 0: not available

  /// Seconds of one call on a buffer of `bytes`.
  double time(double bytes) const { return latency_s + bytes / bytes_per_second; }
};

/// Ring collectives: broadcast and reduce only exist as rings; all-reduce, all-gather and
/// reduce-scatter are rings for large buffers. With n ranks a collective takes nsteps = 2(n-1)
/// (all-reduce), n-1 (all-gather, reduce-scatter) or n (broadcast, reduce) steps:
///
/// | protocol | base us | a step on NVLink | PCI | network | bandwidth of the bus |
/// |---|---|---|---|---|---|
/// | LL | 6.6 | 0.6 (1.0 with several nodes) | 1.0 | 2.7 | min(LL's maximum, busBw / 2) |
/// | LL128 | 14 | 1.9 | 2.5 | 4.0 | 0.92 busBw; NVLink only |
/// | Simple | 8.4 | 3.4 | 5.7 | 14 | busBw |
///
/// latency = base + (nsteps - nInter) intra + nInter network, nInter = nodes - 1 (twice for
/// all-reduce); broadcast and reduce base + one step if all channels agree, otherwise base + nsteps
/// steps of the network (several nodes) or of the node. bandwidth = bus * n / nsteps.
/// RCCL's are 12 and 17 us of base and 0.8 and 2.1 us a step inside a node (LL and Simple; no LL128 on MI300X). Its
/// steps over networks (9.5 and 15 to 320 us) are fits that factors by size correct, which are not here: NCCL's are taken.
/// @pre op is a collective, ranks >= 2
/// Source: NCCL 2.28.9, src/graph/tuning.cc (baseLat, hwLat, ncclTopoTuneModel); RCCL 2.21.5, the same (tuning_model_5).
constexpr NcclCost nccl_ring_cost(Op op, NcclProtocol protocol, const NcclRing& ring) {
  const std::array<double, nccl_protocols> base = ring.rccl ? std::array{12e-6, 12e-6, 17e-6} : std::array{6.6e-6, 14e-6, 8.4e-6};
  const std::array<double, nccl_protocols> nvlink =
      ring.rccl ? std::array{0.8e-6, 0.8e-6, 2.1e-6} : std::array{0.6e-6, 1.9e-6, 3.4e-6};
  constexpr std::array<double, nccl_protocols> pci{1.0e-6, 2.5e-6, 5.7e-6};
  constexpr std::array<double, nccl_protocols> network{2.7e-6, 4.0e-6, 14e-6};
  const auto p = static_cast<std::size_t>(protocol);
  const double n = ring.ranks;
  const bool rooted = is_rooted(op);
  const double passes = detail::ring_passes(op);
  const double steps = rooted ? n : passes * (n - 1);
  double inside = ring.nvlink ? nvlink[p] : pci[p];
  if (protocol == NcclProtocol::ll && ring.nodes > 1) inside = std::max(inside, 1.0e-6);
  inside += ring.extra_inside;
  const double between = network[p] + ring.extra_network;
  NcclCost cost;
  if (rooted) {
    const double hop = ring.nodes > 1 ? between : inside;
    cost.latency_s = base[p] + (ring.same_channels ? hop : steps * hop);
  } else {
    const double across = passes * (ring.nodes - 1);
    cost.latency_s = base[p] + (steps - across) * inside + across * between;
  }
  double bus = ring.bus_bandwidth;
  if (protocol == NcclProtocol::ll) bus = std::min(ring.max_low_latency, bus / 2);
  if (protocol == NcclProtocol::ll128) bus = ring.nvlink && !ring.rccl ? 0.92 * bus : 0;
  cost.bytes_per_second = bus * n / steps;
  return cost;
}

namespace detail {

/// Levels of a binary tree of that many nodes above its leaves: log2, rounded down.
constexpr int tree_levels(int nodes) { return std::bit_width(static_cast<unsigned>(nodes)) - 1; }

}  // namespace detail

/// The all-reduce by a double binary tree: chains inside the nodes, a tree between them, up and
/// down, so half the bus bandwidth.
///
/// | protocol | base us | a step on NVLink | PCI | network | bandwidth of the bus, of 0.92 busBw |
/// |---|---|---|---|---|---|
/// | LL | 6.8 | 0.6 | 1.0 | 5.0 | 1/3.8, at most LL's |
/// | LL128 | 14 | 1.25 | 1.9 | 8.5 | 7/9 in one node, else 120/128; NVLink only |
/// | Simple | 8.4 | 4.0 | 4.0 | 14 | all |
///
/// latency = base + 2 ((ranks / nodes - 1) intra + log2(nodes) network), quotient and logarithm
/// rounded down. RCCL's base and steps inside are as for rings, 0.9 and 2.3 us. NCCL's caps for each channel, by generation, are
/// left out: with several nodes of InfiniBand it estimates up to a quarter less. Source: as nccl_ring_cost.
constexpr NcclCost nccl_tree_cost(NcclProtocol protocol, const NcclRing& ring) {
  const std::array<double, nccl_protocols> base = ring.rccl ? std::array{12e-6, 12e-6, 17e-6} : std::array{6.8e-6, 14e-6, 8.4e-6};
  const std::array<double, nccl_protocols> nvlink =
      ring.rccl ? std::array{0.9e-6, 0.9e-6, 2.3e-6} : std::array{0.6e-6, 1.25e-6, 4.0e-6};
  constexpr std::array<double, nccl_protocols> pci{1.0e-6, 1.9e-6, 4.0e-6};
  constexpr std::array<double, nccl_protocols> network{5.0e-6, 8.5e-6, 14e-6};
  const auto p = static_cast<std::size_t>(protocol);
  const int levels = detail::tree_levels(ring.nodes);
  double bus = 0.92 * ring.bus_bandwidth;
  if (protocol == NcclProtocol::ll) bus = std::min(ring.max_low_latency, bus / 3.8);
  if (protocol == NcclProtocol::ll128) bus = ring.nvlink && !ring.rccl ? bus * (ring.nodes == 1 ? 7.0 / 9 : 120.0 / 128) : 0;
  const double inside = (ring.nvlink ? nvlink[p] : pci[p]) + ring.extra_inside;
  return {base[p] + 2 * ((ring.ranks / ring.nodes - 1) * inside + levels * (network[p] + ring.extra_network)), bus / 2};
}

/// The all-reduce in the node's switches (NVLS), Simple only: each head has a part of the buffer,
/// reads its sum from all ranks and multicasts it; between nodes a tree of each head (NVLSTree).
///
/// Each head's channel has the largest of NCCL's speeds with which heads + 1 fit into a rank's
/// NVLinks, of which 0.85 (Hopper) or 0.74 (Blackwell) are reached, (heads - 1) / heads of it used,
/// in both directions at once. It is at most the adapter's (twice that over two nodes), or in one
/// node the largest speed, and over two nodes 57.7 (Blackwell 96), over more 45.5 (43.8) GB/s.
/// latency = 25 us + 2 log2(nodes) 20.9 us, the logarithm rounded down. bandwidth = heads times
/// the channel's * n / nsteps. All-gathers and reduce-scatters by NVLS never win in NCCL's table:
/// 208 GB/s, where a ring has 411 (8 H100), so they are left out.
/// Source: NCCL 2.28.9, src/graph/tuning.cc (nvlsEfficiency, perChMaxNVLSTreeBws; Blackwell's over
/// more than two nodes is 80 in later versions), src/graph/search.cc (ncclTopoSearchTryNvls,
/// sm90SpeedArrayIntra), src/transport/nvls.cc (more than two ranks in a node).
constexpr NcclCost nccl_nvls_cost(const NcclRing& ring) {
  if (ring.sm < 90 || ring.heads < 2) return {};
  constexpr std::array<double, 11> hopper{60e9, 50e9, 40e9, 30e9, 24e9, 20e9, 15e9, 12e9, 11e9, 6e9, 3e9};
  constexpr std::array<double, 12> blackwell{90e9, 80e9, 70e9, 60e9, 50e9, 45e9, 40e9, 30e9, 24e9, 20e9, 19e9, 18e9};
  const bool newer = ring.sm >= 100;
  const std::span<const double> speeds = newer ? std::span<const double>{blackwell} : std::span<const double>{hopper};
  const double heads = ring.heads;
  double speed = 0;
  for (const double each : speeds) {
    if (speed <= 0 && (heads + 1) * each <= ring.nvlink_bandwidth) speed = each;
  }
  double channel = 2 * speed * (newer ? 0.74 : 0.85) * (heads - 1) / heads;
  const int levels = detail::tree_levels(ring.nodes);
  if (ring.nodes == 1) {
    channel = std::min(channel, speeds[0]);
  } else {
    const double most = ring.nodes == 2 ? (newer ? 96e9 : 57.7e9) : (newer ? 43.8e9 : 45.5e9);
    channel = std::min({channel, most, ring.bus_bandwidth / heads * (ring.nodes == 2 ? 2 : 1)});
  }
  const double n = ring.ranks;
  return {25e-6 + 2 * ring.extra_inside + 2 * levels * (20.9e-6 + ring.extra_network), heads * channel * n / (2 * (n - 1))};
}

/// The protocol whose ring is fastest for `bytes`.
constexpr NcclProtocol nccl_fastest_ring(Op op, const NcclRing& ring, double bytes) {
  NcclProtocol best = NcclProtocol::simple;
  for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128}) {
    const NcclCost cost = nccl_ring_cost(op, protocol, ring);
    if (cost.bytes_per_second > 0 && cost.time(bytes) < nccl_ring_cost(op, best, ring).time(bytes)) best = protocol;
  }
  return best;
}

/// An algorithm and protocol of NCCL for a collective.
struct NcclWay {
  Algorithm algorithm = Algorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;

  bool operator==(const NcclWay&) const = default;
};

/// @pre a tree and NVLS only for all_reduce
constexpr NcclCost nccl_cost(Op op, NcclWay way, const NcclRing& ring) {
  if (way.algorithm == Algorithm::nvls) return nccl_nvls_cost(ring);
  return way.algorithm == Algorithm::tree ? nccl_tree_cost(way.protocol, ring) : nccl_ring_cost(op, way.protocol, ring);
}

/// The choice with the least time for `bytes` in NCCL's table. CollNet and PAT are left out.
constexpr NcclWay nccl_fastest(Op op, const NcclRing& ring, double bytes) {
  NcclWay best{Algorithm::ring, nccl_fastest_ring(op, ring, bytes)};
  if (!detail::has_tree(op)) return best;
  for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
    const NcclCost cost = nccl_tree_cost(protocol, ring);
    if (cost.bytes_per_second > 0 && cost.time(bytes) < nccl_cost(op, best, ring).time(bytes)) best = {Algorithm::tree, protocol};
  }
  const NcclCost in_switch = nccl_nvls_cost(ring);
  if (in_switch.bytes_per_second > 0 && in_switch.time(bytes) < nccl_cost(op, best, ring).time(bytes)) {
    best = {Algorithm::nvls, NcclProtocol::simple};
  }
  return best;
}

}  // namespace tawpipe
