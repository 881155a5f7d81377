// Tests of schedules/tawpipe.hpp: its closed forms under fixed times, and its options.
// Not: the messages one by one (oracle/traces_test.cpp) nor what every schedule must do
// (properties/).
#include "tawpipe/schedules/tawpipe.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_file.hpp"

using namespace tawpipe::literals;
using tawpipe::Bytes;
using tawpipe::DeviceGroups;
using tawpipe::Duration;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Rank;
using tawpipe::Schedule;
using tawpipe::TaskId;
using tawpipe::Timeline;
using tawpipe::Workload;
using tawpipe::schedules::Order;
using tawpipe::schedules::Prefetch;
using tawpipe::schedules::TawpipeOptions;

namespace {

/// Backward is two forwards, as the paper assumes; nothing takes time to travel.
const FixedCost unit{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s};

Schedule build(int ranks, int groups, std::int64_t microbatches, const TawpipeOptions& options) {
  return tawpipe::schedules::tawpipe(Workload::abstract(ranks, microbatches), DeviceGroups::even(ranks, groups), options);
}

/// Calls `check(P, D, N)` for all P <= 24, D dividing P, N = P, 2P, 4P.
template <class Check>
void for_each_size(Check&& check) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    for (int groups = 1; groups <= ranks; ++groups) {
      if (ranks % groups != 0) continue;
      for (const int rounds : {1, 2, 4}) {
        CAPTURE(ranks);
        CAPTURE(groups);
        CAPTURE(rounds);
        check(ranks, groups, rounds * ranks);
      }
    }
  }
}

/// Picoseconds in which a rank forwards or backwards.
std::int64_t work_of(const Schedule& schedule, const Timeline& timeline, Rank rank) {
  std::int64_t sum = 0;
  for (const TaskId task : schedule.program(rank, 0)) {
    if (tawpipe::is_work(schedule.task(task).op)) sum += timeline.duration_of(task).value();
  }
  return sum;
}

struct Span {
  double start;
  double end;

  bool operator==(const Span&) const = default;
};

/// From the first start to the last end of a rank's tasks of one kind, in seconds.
Span span_of(const Schedule& schedule, const Timeline& timeline, Rank rank, Op op) {
  auto first = Duration::max();
  Duration last;
  for (const TaskId task : schedule.program(rank, 0)) {
    if (schedule.task(task).op != op) continue;
    first = std::min(first, timeline.start_of(task).since_start());
    last = std::max(last, timeline.end_of(task).since_start());
  }
  return {tawpipe::to_seconds(first), tawpipe::to_seconds(last)};
}

}  // namespace

TEST_CASE("as the paper draws it an iteration takes (N/P)(3P+1) + D-1 forwards") {
  for_each_size([](int p, int d, int n) {
    const Timeline timeline = simulate(build(p, d, n, {.order = Order::paper}), support::cluster(p, d), unit);
    CHECK(timeline.makespan() == 1_s * (std::int64_t{n} / p * (3 * p + 1) + d - 1));
  });
}

TEST_CASE("as the paper draws it the bubble is ((D-1)P + N) / ((3N+D-1)P + N)") {
  for_each_size([](int p, int d, int n) {
    const Schedule schedule = build(p, d, n, {.order = Order::paper});
    const Timeline timeline = simulate(schedule, support::cluster(p, d), unit);
    const std::int64_t total = p * timeline.makespan().value();
    std::int64_t idle = total;
    for (int r = 0; r < p; ++r) idle -= work_of(schedule, timeline, Rank{r});
    // idle / total, in whole seconds and multiplied out: exact
    const std::int64_t second = (1_s).value();
    CHECK(idle / second * (std::int64_t{3 * n + d - 1} * p + n) == total / second * (std::int64_t{d - 1} * p + n));
  });
}

