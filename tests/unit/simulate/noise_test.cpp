// Tests of simulate/noise.hpp and cost/task_factors.hpp.
// Not: the flags (tests/cli/instruments_test.cpp).
#include "tawpipe/simulate/noise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "schedules.hpp"
#include "support/two_ranks.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/task_factors.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using tawpipe::InputError;
using tawpipe::Noise;
using tawpipe::Rank;
using tawpipe::Schedule;
using tawpipe::seconds;

namespace {

Schedule one_f_one_b(int ranks, int microbatches) {
  return tawpipe::build_schedule("1f1b", {.workload = tawpipe::Workload::abstract(ranks, microbatches),
                                          .nodes = tawpipe::DeviceGroups::even(ranks, 1),
                                          .options = {}});
}

}  // namespace

TEST_CASE("jitter has mean 1 and the deviation asked for, and depends on seed and key alone") {
  const Noise noise{.jitter = 0.05, .seed = 7};
  double sum = 0;
  double square = 0;
  constexpr int count = 20000;
  for (std::uint64_t key = 0; key < count; ++key) {
    const double factor = tawpipe::jitter_factor(noise, key);
    sum += factor;
    square += (factor - 1) * (factor - 1);
  }
  CHECK(sum / count == doctest::Approx(1).epsilon(0.002));
  CHECK(std::sqrt(square / count) == doctest::Approx(0.05).epsilon(0.02));
  CHECK(tawpipe::jitter_factor(noise, 3) == tawpipe::jitter_factor(noise, 3));
  CHECK(tawpipe::jitter_factor(noise, 3) != tawpipe::jitter_factor({.jitter = 0.05, .seed = 8}, 3));
  CHECK(tawpipe::jitter_factor({}, 3) == 1);
}

TEST_CASE("as many devices are slow as the probability says") {
  const Noise noise{.stragglers = 0.25, .slowdown = 3};
  int slow = 0;
  for (int rank = 0; rank < 4000; ++rank) slow += tawpipe::straggler_factor(noise, Rank{rank}) > 1 ? 1 : 0;
  CHECK(slow == doctest::Approx(1000).epsilon(0.1));
  Noise parsed;
  tawpipe::parse_stragglers("0.01x2.5", parsed);
  CHECK(parsed.stragglers == 0.01);
  CHECK(parsed.slowdown == 2.5);
  for (const char* wrong : {"0.01", "x2", "0.01x", "2x2", "0.1x0.5", "0.1x2s", ""}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(tawpipe::parse_stragglers(wrong, parsed), InputError);
  }
}

TEST_CASE("factors stretch computations, and interference those that have data in flight beside them") {
  const Schedule schedule = one_f_one_b(1, 4);
  const tawpipe::FixedCost cost{seconds(1), seconds(1), seconds(1), seconds(0)};
  const tawpipe::Cluster cluster = tawpipe::ClusterBuilder{}
                                       .device({.name = "d", .memory = tawpipe::Bytes{1}, .peak = tawpipe::FlopsPerSecond{1}})
                                       .nodes(1)
                                       .devices_per_node(1)
                                       .build();
  const auto message = [](const tawpipe::Task&) { return 1.0; };
  const std::vector<double> twice(schedule.tasks().size(), 2.0);
  using Cost = tawpipe::FactoredCost<tawpipe::FixedCost, decltype(message)>;
  // 4 microbatches of 3 s on one rank, each twice as long
  const auto timeline = tawpipe::simulate(schedule, cluster, Cost{cost, twice, message});
  CHECK(timeline.makespan() == seconds(24));
  // one rank sends nothing: no computation overlaps communication
  for (const double part : tawpipe::communication_beside(schedule, timeline)) CHECK(part == 0);
  std::vector<double> factors{1, 2};
  tawpipe::add_interference(factors, {0.5, 0}, 0.2);
  CHECK(factors[0] == doctest::Approx(1.1));
  CHECK(factors[1] == 2);
}

TEST_CASE("copies to and from the host are data in flight beside computations") {
  using namespace tawpipe::literals;
  const tawpipe::Cluster cluster = tawpipe::ClusterBuilder{}
                                       .device({.name = "d", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                                       .devices_per_node(2)
                                       .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
                                       .host_link({.bandwidth = 1_GBps, .latency = 2_us})
                                       .build();
  const Schedule schedule = tawpipe::with_offload(one_f_one_b(2, 4), {.activations = true});
  const tawpipe::FixedCost cost{seconds(1), seconds(1), seconds(1), seconds(1)};
  const auto timeline = tawpipe::simulate(schedule, cluster, cost);
  const std::vector<double> beside = tawpipe::communication_beside(schedule, timeline);
  CHECK(*std::max_element(beside.begin(), beside.end()) == 1);
}
