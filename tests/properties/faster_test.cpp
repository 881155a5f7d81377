// A faster machine, a larger batch and a loss in chunks change a prediction as they must: on random
// draws (TAWPIPE_DRAWS for more or fewer).
// Not: memory (less_memory_test.cpp), nor how near a prediction is to what was measured.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/plan_requests.hpp"
#include "support/random.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/devices.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using support::one_of;
using support::Random;

namespace faster_test {

namespace {

/// A machine of equal devices, by its figures.
struct Machine {
  std::vector<std::int32_t> nodes;
  DeviceSpec device;
  double intra = 0;  ///< bytes a second
  double inter = 0;
  double intra_latency = 0;  ///< seconds
  double inter_latency = 0;

  Cluster cluster() const {
    return ClusterBuilder{}
        .device(device)
        .devices_of_nodes(nodes)
        .intra_node({.bandwidth = BytesPerSecond{intra}, .latency = seconds(intra_latency)})
        .inter_node({.bandwidth = BytesPerSecond{inter}, .latency = seconds(inter_latency)})
        .build();
  }
};

Machine draw_machine(Random& random) {
  return {.nodes = one_of<std::vector<std::int32_t>>(random, {{1}, {2}, {4}, {8}, {2, 2}, {4, 4}, {1, 1, 1, 1}, {2, 2, 2, 2}}),
          .device = device_named(one_of<std::string>(random, {"A100-80G", "H100-80G", "B200-180G"})),
          .intra = random.real(1e10, 4e11),
          .inter = random.real(1e9, 5e10),
          .intra_latency = 3e-6,
          .inter_latency = random.real(5e-6, 5e-5)};
}

/// What is trained on it, and how.
Problem draw_problem(Random& random, const Machine& machine) {
  Problem problem{.cluster = machine.cluster()};
  const int ranks = problem.cluster.ranks();
  problem.model = models::llama({.layers = random.between(2, 8),
                                 .hidden = one_of<int>(random, {256, 1024, 4096}),
                                 .heads = 8,
                                 .kv_heads = one_of<int>(random, {2, 8}),
                                 .vocab = one_of<int>(random, {1000, 32000, 128256}),
                                 .tied = random.between(0, 3) == 0});
  problem.mesh.tensor = ranks > 1 && random.between(0, 3) == 0 ? 2 : 1;
  const int left = ranks / problem.mesh.tensor;
  problem.mesh.data = left > 1 && random.between(0, 1) == 0 ? (random.between(0, 1) == 0 ? left : 2) : 1;
  problem.sequence = one_of<std::int64_t>(random, {512, 2048, 8192});
  problem.microbatch_sizes = {random.between(1, 2)};
  problem.global_batch = problem.microbatch_sizes[0] * problem.mesh.data * random.between(1, 6);
  problem.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::full});
  problem.sharding = static_cast<StateSharding>(random.between(0, 3));
  problem.overlap_gradients = random.between(0, 1) == 0;
  problem.overlap_gathers = random.between(0, 1) == 0;
  switch (random.between(0, 2)) {
    case 0:
      problem.cost = RooflineCost{};
      break;
    case 1:
      problem.cost = KernelCost{};
      break;
    default:
      problem.cost = KernelCost{.held_sms = measured_held_sms(machine.device)};
  }
  // Those that search an order by the times of the machine are other schedules on a faster one.
  std::vector<std::string> names;
  for (const ScheduleInfo& info : shipped().schedules()) {
    if (info.planned) names.push_back(info.name);
  }
  problem.schedules = {{.schedule = one_of(random, names)}};
  return problem;
}

std::string text_of(const Problem& problem) {
  const Cluster& cluster = problem.cluster;
  return concat(problem.schedules[0].schedule, " on ", cluster.nodes(), " nodes, ", cluster.ranks(), " devices, tensor ",
                problem.mesh.tensor, ", data ", problem.mesh.data, ", layers ", problem.model->layers, ", hidden ",
                problem.model->hidden, ", vocabulary ", problem.model->vocab, problem.model->tied ? " tied" : "", ", sequence ",
                problem.sequence, ", batch ", problem.global_batch, " of ", problem.microbatch_sizes[0], ", recompute ",
                name(problem.recompute), ", shards ", name(problem.sharding), problem.overlap_gradients ? ", early sums" : "",
                problem.overlap_gathers ? ", early gathers" : "", ", cost ", problem.cost.index(), ", ",
                cluster.device(Rank{0}).name);
}