TEST_CASE("the paper's figure: six devices in three groups take 21 s, a seventh of it idle") {
  const Schedule schedule = build(6, 3, 6, {.order = Order::paper});
  const Timeline timeline = simulate(schedule, support::cluster(6, 3), unit);
  CHECK(timeline.makespan() == 21_s);
  // Six shards, so six forwards and six backwards of two units. Group 0: 0..6, 6..18, then its idle
  // unit to 19. Group 1 starts one unit late and pauses one between: 1..7, 8..20. Group 2: 2..8,
  // 9..21.
  const Span forwards[] = {{0, 6}, {1, 7}, {2, 8}};
  const Span backwards[] = {{6, 18}, {8, 20}, {9, 21}};
  // the units drawn idle lie around (group 0: 18..19; group 1: 0..1 and 7..8; group 2: 0..2 and
  // 8..9)
  const Span idle[] = {{18, 19}, {0, 8}, {0, 9}};
  std::int64_t work = 0;
  for (int r = 0; r < 6; ++r) {
    CAPTURE(r);
    CHECK(span_of(schedule, timeline, Rank{r}, Op::forward) == forwards[r / 2]);
    CHECK(span_of(schedule, timeline, Rank{r}, Op::backward) == backwards[r / 2]);
    CHECK(span_of(schedule, timeline, Rank{r}, Op::idle) == idle[r / 2]);
    work += work_of(schedule, timeline, Rank{r});
  }
  // 6 microbatches x 6 shards x 3 units = 108 of 6 x 21 = 126: 18/126 = 1/7 idle
  CHECK(7 * (126 - work / (1_s).value()) == 126);
}

TEST_CASE("eager order is never slower than the paper's and needs at most 3N + D-1 forwards") {
  for_each_size([](int p, int d, int n) {
    const auto cluster = support::cluster(p, d);
    const Duration eager = simulate(build(p, d, n, {}), cluster, unit).makespan();
    CHECK(eager <= simulate(build(p, d, n, {.order = Order::paper}), cluster, unit).makespan());
    CHECK(eager <= 1_s * (std::int64_t{3} * n + d - 1));
    CHECK(eager >= 1_s * (std::int64_t{3} * n));  // each device has N/P microbatches of P shards of 3 units
  });
}

TEST_CASE("more buffers never make it slower, one buffer or no overlap never faster") {
  const FixedCost cost{.forward = 10_s, .backward_input = 10_s, .backward_weight = 10_s, .transfer = 3_s};
  for (const auto& size : {std::pair{4, 2}, {6, 3}, {6, 2}, {8, 4}}) {
    const int p = size.first;
    const int d = size.second;
    CAPTURE(p);
    CAPTURE(d);
    const auto cluster = support::cluster(p, d);
    const Duration one = simulate(build(p, d, 2 * p, {.buffers = 1}), cluster, cost).makespan();
    const Duration two = simulate(build(p, d, 2 * p, {.buffers = 2}), cluster, cost).makespan();
    const Duration three = simulate(build(p, d, 2 * p, {.buffers = 3}), cluster, cost).makespan();
    const Duration serial = simulate(build(p, d, 2 * p, {.overlap = false}), cluster, cost).makespan();
    CHECK(two <= one);
    CHECK(three <= two);
    CHECK(two <= serial);
    CHECK(serial > simulate(build(p, d, 2 * p, {}), cluster, cost).makespan());
  }
}

TEST_CASE("prefetching in backward steps alone lies between always and never") {
  const FixedCost cost{.forward = 10_s, .backward_input = 10_s, .backward_weight = 10_s, .transfer = 3_s};
  const auto cluster = support::cluster(6, 3);
  const auto time = [&](Prefetch prefetch) {
    return simulate(build(6, 3, 12, {.prefetch = prefetch}), cluster, cost).makespan();
  };
  CHECK(time(Prefetch::on) < time(Prefetch::backward));
  CHECK(time(Prefetch::backward) < time(Prefetch::off));
}

TEST_CASE("with one group nothing is sent from one group to another") {
  const Schedule schedule = build(4, 1, 8, {});
  for (const auto& task : schedule.tasks()) CHECK(task.op != Op::pass);
}

TEST_CASE("with one rank it is plain training: two tasks a shard, one update") {
  const Schedule schedule = build(1, 1, 3, {});
  CHECK(schedule.tasks().size() == 3 * 2 + 1);
  CHECK(schedule.groups() == 0);
}

