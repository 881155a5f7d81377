// Tests of cost/nccl_table.hpp against figures that NCCL 2.28's own tuner printed for these
// machines.
// Not: what the simulator charges.
#include "tawpipe/cost/nccl_table.hpp"

#include <doctest/doctest.h>

using tawpipe::nccl_fastest_ring;
using tawpipe::nccl_nvls_cost;
using tawpipe::nccl_ring_cost;
using tawpipe::nccl_tree_cost;
using tawpipe::NcclCost;
using tawpipe::NcclProtocol;
using tawpipe::NcclRing;
using tawpipe::Op;

namespace {

/// Both figures to the digits that NCCL prints: us with one, GB/s with one.
void check(const NcclCost& cost, double us, double gb) {
  CHECK(cost.latency_s * 1e6 == doctest::Approx(us).epsilon(0.0051));
  CHECK(cost.bytes_per_second * 1e-9 == doctest::Approx(gb).epsilon(0.001));
}

}  // namespace

TEST_CASE("8 B200 in one node: 16 channels of 45 GB/s") {
  const NcclRing ring{.ranks = 8, .bus_bandwidth = 720e9, .max_low_latency = tawpipe::max_ll(100, 1)};
  check(nccl_ring_cost(Op::broadcast, NcclProtocol::ll, ring), 7.2, 282.0);
  check(nccl_ring_cost(Op::broadcast, NcclProtocol::ll128, ring), 15.9, 662.4);
  check(nccl_ring_cost(Op::broadcast, NcclProtocol::simple, ring), 11.8, 720.0);
  check(nccl_ring_cost(Op::all_gather, NcclProtocol::ll, ring), 10.8, 322.3);
  check(nccl_ring_cost(Op::all_gather, NcclProtocol::simple, ring), 32.2, 822.9);
  check(nccl_ring_cost(Op::all_reduce, NcclProtocol::ll128, ring), 40.6, 378.5);
  check(nccl_ring_cost(Op::all_reduce, NcclProtocol::simple, ring), 56.0, 411.4);
  const NcclRing tree{.ranks = 8, .bus_bandwidth = 640e9, .max_low_latency = tawpipe::max_ll(100, 1)};  // 16 x 40
  check(nccl_tree_cost(NcclProtocol::ll, tree), 15.2, 77.5);
  check(nccl_tree_cost(NcclProtocol::ll128, tree), 31.5, 229.0);
  check(nccl_tree_cost(NcclProtocol::simple, tree), 64.4, 294.4);
}

TEST_CASE("16 H100 in two nodes: 8 channels of 48 GB/s that take turns in which rank crosses") {
  const NcclRing ring{
      .ranks = 16, .nodes = 2, .bus_bandwidth = 384e9, .max_low_latency = tawpipe::max_ll(90, 2), .same_channels = false};
  check(nccl_ring_cost(Op::broadcast, NcclProtocol::ll, ring), 49.8, 39.0);
  check(nccl_ring_cost(Op::broadcast, NcclProtocol::simple, ring), 232.4, 384.0);
  check(nccl_ring_cost(Op::reduce_scatter, NcclProtocol::ll, ring), 23.3, 41.6);
  check(nccl_ring_cost(Op::all_gather, NcclProtocol::ll128, ring), 44.6, 376.8);  // NCCL caps LL128's channels: 313.2
  check(nccl_ring_cost(Op::all_gather, NcclProtocol::simple, ring), 70.0, 409.6);
  check(nccl_ring_cost(Op::all_reduce, NcclProtocol::simple, ring), 131.6, 204.8);
}

TEST_CASE("sums in the switches: one to four nodes of 8 H100, one of 8 B200") {
  NcclRing ring{.ranks = 8, .bus_bandwidth = 360e9, .sm = 90, .heads = 8, .nvlink_bandwidth = 370.8e9};
  check(nccl_nvls_cost(ring), 25.0, 272.0);
  ring = {.ranks = 16, .nodes = 2, .bus_bandwidth = 384e9, .sm = 90, .heads = 8, .nvlink_bandwidth = 370.8e9};
  check(nccl_nvls_cost(ring), 66.8, 246.2);
  ring.ranks = 32;
  ring.nodes = 4;
  check(nccl_nvls_cost(ring), 108.6, 187.9);
  check(nccl_nvls_cost({.ranks = 8, .bus_bandwidth = 720e9, .sm = 100, .heads = 8, .nvlink_bandwidth = 721.8e9}), 25.0, 411.4);
  CHECK(nccl_nvls_cost({.ranks = 8, .bus_bandwidth = 240e9, .sm = 80, .heads = 8, .nvlink_bandwidth = 240e9}).bytes_per_second ==
        0);
}

TEST_CASE("8 L40S on PCI Express: one channel of 10 GB/s, no LL128") {
  const NcclRing ring{.ranks = 8, .nvlink = false, .bus_bandwidth = 10e9, .max_low_latency = tawpipe::max_ll(89, 1)};
  check(nccl_ring_cost(Op::broadcast, NcclProtocol::ll, ring), 7.6, 5.0);
  check(nccl_ring_cost(Op::all_gather, NcclProtocol::simple, ring), 48.3, 11.4286);
  check(nccl_ring_cost(Op::all_reduce, NcclProtocol::simple, ring), 88.2, 5.7143);
  CHECK(nccl_ring_cost(Op::all_reduce, NcclProtocol::ll128, ring).bytes_per_second == 0);
  check(nccl_tree_cost(NcclProtocol::simple, ring), 64.4, 4.6);
  // NCCL prints LL for broadcasts from 1 KiB and Simple from 64 KiB on
  CHECK(nccl_fastest_ring(Op::broadcast, ring, 1024) == NcclProtocol::ll);
  CHECK(nccl_fastest_ring(Op::broadcast, ring, 32768) == NcclProtocol::ll);
  CHECK(nccl_fastest_ring(Op::broadcast, ring, 131072) == NcclProtocol::simple);
}
