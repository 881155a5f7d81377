// Tests of cost/nccl_collectives.hpp: what NCCL's table says of a group is what the simulator
// charges, and shares.
// Not: the table's figures (nccl_table_test.cpp).
#include "tawpipe/cost/nccl_collectives.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using tawpipe::Algorithm;
using tawpipe::Bytes;
using tawpipe::Cluster;
using tawpipe::nccl_choice;
using tawpipe::nccl_cost;
using tawpipe::nccl_path;
using tawpipe::nccl_ring;
using tawpipe::NcclProtocol;
using tawpipe::NcclRing;
using tawpipe::NcclWay;
using tawpipe::Op;
using tawpipe::Path;
using tawpipe::Rank;

namespace {

/// Nodes of 8 H100, NVLink 360 GB/s, adapters of 48 GB/s; the latencies that NCCL assumes.
Cluster h100(int nodes, int adapters = 8) {
  tawpipe::ClusterBuilder builder;
  builder.device({.name = "H100-80G", .memory = 80_GiB, .peak = 989_TFLOPS, .memory_bandwidth = 3350_GBps})
      .nodes(nodes)
      .devices_per_node(8)
      .intra_node({.bandwidth = 360_GBps, .latency = 3400_ns});
  if (nodes > 1) builder.inter_node({.bandwidth = 48_GBps, .latency = 14_us}).adapters_per_node(adapters);
  return builder.build();
}

std::vector<Rank> first_ranks(int count) {
  std::vector<Rank> ranks;
  for (int r = 0; r < count; ++r) ranks.push_back(Rank{r});
  return ranks;
}

/// Seconds of a single flow, latency included.
double seconds_alone(const Path& path, double bytes, const Cluster& cluster) {
  return tawpipe::to_seconds(path.latency) + path.fraction * bytes / tawpipe::detail::alone_on(path.loads, cluster);
}

}  // namespace

TEST_CASE("one node of H100 is charged what NCCL's tuner printed for it, at every size") {
  const Cluster cluster = h100(1);
  const auto ranks = first_ranks(8);
  const NcclRing ring = nccl_ring(ranks, cluster);
  CHECK(ring.ranks == 8);
  CHECK(ring.nodes == 1);
  CHECK(ring.nvlink);
  CHECK(ring.same_channels);
  CHECK(ring.bus_bandwidth == Approx(360e9));
  CHECK(ring.max_low_latency == 141e9);
  CHECK(ring.extra_inside == Approx(0.0));
  // NCCL 2.28.9: AllGather LL 10.8 us and 161.1 GB/s, LL128 27.3 and 378.5, Simple 32.2 and 411.4.
  const auto all_gather = [&](double bytes) {
    return seconds_alone(nccl_path(Op::all_gather, ranks, Rank{0}, bytes, cluster), bytes, cluster) * 1e6;
  };
  CHECK(all_gather(1024) == Approx(10.8 + 1024 / 161.1e3).epsilon(1e-3));
  CHECK(all_gather(16e6) == Approx(27.3 + 16e6 / 378.5e3).epsilon(1e-3));
  CHECK(all_gather(1e9) == Approx(32.2 + 1e9 / 411.4e3).epsilon(1e-3));
  // Broadcast Simple 11.8 us and 360 GB/s: it exists as a ring only.
  const Path broadcast = nccl_path(Op::broadcast, ranks, Rank{3}, 1e9, cluster);
  CHECK(seconds_alone(broadcast, 1e9, cluster) * 1e6 == Approx(11.8 + 1e9 / 360e3).epsilon(1e-3));
}

TEST_CASE("an all-reduce in one node of H100 is summed by its switches from 2 MiB on, of four ranks by a ring") {
  const Cluster cluster = h100(1);
  const auto ranks = first_ranks(8);
  const NcclRing ring = nccl_ring(ranks, cluster);
  CHECK(ring.heads == 8);
  // NCCL 2.28.9 prints LL below 2048K, then NVLS: 25.0 us and 272.0 GB/s.
  CHECK(nccl_choice(Op::all_reduce, ring, 1024 * 1024) == NcclWay{Algorithm::ring, NcclProtocol::ll});
  CHECK(nccl_choice(Op::all_reduce, ring, 2048 * 1024) == NcclWay{Algorithm::nvls, NcclProtocol::simple});
  CHECK(seconds_alone(nccl_path(Op::all_reduce, ranks, Rank{0}, 1e9, cluster), 1e9, cluster) * 1e6 ==
        Approx(25 + 1e9 / 272e3).epsilon(1e-3));
  for (const int few : {2, 4}) {
    const auto part = first_ranks(few);
    CHECK(nccl_choice(Op::all_reduce, nccl_ring(part, cluster), 1e9) == NcclWay{Algorithm::ring, NcclProtocol::simple});
  }
}

