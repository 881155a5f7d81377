// Bytes that leave a node under each strategy, against their closed forms.
// Not: bytes inside a node.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/clusters.hpp"
#include "support/traffic.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"

using doctest::Approx;
using tawpipe::Cluster;
using tawpipe::Schedule;
using tawpipe::Workload;

namespace {

constexpr double shard = 1e6;  // bytes of an abstract shard, its gradient, or an activation

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

/// Calls `check(P, D, A)` for P devices in D nodes with A microbatches a device.
template <class Check>
void for_each_size(Check&& check) {
  for (const int p : {8, 16, 24, 64}) {
    for (const int d : {2, 3, 4, 8}) {
      if (p % d != 0) continue;
      for (const int a : {1, 4}) {
        CAPTURE(p);
        CAPTURE(d);
        CAPTURE(a);
        check(p, d, a);
      }
    }
  }
}

Schedule fully_sharded(int p, int d, int a, bool two_level) {
  return tawpipe::schedules::fully_sharded(Workload::abstract(p, std::int64_t{a} * p), tawpipe::DeviceGroups::even(p, d),
                                           {.two_level = two_level});
}

}  // namespace

TEST_CASE("flat FSDP: each node sends 3A(P-1)/P of each layer") {
  for_each_size([](int p, int d, int a) {
    // two gathers and a scatter, each W(P-1)/P over every edge of the ring, of which one leaves a
    // node; P layers
    for (const double node : support::bytes_leaving_nodes(fully_sharded(p, d, a, false), support::cluster(p, d))) {
      CHECK(node / shard / p == Approx(3.0 * a * (p - 1) / p).epsilon(1e-12));
    }
  });
}

TEST_CASE("two-level FSDP: each node sends 3A(D-1)/D of each layer") {
  for_each_size([](int p, int d, int a) {
    // P/D rails of D members, each with D of the P pieces of W, (D-1)/D of which every edge
    // carries. A rail's bytes are whole numbers: 1e6 x D / P is rounded down, by less than one in
    // 40 000
    for (const double node : support::bytes_leaving_nodes(fully_sharded(p, d, a, true), support::cluster(p, d))) {
      CHECK(node / shard / p == Approx(3.0 * a * (d - 1) / d).epsilon(3e-5));
    }
  });
}

TEST_CASE("TawPipe: all nodes send (D-1)(P + (P-1)(2A-1)) shards and (D-1)PA gradients, near 3A(D-1)/D of a layer each") {
  for_each_size([](int p, int d, int a) {
    const Cluster cluster = support::cluster(p, d);
    const Schedule schedule = tawpipe::schedules::tawpipe(Workload::abstract(p, std::int64_t{a} * p), cluster.groups_by_node());
    const double found = sum(support::bytes_leaving_nodes(schedule, cluster)) / shard;
    CHECK(found == (d - 1) * (p + (p - 1) * (2 * a - 1)) + (d - 1) * p * a);
    // a node and layer: (D-1)(3PA - (2A-1)) / (DP), below the limit by the shards that stay where a
    // round turns
    const double limit = 3.0 * a * (d - 1) / d;
    CHECK(found / d / p <= limit);
    CHECK(found / d / p == Approx(limit - (2.0 * a - 1) * (d - 1) / d / p).epsilon(1e-12));
  });
}

TEST_CASE("TawPipe with all shards kept in the nodes: each node sends 2(D-1)/D of each layer, however many rounds") {
  for_each_size([](int p, int d, int a) {
    const Cluster cluster = support::cluster(p, d);
    const Schedule schedule = tawpipe::schedules::tawpipe(Workload::abstract(p, std::int64_t{a} * p), cluster.groups_by_node(),
                                                          {.cache = {.limit = tawpipe::schedules::NodeCache::Limit::all}});
    // once each shard to each other node, once each gradient home
    CHECK(sum(support::bytes_leaving_nodes(schedule, cluster)) / shard == 2.0 * (d - 1) * p);
  });
}

TEST_CASE("TawPipe with some shards kept: each kept one goes once where another goes 2A times, its gradient once for A") {
  const int p = 12;
  const int d = 3;
  const Cluster cluster = support::cluster(p, d);
  for (const int a : {1, 3}) {
    for (int kept = 0; kept <= p; ++kept) {
      CAPTURE(a);
      CAPTURE(kept);
      const Schedule schedule = tawpipe::schedules::tawpipe(Workload::abstract(p, std::int64_t{a} * p), cluster.groups_by_node(),
                                                            {.cache = {.shards = kept}});
      // Kept are first those of node 0 (0, 3, 6, 9), then of node 1 (1, 4, 7, 10), then of node 2.
      // Shard 0 stays where a round turns to the next (A-1 times) and shard 11 from each last
      // forward to the first backward (A times) in any case.
      int expected = 0;
      for (int k = 0; k < p; ++k) {
        const bool is_kept = k % d * (p / d) + k / d < kept;
        const int stays = (k == 0 ? a - 1 : 0) + (k == p - 1 ? a : 0);
        expected += (d - 1) * (is_kept ? 2 : 2 * a - stays + a);
      }
      CHECK(sum(support::bytes_leaving_nodes(schedule, cluster)) / shard == expected);
    }
  }
}

