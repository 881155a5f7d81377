// Tests of cost/held_sms.hpp: who holds how many SMs, and the speeds that are left.
// Not: what becomes of a schedule (unit/simulate/held_sms_test.cpp).
#include "tawpipe/cost/held_sms.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/clusters.hpp"
#include "support/hand_built.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/cost/task_factors.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

TEST_CASE("without measured speeds a device computes with the SMs that are left") {
  const SpeedTable table = HeldSms{.pair_ctas = 8}.table(132);
  CHECK(table.whole == 132);
  CHECK(table.parts.size() == 133);
  CHECK(table.at(0) == 132);
  CHECK(table.at(33) == 99);
  CHECK(table.at(132) == 0);
  CHECK(table.at(500) == 0);
  CHECK(table.speed(33) == 0.75);
}

TEST_CASE("measured speeds are joined by straight lines: from 1 alone to a stop where all SMs are held") {
  const SpeedTable table = HeldSms{.pair_ctas = 8, .speeds = {{8, 0.9}, {32, 0.6}}}.table(132);
  CHECK(table.whole == 1'000'000);
  CHECK(table.at(0) == 1'000'000);
  CHECK(table.at(4) == 950'000);
  CHECK(table.at(8) == 900'000);
  CHECK(table.at(20) == 750'000);
  CHECK(table.at(32) == 600'000);
  CHECK(table.at(82) == 300'000);
  CHECK(table.at(132) == 0);
  // Points on the straight line of proportion give proportion, and more CTAs than SMs were measured
  // are never reached.
  const SpeedTable line = HeldSms{.pair_ctas = 8, .speeds = {{50, 0.5}}}.table(100);
  CHECK(line.at(25) == 750'000);
  CHECK(line.at(99) == 10'000);
  CHECK(HeldSms{.pair_ctas = 8, .speeds = {{16, 0.5}}}.table(8).at(8) == 750'000);
  CHECK(HeldSms{.pair_ctas = 8, .speeds = {{8, 0.5}}}.table(8).at(8) == 500'000);
}

TEST_CASE("messages and collectives hold their CTAs; computations and groups of one hold none") {
  const HeldSms held{.pair_ctas = 8, .collective_ctas = 16};
  auto b = support::two_lanes(2);
  const GroupId both = b.group({Rank{0}, Rank{1}});
  const GroupId one = b.group({Rank{0}});
  b.add(support::pass(0, 1, Bytes{1}), {});
  b.add({.op = Op::all_reduce, .lane = LaneId{1}, .rank = Rank{0}, .group = both, .bytes = Bytes{1}}, {});
  b.add({.op = Op::all_reduce, .lane = LaneId{1}, .rank = Rank{0}, .group = one, .bytes = Bytes{1}}, {});
  b.add({.op = Op::forward, .rank = Rank{0}, .stage = StageId{0}, .microbatch = 0}, {});
  const Schedule schedule = b.build();
  const int expected[] = {8, 16, 0, 0};
  for (std::size_t t = 0; t < 4; ++t) CHECK(held.ctas_of(schedule, schedule.tasks()[t]) == expected[t]);
}

TEST_CASE("what copy engines gather and put holds nothing, as far as they reach; sums and broadcasts keep theirs") {
  const Cluster cluster = support::cluster(4, 2);
  auto b = support::two_lanes(4);
  const GroupId inside = b.group({Rank{2}, Rank{3}});
  const GroupId all = b.group({Rank{0}, Rank{1}, Rank{2}, Rank{3}});
  for (const GroupId group : {inside, all}) {
    for (const Op op : {Op::all_gather, Op::all_to_all, Op::reduce_scatter, Op::broadcast}) {
      b.add({.op = op, .lane = LaneId{1}, .rank = group == all ? Rank{0} : Rank{2}, .group = group, .bytes = Bytes{4}}, {});
    }
  }
  b.add({.op = Op::all_to_all,
         .lane = LaneId{1},
         .rank = Rank{2},
         .group = inside,
         .split = b.pair_sizes({Bytes{0}, Bytes{1}, Bytes{2}, Bytes{0}}),
         .bytes = Bytes{4}},
        {});
  b.add(support::pass(0, 1, Bytes{1}), {});
  b.add(support::pass(1, 2, Bytes{1}), {});
  const Schedule schedule = b.build();
  const auto ctas = [&](ZeroCta copy_engines, ZeroCta puts) {
    const HeldSms held{.pair_ctas = 8, .collective_ctas = 16, .copy_engines = copy_engines, .puts = puts};
    HeldCtas of{held, schedule, cluster};
    std::vector<int> found;
    for (const Task& task : schedule.tasks()) found.push_back(of.of(task));
    return found;
  };
  CHECK(ctas(ZeroCta::off, ZeroCta::off) == std::vector{16, 8, 16, 16, 16, 8, 16, 16, 8, 8, 8});
  CHECK(ctas(ZeroCta::node, ZeroCta::off) == std::vector{0, 0, 16, 16, 16, 8, 16, 16, 8, 8, 8});
  CHECK(ctas(ZeroCta::network, ZeroCta::off) == std::vector{0, 0, 16, 16, 0, 0, 16, 16, 8, 8, 8});
  CHECK(ctas(ZeroCta::off, ZeroCta::node) == std::vector{16, 0, 16, 16, 16, 8, 16, 16, 0, 0, 8});
  CHECK(ctas(ZeroCta::off, ZeroCta::network) == std::vector{16, 0, 16, 16, 16, 0, 16, 16, 0, 0, 0});
}

TEST_CASE("collectives of weights and gradients may hold other CTAs") {
  const HeldSms held{.collective_ctas = 16, .state_ctas = 57};
  auto b = support::two_lanes(2);
  const GroupId both = b.group({Rank{0}, Rank{1}});
  for (const Payload payload : {Payload::weights, Payload::gradients, Payload::activations})
    b.add({.op = Op::all_gather, .payload = payload, .lane = LaneId{1}, .rank = Rank{0}, .group = both, .bytes = Bytes{1}}, {});
  const Schedule schedule = b.build();
  const int expected[] = {57, 57, 16};
  for (std::size_t t = 0; t < 3; ++t) CHECK(held.ctas_of(schedule, schedule.tasks()[t]) == expected[t]);
  CHECK_FALSE(HeldSms{.state_ctas = 57}.is_off());
  CHECK(HeldSms{.state_ctas = 0}.is_off());
}

TEST_CASE("where a ring is slow, collectives of weights hold less of the difference") {
  const HeldSms held{.collective_ctas = 16, .state_ctas = 56, .state_rate = 200_GBps};
  const Cluster cluster = ClusterBuilder{}
                              .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                              .nodes(2)
                              .devices_per_node(2)
                              .intra_node({.bandwidth = 240_GBps, .latency = 1_us})
                              .inter_node({.bandwidth = 50_GBps, .latency = 1_us})
                              .build();
  auto b = support::two_lanes(4);
  const GroupId node = b.group({Rank{0}, Rank{1}});
  const GroupId all = b.group({Rank{0}, Rank{1}, Rank{2}, Rank{3}});
  const auto add = [&](Op op, GroupId group, Payload payload) {
    b.add({.op = op, .payload = payload, .lane = LaneId{1}, .rank = Rank{0}, .group = group, .bytes = Bytes{1}}, {});
  };
  add(Op::all_gather, node, Payload::weights);
  add(Op::all_gather, all, Payload::weights);
  add(Op::all_gather, all, Payload::activations);
  add(Op::all_gather, b.group({Rank{0}}), Payload::weights);
  add(Op::all_to_all, all, Payload::activations);
  const Schedule schedule = b.build();
  HeldCtas ctas{held, schedule, cluster};
  const int expected[] = {56, 26, 16, 0, 0};  // 16 + 40 * 50 / 200
  for (std::size_t t = 0; t < 5; ++t) CHECK(ctas.of(schedule.tasks()[t]) == expected[t]);
}

TEST_CASE("the number of SMs is the one given, else the device's; a device without one is named") {
  CHECK(HeldSms{.sms = 100}.sms_of({.name = "d", .sms = 132}) == 100);
  CHECK(HeldSms{}.sms_of({.name = "d", .sms = 132}) == 132);
  CHECK_THROWS_WITH_AS(
      HeldSms{}.sms_of({.name = "d"}),
      "how many SMs a device 'd' has is not known; give its number, or \"sms\" of the device in the cluster's file", InputError);
}

TEST_CASE("all models have the option, off at first; a model around another has the inner one's") {
  CHECK(held_sms_of(RooflineCost{}) == nullptr);
  CHECK(held_sms_of(FixedCost{}) == nullptr);
  CHECK(held_sms_of(MeasuredCost{}) == nullptr);
  const RooflineCost on{.held_sms = {.pair_ctas = 8}};
  CHECK(held_sms_of(on) == &on.held_sms);
  const auto message = [](const Task&) { return 1.0; };
  const FactoredCost<RooflineCost, decltype(message)> factored{on, {}, message};
  CHECK(held_sms_of(factored) == &on.held_sms);
  const RooflineCost off;
  const FactoredCost<RooflineCost, decltype(message)> without{off, {}, message};
  CHECK(held_sms_of(without) == nullptr);
}