TEST_CASE("an all-reduce over two nodes of H100 is a tree of sums in switches, by one rank a node never") {
  const Cluster cluster = h100(2);
  const NcclRing ring = nccl_ring(first_ranks(16), cluster);
  CHECK(nccl_choice(Op::all_reduce, ring, 1024 * 1024) == NcclWay{Algorithm::tree, NcclProtocol::ll128});
  CHECK(nccl_choice(Op::all_reduce, ring, 1e9) == NcclWay{Algorithm::nvls, NcclProtocol::simple});
  CHECK(nccl_ring(std::vector{Rank{0}, Rank{8}}, cluster).heads == 0);
}

TEST_CASE("an all-reduce over several nodes is a tree when it is small and a ring when it is large") {
  const Cluster cluster = h100(4);
  const NcclRing ring = nccl_ring(first_ranks(32), cluster);
  CHECK(ring.nodes == 4);
  CHECK_FALSE(ring.same_channels);  // 8 adapters: each channel leaves by another
  CHECK(nccl_choice(Op::all_reduce, ring, 1024) == NcclWay{Algorithm::tree, NcclProtocol::ll});
  CHECK(nccl_choice(Op::all_reduce, ring, 1e12) == NcclWay{Algorithm::ring, NcclProtocol::simple});
  // NCCL 2.28.9 prints 35.2, 65.5 and 120.4 us for trees over 4 nodes of 8.
  CHECK(nccl_cost(Op::all_reduce, {Algorithm::tree, NcclProtocol::ll}, ring).latency_s * 1e6 == Approx(35.2));
  CHECK(nccl_cost(Op::all_reduce, {Algorithm::tree, NcclProtocol::ll128}, ring).latency_s * 1e6 == Approx(65.5));
  CHECK(nccl_cost(Op::all_reduce, {Algorithm::tree, NcclProtocol::simple}, ring).latency_s * 1e6 == Approx(120.4));
  for (const double bytes : {1024.0, 1e6, 1e9}) {
    const NcclWay way = nccl_choice(Op::all_reduce, ring, bytes);
    CHECK(seconds_alone(nccl_path(Op::all_reduce, first_ranks(32), Rank{0}, bytes, cluster), bytes, cluster) ==
          Approx(nccl_cost(Op::all_reduce, way, ring).time(bytes)));
  }
}

TEST_CASE("channels leave a node by all its adapters") {
  const std::vector<Rank> ranks = first_ranks(16);
  // 8 channels at 8 adapters of 48 GB/s; a device's NVLink carries 7 of them, so its 360 GB/s do
  // not bind. One adapter: 48.
  CHECK(nccl_ring(ranks, h100(2)).bus_bandwidth == Approx(8 * 48e9));
  CHECK(nccl_ring(ranks, h100(2, 4)).bus_bandwidth == Approx(4 * 48e9));
  CHECK(nccl_ring(ranks, h100(2, 1)).bus_bandwidth == Approx(48e9));
  CHECK(nccl_ring(ranks, h100(2, 1)).same_channels);
  const auto orders = tawpipe::detail::channel_orders(ranks, h100(2, 4));
  CHECK(orders.size() == 4);
  for (const auto& order : orders) {
    CHECK(std::is_permutation(order.begin(), order.end(), ranks.begin(), ranks.end()));
  }
  // Devices 0, 2, 4 and 6 are the first at an adapter; the second channel leaves node 0 from
  // device 2.
  CHECK(orders[1][7] == Rank{2});
  CHECK(orders[1][0] == Rank{3});
}

TEST_CASE("a route that is slower to begin than NCCL assumes adds to its latency, not to its choice") {
  const auto tcp = tawpipe::ClusterBuilder{}
                       .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                       .nodes(3)
                       .devices_per_node(1)
                       .intra_node({.bandwidth = 160_GBps, .latency = 3400_ns})
                       .inter_node({.bandwidth = 1_GBps, .latency = 30_us})
                       .build();
  const NcclRing ring = nccl_ring(first_ranks(3), tcp);
  CHECK(ring.extra_network == Approx(16e-6));  // 30 us instead of 14
  CHECK_FALSE(ring.nvlink);                    // no two ranks in a node: no LL128
  // All-gather, LL: 6.6 + 2 hops of 2.7 + 16 us; 0.5 of the bus, 3 ranks in 2 steps.
  const Path path = nccl_path(Op::all_gather, first_ranks(3), Rank{0}, 1000, tcp);
  CHECK(tawpipe::to_seconds(path.latency) == Approx(6.6e-6 + 2 * 18.7e-6));
  CHECK(seconds_alone(path, 1000, tcp) == Approx(6.6e-6 + 2 * 18.7e-6 + 1000 / 0.75e9));
}