TEST_CASE("WeiPipe: a node sends about 3(A+1) of each layer") {
  for_each_size([](int p, int d, int a) {
    const Cluster cluster = support::cluster(p, d);
    const Schedule schedule = tawpipe::schedules::weipipe(Workload::abstract(p, std::int64_t{a} * p), p);
    const double found = sum(support::bytes_leaving_nodes(schedule, cluster)) / shard;
    // On the link out of a node's last rank r: AP+P-2 hand-overs of backward weights, as many of
    // forward weights but one in P, A in all, as many of gradients but the first r.
    const int size = p / d;
    std::int64_t expected = 0;
    for (int r = size - 1; r < p; r += size) expected += 3 * (a * p + p - 2) - a - r;
    // Swaps that seed the backward flow (r with 1 - r) and bring the gradients home (r with -1 -
    // r).
    for (int r = 0; r < p; ++r) {
      if (r / size != (p + 1 - r) % p / size) ++expected;
      if (r / size != (p - 1 - r) / size) ++expected;
    }
    CHECK(found == static_cast<double>(expected));
    CHECK(std::abs(found / d / p - 3.0 * (a + 1)) < 1.5);  // start and end of the flows
  });
}

TEST_CASE("zero-bubble WeiPipe: lines of a node send what TawPipe sends but for what it keeps, a single line one node's more") {
  for_each_size([](int p, int d, int a) {
    const Cluster cluster = support::cluster(p, d);
    const Workload work = Workload::abstract(p, std::int64_t{a} * p);
    const auto leaving = [&](const Schedule& schedule) { return sum(support::bytes_leaving_nodes(schedule, cluster)) / shard; };
    // Each line gets each chunk of other nodes twice a round, and sends its sum home once.
    CHECK(leaving(tawpipe::schedules::weipipe_zb2(work, cluster.groups_by_node())) == 3.0 * a * (d - 1) * p);
    // Down one line, each way: the chunks of other nodes come to its first rank, P - P/D; over each
    // of D-1 borders go all chunks except that of the rank after it. Sums: over each border P, then
    // back from the last node P - P/D.
    const int size = p / d;
    const int weights = (p - size) + (d - 1) * (p - 1);
    const int sums = (d - 1) * p + (p - size);
    CHECK(leaving(tawpipe::schedules::weipipe_zb1(work, p)) == static_cast<double>(a) * (2 * weights + sums));
  });
}

TEST_CASE("naive WeiPipe: in its twice as many turns each link carries what the interleaved one's does") {
  for_each_size([](int p, int d, int a) {
    if (p > 24) return;
    const Cluster cluster = support::cluster(p, d);
    const auto leaving = [&](const Schedule& schedule) { return sum(support::bytes_leaving_nodes(schedule, cluster)) / shard; };
    // 2A - 1 rounds of the flows instead of A
    CHECK(leaving(tawpipe::schedules::weipipe_naive(Workload::abstract(p, std::int64_t{a} * p), p)) ==
          leaving(tawpipe::schedules::weipipe(Workload::abstract(p, (std::int64_t{2} * a - 1) * p), p)));
  });
}

TEST_CASE("TawPipe against a ring laid out node by node, for each added round: (D-1)(3P-2) against D(3P-1)") {
  const auto added = [](int p, int d, bool ring) {
    const Cluster cluster = support::cluster(p, d);
    const auto sent = [&](int a) {
      const Workload work = Workload::abstract(p, std::int64_t{a} * p);
      const Schedule schedule =
          ring ? tawpipe::schedules::weipipe(work, p) : tawpipe::schedules::tawpipe(work, cluster.groups_by_node());
      return sum(support::bytes_leaving_nodes(schedule, cluster)) / shard;
    };
    return sent(3) - sent(2);
  };
  CHECK(added(24, 3, false) == 140);  // 2 x 70
  CHECK(added(24, 3, true) == 213);   // 3 x 71
  CHECK(added(6, 2, false) == 16);
  CHECK(added(6, 2, true) == 34);
  CHECK(added(6, 3, false) == 32);
  CHECK(added(6, 3, true) == 51);
}

TEST_CASE("activation pipelines: each microbatch crosses the border between two nodes once each way") {
  for_each_size([](int p, int d, int a) {
    if (p > 24) return;
    const Workload work = Workload::abstract(p, std::int64_t{a} * p);
    const Cluster cluster = support::cluster(p, d);
    for (const bool overlap : {true, false}) {
      CHECK(sum(support::bytes_leaving_nodes(tawpipe::schedules::gpipe(work, p, {.overlap = overlap}), cluster)) / shard ==
            2.0 * (d - 1) * a * p);
      CHECK(sum(support::bytes_leaving_nodes(tawpipe::schedules::one_f_one_b(work, p, {.overlap = overlap}), cluster)) / shard ==
            2.0 * (d - 1) * a * p);
    }
  });
}
