// NCCL's own cost table: latency and bandwidth of each algorithm and protocol, and which one it would choose.
// Not: what the simulator charges (cost/roofline.hpp takes Simple's figures, as large messages get them).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tawpipe/schedule/op.hpp"

namespace tawpipe {

/// How a collective's data travels: words with flags (LL: 8 bytes with 4 of data; LL128: 128 with 120), or whole chunks with a
/// fence.
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };
inline constexpr int nccl_protocols = 3;

/// "LL", "LL128", "Simple".
constexpr std::string_view name(NcclProtocol protocol) {
  constexpr std::string_view names[nccl_protocols] = {"LL", "LL128", "Simple"};
  return names[static_cast<int>(protocol)];
}

/// Where a collective runs. Bandwidths are bytes/s in one direction.
struct NcclRing {
  int ranks = 2;
  int nodes = 1;
  bool nvlink = true;               ///< inside a node; otherwise PCI Express
  double bus_bandwidth = 0;         ///< of all channels together, at the ring's slowest link
  double low_latency_most = 141e9;  ///< what LL reaches at most: 87.7e9 on A100, 141e9 on H100, 282e9 on B200; see ll_most()
  bool same_channels = true;        ///< all channels visit the ranks in one order: a broadcast then pays one hop's latency
};

/// What LL reaches at most, by compute capability (80, 90, 100) and number of nodes. Across nodes on a machine with Intel CPUs
/// NCCL takes its oldest row.
/// Source: NCCL 2.28.9, src/graph/tuning.cc, llMaxBws.
constexpr double ll_most(int sm, int nodes) {
  if (nodes == 1) return sm >= 100 ? 282e9 : sm >= 90 ? 141e9 : sm >= 80 ? 87.7e9 : 39e9;
  return nodes <= 2 ? 39e9 : 20.4e9;
}

struct NcclCost {
  double latency_s = 0;
  double bytes_per_second = 0;  ///< of the whole buffer ("algbw"); 0: not available

  /// Seconds of one call on a buffer of `bytes`.
  double time(double bytes) const { return latency_s + bytes / bytes_per_second; }
};

/// Ring collectives: broadcast and reduce exist as nothing else; all-reduce, all-gather and reduce-scatter are rings for large
/// buffers. With n ranks a collective takes nsteps = 2(n-1) (all-reduce), n-1 (all-gather, reduce-scatter) or n (broadcast,
/// reduce) steps:
///
/// | protocol | base us | a step on NVLink | PCI | network | bandwidth of the bus |
/// |---|---|---|---|---|---|
/// | LL | 6.6 | 0.6 (1.0 with several nodes) | 1.0 | 2.7 | min(LL's most, busBw / 2) |
/// | LL128 | 14 | 1.9 | 2.5 | 4.0 | 0.92 busBw; NVLink only |
/// | Simple | 8.4 | 3.4 | 5.7 | 14 | busBw |
///
/// latency = base + (nsteps - nInter) intra + nInter network, nInter = nodes - 1 (twice for all-reduce); broadcast and reduce
/// base + one step where all channels agree, else base + nsteps steps of the network (several nodes) or of the node.
/// bandwidth = bus * n / nsteps.
/// @pre op is a collective, ranks >= 2
/// Source: NCCL 2.28.9, src/graph/tuning.cc (baseLat, hwLat, ncclTopoTuneModel).
constexpr NcclCost nccl_ring_cost(Op op, NcclProtocol protocol, const NcclRing& ring) {
  constexpr std::array<double, nccl_protocols> base{6.6e-6, 14e-6, 8.4e-6};
  constexpr std::array<double, nccl_protocols> nvlink{0.6e-6, 1.9e-6, 3.4e-6};
  constexpr std::array<double, nccl_protocols> pci{1.0e-6, 2.5e-6, 5.7e-6};
  constexpr std::array<double, nccl_protocols> network{2.7e-6, 4.0e-6, 14e-6};
  const auto p = static_cast<std::size_t>(protocol);
  const double n = ring.ranks;
  const bool rooted = op == Op::broadcast || op == Op::reduce;
  const double steps = op == Op::all_reduce ? 2 * (n - 1) : rooted ? n : n - 1;
  double inside = ring.nvlink ? nvlink[p] : pci[p];
  if (protocol == NcclProtocol::ll && ring.nodes > 1) inside = std::max(inside, 1.0e-6);
  NcclCost cost;
  if (rooted) {
    const double hop = ring.nodes > 1 ? network[p] : inside;
    cost.latency_s = base[p] + (ring.same_channels ? hop : steps * hop);
  } else {
    const double across = (op == Op::all_reduce ? 2.0 : 1.0) * (ring.nodes - 1);
    cost.latency_s = base[p] + (steps - across) * inside + across * network[p];
  }
  double bus = ring.bus_bandwidth;
  if (protocol == NcclProtocol::ll) bus = std::min(ring.low_latency_most, bus / 2);
  if (protocol == NcclProtocol::ll128) bus = ring.nvlink ? 0.92 * bus : 0;
  cost.bytes_per_second = bus * n / steps;
  return cost;
}

/// The all-reduce by a double binary tree inside one node: chains, so 2(n-1) steps and half of the bus.
///
/// | protocol | base us | a step on NVLink | PCI | bandwidth of the bus, of 0.92 busBw |
/// |---|---|---|---|---|
/// | LL | 6.8 | 0.6 | 1.0 | 1/3.8, at most LL's |
/// | LL128 | 14 | 1.25 | 1.9 | 7/9; NVLink only |
/// | Simple | 8.4 | 4.0 | 4.0 | all |
///
/// @pre nodes == 1: across nodes NCCL caps its trees by tables that depend on the generation
/// Source: as nccl_ring_cost.
constexpr NcclCost nccl_tree_cost(NcclProtocol protocol, const NcclRing& ring) {
  constexpr std::array<double, nccl_protocols> base{6.8e-6, 14e-6, 8.4e-6};
  constexpr std::array<double, nccl_protocols> nvlink{0.6e-6, 1.25e-6, 4.0e-6};
  constexpr std::array<double, nccl_protocols> pci{1.0e-6, 1.9e-6, 4.0e-6};
  const auto p = static_cast<std::size_t>(protocol);
  double bus = 0.92 * ring.bus_bandwidth;
  if (protocol == NcclProtocol::ll) bus = std::min(ring.low_latency_most, bus / 3.8);
  if (protocol == NcclProtocol::ll128) bus = ring.nvlink ? bus * 7 / 9 : 0;
  return {base[p] + 2 * (ring.ranks - 1) * (ring.nvlink ? nvlink[p] : pci[p]), bus / 2};
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

}  // namespace tawpipe