TEST_CASE("every option that it was built with is recorded") {
  const Schedule schedule = build(4, 2, 4, {.order = Order::paper, .overlap = false, .buffers = 3});
  const std::vector<std::pair<std::string, std::string>> expected{{"order", "paper"}, {"overlap", "off"},  {"prefetch", "on"},
                                                                  {"buffers", "3"},   {"groups", "2"},     {"shards", "4"},
                                                                  {"stripe", "off"},  {"speeds", "equal"}, {"node-cache", "0"}};
  CHECK(schedule.options() == expected);
  CHECK(schedule.name() == "tawpipe");
  CHECK(schedule.lanes().front() == "compute");
}

TEST_CASE("a model is cut into one shard a rank, or one a layer where there are fewer layers, or as asked") {
  const DeviceGroups groups = DeviceGroups::even(4, 2);
  CHECK(tawpipe::schedules::tawpipe(support::transformer(9, 4), groups).stages().size() == 4);
  CHECK(tawpipe::schedules::tawpipe(support::transformer(3, 4), groups).stages().size() == 3);
  CHECK(tawpipe::schedules::tawpipe(support::transformer(9, 4), groups, {.shards = 9}).stages().size() == 9);
}

TEST_CASE("with more shards than ranks the work stays and the groups start closer together") {
  // Two shards a rank: steps of half a unit. Paper order: a round of 3P units and half an idle one,
  // groups half a unit apart.
  for (const auto& [p, d] : {std::pair{4, 2}, {6, 3}, {8, 4}}) {
    const Timeline timeline =
        simulate(build(p, d, 2 * p, {.order = Order::paper, .shards = 2 * p}), support::cluster(p, d), unit);
    CHECK(timeline.makespan() == 500_ms * (2 * (6 * p + 1) + d - 1));
  }
}

namespace {

/// Fixed times on ranks of different speeds.
struct SpeedCost {
  FixedCost fixed;
  std::vector<double> speeds;  ///< [rank]

  Duration compute_time(const Schedule& schedule, tawpipe::TaskId id, const tawpipe::Cluster& cluster) const {
    const Duration time = fixed.compute_time(schedule, id, cluster);
    const double speed = speeds[tawpipe::index(schedule.task(id).rank)];
    return Duration{static_cast<std::int64_t>(static_cast<double>(time.value()) / speed)};
  }
  tawpipe::Path path(const Schedule& schedule, const tawpipe::Task& task, const tawpipe::Cluster& cluster) const {
    return fixed.path(schedule, task, cluster);
  }
};

}  // namespace

TEST_CASE("with speeds each rank runs microbatches in proportion, and a round takes as long as its slowest rank") {
  // Two groups of two, the first twice as fast: rounds of 2+2+1+1 = 6 microbatches, 4 shards. A
  // step takes 1 s forward and 2 s backward, whichever rank runs it: 4 x 3 s a round. Equal rounds
  // have 4 microbatches and take as long.
  const SpeedCost cost{unit, {2, 2, 1, 1}};
  const auto cluster = support::cluster(4, 2);
  for (const int rounds : {2, 4, 10}) {
    const int microbatches = 6 * rounds;
    CHECK(simulate(build(4, 2, microbatches, {.speeds = {2, 1}}), cluster, cost).makespan() == 1_s * (12 * rounds));
    CHECK(simulate(build(4, 2, microbatches, {.speeds = {2, 2, 1, 1}}), cluster, cost).makespan() == 1_s * (12 * rounds));
    CHECK(simulate(build(4, 2, microbatches, {}), cluster, cost).makespan() == 1_s * (12 * rounds * 3 / 2));
  }
}

TEST_CASE("ranks of one group may differ in speed, and a last round may be short") {
  // Speeds 2 and 1 in one group of two: rounds of 3 microbatches, 2 shards. 7 microbatches: two
  // rounds, then one on rank 0.
  const Schedule schedule = build(2, 1, 7, {.speeds = {2, 1}});
  std::vector<int> forwards(2, 0);
  for (const auto& task : schedule.tasks()) {
    if (task.op == Op::forward) ++forwards[tawpipe::index(task.rank)];
  }
  CHECK(forwards == std::vector<int>{2 * 5, 2 * 2});  // of each shard: 2 + 2 + 1 and 1 + 1 + 0
  // rounds of 2 x 3 s, and 2 x 3 / 2 s for the last microbatch only
  const auto cluster = support::cluster(2);
  CHECK(simulate(schedule, cluster, SpeedCost{unit, {2, 1}}).makespan() == 1_s * (6 + 6 + 3));
}

