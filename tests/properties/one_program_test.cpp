// What is one program takes one time, whatever it is called: every schedule on one device, and a
// pipeline of one stage in replicas, which is data parallelism.
// Not: schedules that differ (schedules_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/devices.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using doctest::Approx;
using support::one_of;
using support::Random;

namespace one_program_test {

namespace {

Cluster cluster_of(Random& random, std::vector<std::int32_t> nodes) {
  return ClusterBuilder{}
      .device(device_named(one_of<std::string>(random, {"A100-80G", "H100-80G"})))
      .devices_of_nodes(std::move(nodes))
      .intra_node({.bandwidth = BytesPerSecond{random.real(1e10, 4e11)}, .latency = 3_us})
      .inter_node({.bandwidth = BytesPerSecond{random.real(1e9, 5e10)}, .latency = 12_us})
      .build();
}

Problem draw(Random& random, std::vector<std::int32_t> nodes) {
  Problem problem{.cluster = cluster_of(random, std::move(nodes))};
  problem.model = models::llama({.layers = random.between(1, 6),
                                 .hidden = one_of<int>(random, {256, 1024, 4096}),
                                 .heads = 8,
                                 .kv_heads = one_of<int>(random, {2, 8}),
                                 .vocab = one_of<int>(random, {1000, 32000, 128256}),
                                 .tied = random.between(0, 3) == 0});
  problem.model->loss_chunk = one_of<int>(random, {0, 0, 4096});
  problem.sequence = one_of<std::int64_t>(random, {512, 2048, 8192});
  problem.microbatch_sizes = {random.between(1, 2)};
  problem.global_batch = problem.microbatch_sizes[0] * problem.cluster.ranks() * random.between(1, 4);
  problem.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::selective, Recompute::full});
  problem.usable_memory = 1;
  switch (random.between(0, 2)) {
    case 0:
      problem.cost = RooflineCost{};
      break;
    case 1:
      problem.cost = KernelCost{};
      break;
    default:
      problem.cost = KernelCost{.held_sms = measured_held_sms(problem.cluster.device(Rank{0}))};
  }
  return problem;
}

Prediction predicted(Problem problem, const std::string& schedule, const ScheduleOptions& options = {}) {
  problem.schedules = {{schedule, options}};
  return predict(problem, shipped());
}
double time_of(const Problem& problem, const std::string& schedule, const ScheduleOptions& options = {}) {
  return to_seconds(predicted(problem, schedule, options).summary.makespan);
}

/// Whether backwards are split in two halves, which are not faster than the host launches each.
bool is_split(const Schedule& schedule) {
  return std::any_of(schedule.tasks().begin(), schedule.tasks().end(),
                     [](const Task& task) { return task.op == Op::backward_weight; });
}

std::string text_of(const Problem& problem) {
  return concat("layers ", problem.model->layers, ", hidden ", problem.model->hidden, ", vocabulary ", problem.model->vocab,
                problem.model->tied ? " tied" : "", ", sequence ", problem.sequence, ", batch ", problem.global_batch, " of ",
                problem.microbatch_sizes[0], ", chunk ", problem.model->loss_chunk, ", recompute ", name(problem.recompute),
                ", cost ", problem.cost.index(), ", ", problem.cluster.device(Rank{0}).name, ", nodes ", problem.cluster.nodes());
}

}  // namespace

TEST_CASE("on one device every schedule takes the same time") {
  for (int seed = 0; seed < support::draws(100); ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    Problem problem = draw(random, {1});
    problem.model->tied = false;  // several stages of a rank have a copy each of a tied matrix
    CAPTURE(text_of(problem));
    const double time = time_of(problem, "1f1b");
    for (const ScheduleInfo& info : shipped().schedules()) {
      if (info.name == "dualpipe" || info.name == "chimera") continue;  // for two devices at least
      CAPTURE(info.name);
      const Prediction other = predicted(problem, info.name);
      const bool halves = std::holds_alternative<KernelCost>(problem.cost) && is_split(other.schedule);
      CHECK(to_seconds(other.summary.makespan) >= time * (1 - 1e-8));
      if (!halves) CHECK(to_seconds(other.summary.makespan) <= time * (1 + 1e-8));
    }
  }
}

TEST_CASE("replicas of one stage, their sums beside the last backward, are data parallelism") {
  for (int seed = 0; seed < support::draws(100); ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    Problem problem = draw(random, one_of<std::vector<std::int32_t>>(random, {{2}, {8}, {2, 2}, {1, 1, 1}, {4, 4}}));
    CAPTURE(text_of(problem));
    const double time = time_of(problem, "ddp");
    problem.mesh.data = problem.cluster.ranks();
    problem.sharding = StateSharding::none;
    problem.overlap_gradients = true;
    problem.bucket = 1;
    // Where the output matrix is the embedding's, ddp sums the final norm with it, a bucket apart from it.
    const double near = problem.model->tied ? 2e-4 : 1e-8;
    for (const std::string name : {"1f1b", "gpipe"}) CHECK(time_of(problem, name) == Approx(time).epsilon(near));
    CHECK(time_of(problem, "interleaved-1f1b", {{"chunks", "1"}}) == Approx(time).epsilon(near));
    problem.overlap_gradients = false;
    const double late = time_of(problem, "1f1b");
    CHECK(time_of(problem, "gpipe") == Approx(late).epsilon(1e-8));
    CHECK(time_of(problem, "interleaved-1f1b", {{"chunks", "1"}}) == Approx(late).epsilon(1e-8));
  }
}

TEST_CASE("on one node sharding inside it is sharding over all") {
  for (int seed = 0; seed < support::draws(30); ++seed) {
    Random random{static_cast<std::uint64_t>(seed)};
    const Problem problem = draw(random, one_of<std::vector<std::int32_t>>(random, {{2}, {4}, {8}}));
    CAPTURE(text_of(problem));
    for (const std::string prefetch : {"0", "1"}) {
      const double time = time_of(problem, "fsdp", {{"prefetch", prefetch}});
      for (const std::string name : {"hpz", "hsdp", "hfsdp"}) {
        CAPTURE(name);
        CHECK(time_of(problem, name, {{"prefetch", prefetch}}) == Approx(time).epsilon(1e-8));
      }
      CHECK(time_of(problem, "fsdp", {{"prefetch", prefetch}, {"collectives", "two-level"}}) == Approx(time).epsilon(1e-8));
    }
  }
}

}  // namespace one_program_test