/// Seconds; none if the problem cannot be divided so.
std::optional<double> time_of(const Problem& problem) {
  try {
    return to_seconds(predict(problem, shipped()).summary.makespan);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The part by which an iteration may get slower on a faster machine. Flows share links fairly and
/// devices keep their order, so that what starts earlier may take bandwidth from what is waited for
/// (Graham 1969, Bounds on Multiprocessing Timing Anomalies); most in rings of weights, whose
/// messages run far ahead. And NCCL chooses by its own table, not by the time that a collective takes.
double anomaly(const Problem& problem) {
  const bool shares = problem.cluster.ranks() > 1;
  const ScheduleFamily family = shipped().info(problem.schedules[0].schedule).family;
  return !shares ? 0 : family == ScheduleFamily::weight_pipeline ? 0.2 : 0.01;
}

}  // namespace

TEST_CASE("on a faster machine nothing is slower, but for rare anomalies of shared links") {
  int anomalies = 0;
  const int wanted = support::draws(700);
  for (int seed = 0, done = 0; done < wanted; ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    Machine machine = draw_machine(random);
    Problem problem = draw_problem(random, machine);
    const std::optional<double> time = time_of(problem);
    if (!time) continue;
    ++done;
    CAPTURE(seed);
    CAPTURE(text_of(problem));
    const double factor = one_of<double>(random, {1.01, 1.3, 2, 10});
    CAPTURE(factor);
    const int kind = random.between(0, 5);
    CAPTURE(kind);
    if (kind == 0) machine.intra *= factor;
    if (kind == 1) machine.inter *= factor;
    if (kind == 2) machine.intra_latency /= factor;
    if (kind == 3) machine.inter_latency /= factor;
    if (kind == 4) machine.device.peak = FlopsPerSecond{machine.device.peak.value() * factor};
    if (kind == 5) machine.device.memory_bandwidth = BytesPerSecond{machine.device.memory_bandwidth.value() * factor};
    problem.cluster = machine.cluster();
    const double ratio = time_of(problem).value_or(0) / *time;
    CHECK(ratio > 0);
    CHECK(ratio <= 1 + 1e-9 + anomaly(problem));
    if (ratio > 1 + 1e-9) ++anomalies;
  }
  CHECK(anomalies <= std::max(3, wanted / 100));
}

TEST_CASE("a loss in chunks is not faster than the same kernels whole, nor more chunks than fewer") {
  for (int seed = 0; seed < support::draws(150); ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    Machine machine = draw_machine(random);
    machine.nodes = {1};  // by itself: no shared links
    Problem problem = draw_problem(random, machine);
    problem.model->fused_attention = random.between(0, 3) > 0;
    problem.model->loss_in_float32 = random.between(0, 1) == 0;
    CAPTURE(seed);
    CAPTURE(text_of(problem));
    std::optional<double> before = time_of(problem);
    if (!before) continue;
    for (const int chunk : {1 << 20, 50000, 8192, 1000, 1}) {
      CAPTURE(chunk);
      problem.model->loss_chunk = chunk;
      const std::optional<double> time = time_of(problem);
      CHECK(time.value_or(0) >= *before * (1 - 1e-9));
      before = time;
    }
  }
}

TEST_CASE("twice the batch takes between once and 2.05 times as long, but for rare slower steady states") {
  int slower = 0;
  const int wanted = support::draws(300);
  for (int seed = 0, done = 0; done < wanted; ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    Problem problem = draw_problem(random, draw_machine(random));
    // Like with like: of two rounds or more, in each of which all devices have a microbatch, or all
    // stages have one. In the first, sharded weights stay from a forward to its backward, and rings
    // carry no gradients.
    const int together = problem.cluster.ranks() / problem.mesh.tensor;
    problem.global_batch = problem.microbatch_sizes[0] * together * random.between(2, 4);
    const std::optional<double> time = time_of(problem);
    if (!time) continue;
    ++done;
    CAPTURE(seed);
    CAPTURE(text_of(problem));
    problem.global_batch *= 2;
    const double ratio = time_of(problem).value_or(0) / *time;
    CHECK(ratio >= 1);
    // A pipeline fills and drains with messages one way; where both ways share links, what is between
    // may take longer for a microbatch than the whole of a short iteration.
    CHECK(ratio <= 2.2);
    if (ratio > 2.05) ++slower;
  }
  CHECK(slower <= std::max(1, wanted / 100));
}

TEST_CASE("with more memory or bandwidth no plan is slower") {
  for (int seed = 0; seed < support::draws(20); ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    CAPTURE(seed);
    Machine machine{.nodes = {2, 2},
                    .device = {.name = "device", .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps},
                    .intra = random.real(1e9, 1e10),
                    .inter = random.real(1e8, 1e9),
                    .intra_latency = 1e-6,
                    .inter_latency = 5e-6};
    const auto planned = [&](const Machine& on) {
      const PlanResult found = plan(support::request(on.cluster()), shipped());
      return found.plans.empty() ? 0.0 : to_seconds(found.plans.front().summary.makespan);
    };
    machine.device.memory = Bytes{random.between(600, 4000) * std::int64_t{1000}};
    const double time = planned(machine);
    if (time <= 0) continue;
    Machine larger = machine;
    larger.device.memory = machine.device.memory * 2;
    CHECK(planned(larger) > 0);
    CHECK(planned(larger) <= time * (1 + plan_tolerance));
    Machine faster = machine;
    faster.intra *= 1.5;
    CHECK(planned(faster) <= time * (1 + plan_tolerance));
    faster.inter *= 1.5;
    CHECK(planned(faster) <= time * (1 + plan_tolerance));
  }
}

}  // namespace faster_test