TEST_CASE("sizes of one group have paths of their own, and two flows still share") {
  // Two all-gathers on separate groups of two, then two that share the adapter between the nodes.
  const Cluster cluster = h100(2, 1);
  tawpipe::RooflineCost cost;
  cost.nccl_collectives = true;
  tawpipe::ScheduleBuilder builder{"test", tawpipe::Workload::abstract(1, 1), 16, {"a", "b"}};
  const auto one = builder.group({Rank{0}, Rank{8}});
  const auto other = builder.group({Rank{1}, Rank{9}});
  const auto gather = [&](tawpipe::GroupId group, Rank rank, std::int64_t bytes, std::int8_t lane) {
    tawpipe::Task task{.op = Op::all_gather, .rank = rank, .group = group, .bytes = Bytes{bytes}};
    task.lane = tawpipe::id<tawpipe::LaneId>(lane);
    return builder.add(task, {});
  };
  gather(one, Rank{0}, 1'000, 0);
  gather(one, Rank{0}, 960'000'000, 0);
  gather(other, Rank{1}, 960'000'000, 1);
  const tawpipe::Schedule schedule = builder.build();
  const tawpipe::Timeline timeline = tawpipe::simulate(schedule, cluster, cost);
  // LL: 6.6 + 2.7 us, 1 kB at 48 GB/s (half the bus, two ranks in one step).
  CHECK(tawpipe::to_seconds(timeline.end[0].since_start()) == Approx(9.3e-6 + 1000 / 48e9));
  // Simple: 8.4 + 14 us; 480 MB over each edge, two flows on an adapter of 48 GB/s: 20 ms, not 10.
  CHECK(tawpipe::to_seconds(timeline.end[2].since_start()) == Approx(0.02 + 22.4e-6).epsilon(1e-4));
}

TEST_CASE("rings over XGMI use all links between their members") {
  const Cluster one = tawpipe::cluster_named("hgx-mi300x");
  // n - 1 links of 48 GB/s from each of n members.
  for (const int members : {2, 4, 8}) {
    CAPTURE(members);
    const auto ranks = first_ranks(members);
    CHECK(nccl_ring(ranks, one).bus_bandwidth == Approx((members - 1) * 48e9));
    const Path path = nccl_path(Op::all_gather, ranks, Rank{0}, 1e9, one);
    CHECK(path.loads.size() == static_cast<std::size_t>(members * (members - 1)));
    CHECK(nccl_choice(Op::all_reduce, nccl_ring(ranks, one), 1e9).algorithm != Algorithm::nvls);
  }
  CHECK(nccl_ring(first_ranks(8), one).nvlink);
  // RCCL's: 17 us and seven steps of 2.1 us of Simple; 336 GB/s of the bus, of which a gather over eight uses 7/8 of its bytes.
  const tawpipe::NcclRing eight = nccl_ring(first_ranks(8), one);
  CHECK(eight.rccl);
  CHECK(tawpipe::nccl_ring_cost(Op::all_gather, NcclProtocol::simple, eight).latency_s == Approx(17e-6 + 7 * 2.1e-6));
  CHECK(tawpipe::nccl_ring_cost(Op::all_gather, NcclProtocol::ll128, eight).bytes_per_second == 0);
  CHECK_FALSE(nccl_ring(first_ranks(8), tawpipe::cluster_named("hgx-gaudi3")).rccl);
  // Between nodes eight channels leave by adapters of 400 Gb/s in slots of 48 GB/s: 384, more than the 336 of seven links.
  const Cluster two = tawpipe::cluster_named("hgx-mi300x*2");
  CHECK(nccl_ring(first_ranks(16), two).bus_bandwidth == Approx(7 * 48e9));
  // Seven links of 75 GB/s, and 75 of each device between nodes.
  CHECK(nccl_ring(first_ranks(8), tawpipe::cluster_named("hgx-gaudi3")).bus_bandwidth == Approx(7 * 75e9));
  CHECK(nccl_ring(first_ranks(16), tawpipe::cluster_named("hgx-gaudi3*2")).bus_bandwidth == Approx(7 * 75e9));
}

TEST_CASE("rings of GeForce cross the sockets, through the hosts' memory") {
  // NCCL's own graph of 8 RTX 4090 has 24 GB/s to the others of a socket and 10 across (NVIDIA/nccl-tests#307).
  CHECK(nccl_ring(first_ranks(8), tawpipe::cluster_from_dimensions("1x8", "RTX4090-24G")).bus_bandwidth == Approx(10e9));
  CHECK(nccl_ring(first_ranks(4), tawpipe::cluster_from_dimensions("1x4", "RTX4090-24G")).bus_bandwidth == Approx(24e9));
}