TEST_CASE("on a node of H100 and one of A100, rounds by speed take about half the time of equal ones") {
  const tawpipe::Cluster cluster = tawpipe::resolve_cluster(TAWPIPE_TEST_DATA "/topology/mixed.cluster.json");
  const Workload work{tawpipe::models::named("llama-2-7b"),
                      {.sequence = 4096, .microbatch_size = 1, .global_batch = 96},
                      tawpipe::Recompute::full};
  const auto seconds = [&](const TawpipeOptions& options) {
    return tawpipe::to_seconds(
        simulate(tawpipe::schedules::tawpipe(work, cluster.groups_by_node(), options), cluster, tawpipe::RooflineCost{})
            .makespan());
  };
  // 312 and 989 TFLOPS: 1 and 3 microbatches a step. 96 are 6 rounds of 4 x 3 + 4 x 1 instead of 12
  // of 8, with steps that the A100 need as long as before: half the time, but for the turns'
  // bubbles.
  const double ratio = seconds({.speeds = {989, 312}}) / seconds({});
  CHECK(ratio > 0.48);
  CHECK(ratio < 0.54);
}

TEST_CASE("speeds that fit neither groups nor ranks are refused, and those of a drawn order") {
  CHECK_THROWS_WITH_AS(build(4, 2, 4, {.speeds = {1, 1, 2}}),
                       "tawpipe: 3 speeds are given; give one for each of the 2 groups or of the 4 ranks", tawpipe::InputError);
  CHECK_THROWS_WITH_AS(build(4, 2, 4, {.order = Order::paper, .speeds = {1, 2}}),
                       "tawpipe: order=paper is drawn for devices of one speed; use order=eager with speeds",
                       tawpipe::InputError);
  CHECK_NOTHROW(build(4, 2, 4, {.order = Order::paper, .speeds = {2, 2}}));
}

TEST_CASE("a node cache holds as many shards as asked, as fit its bytes, or all") {
  using Limit = tawpipe::schedules::NodeCache::Limit;
  const auto cached = [](const tawpipe::schedules::NodeCache& cache) {
    const Schedule schedule = build(6, 3, 6, {.cache = cache});
    for (const auto& [key, value] : schedule.options()) {
      if (key == "node-cache") return value;
    }
    return std::string{};
  };
  CHECK(cached({}) == "0");
  CHECK(cached({.shards = 4}) == "4");
  CHECK(cached({.limit = Limit::all}) == "6");
  // A kept shard takes 1 MB and its gradient another, on one rank of each group but its owner's: 12
  // copies of 6 shards on 6 ranks, 4 MB each. With 3 MB each rank holds one copy, so the second of
  // those that a rank would keep is where it ends.
  CHECK(cached({.limit = Limit::bytes, .bytes = 4_MB}) == "6");
  CHECK(cached({.limit = Limit::bytes, .bytes = 3_MB}) == "2");
  CHECK(cached({.limit = Limit::bytes, .bytes = 1_MB}) == "0");
  CHECK_THROWS_WITH_AS(cached({.shards = 7}), "tawpipe: node-cache=7 is impossible with 6 shards; choose 0 to 6",
                       tawpipe::InputError);
}

TEST_CASE("a device without a buffer for another's shard is refused") {
  CHECK_THROWS_WITH_AS(
      build(4, 2, 4, {.buffers = 0}),
      "option buffers=0 of tawpipe: the value must be a whole number from 1 to 1024: each takes the memory of a shard",
      tawpipe::InputError);
}

TEST_CASE("a device's transfer buffers hold the largest shard, however the layers fall") {
  // 5 layers over 4 ranks: stages of 1, 1, 1 and 2 layers
  const Workload work = support::transformer(5, 4);
  const Schedule schedule = tawpipe::schedules::tawpipe(work, DeviceGroups::even(4, 2));
  const std::int64_t layer = work.model().layer_parameters();
  int buffers = 0;
  for (const auto& buffer : schedule.buffers()) {
    if (buffer.kind() != tawpipe::BufferKind::transfer) continue;
    CHECK(buffer.bytes == Bytes{2 * layer * 2});  // 2 layers, 2 bytes a parameter
    ++buffers;
  }
  CHECK(buffers == 4 * (2 + 2));  // each rank: 2 for weights, 2 for gradients
}
