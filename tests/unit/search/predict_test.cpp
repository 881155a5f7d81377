// Tests of search/choose.hpp, search/predict.hpp and search/problem.hpp: what is chosen, and what
// is refused.
// Not: what schedules take (unit/schedule/, unit/simulate/).
#include "tawpipe/search/choose.hpp"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/simulate/watch.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

/// Eight layers on four devices, 32 sequences.
Problem problem() {
  return {.cluster = support::cluster(4, 2),
          .model = support::transformer(8, 32).model().decoder,
          .sequence = support::transformer(8, 32).batch().sequence,
          .global_batch = 32};
}

/// Without a model: four stages, each forward 1 s and each backward 2 s; messages take nothing.
Problem of_stages(std::vector<ScheduleChoice> schedules) {
  return {.cluster = support::cluster(4),
          .microbatches = 8,
          .schedules = std::move(schedules),
          .cost = FixedCost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s}};
}

}  // namespace

TEST_CASE("the fastest schedule is chosen, with its options") {
  // (m + p - 1)(F + B) = 11 x 3 s for both pipelines; the interleaved one's bubble is half as long.
  const Prediction best = predict(of_stages({{"gpipe"}, {"interleaved-1f1b", {{"chunks", "2"}}}, {"1f1b"}}), shipped());
  CHECK(best.summary.schedule == "interleaved-1f1b");
  CHECK(best.summary.makespan < 33_s);
  CHECK(best.timeline.makespan() == best.summary.makespan);
  CHECK(predict(of_stages({{"gpipe"}, {"1f1b"}}), shipped()).summary.schedule == "gpipe");  // the first of equals
}

TEST_CASE("one schedule and one size give what building, simulating and summarizing give") {
  Problem one = problem();
  one.schedules = {{"1f1b"}};
  one.microbatch_sizes = {2};
  const Schedule schedule =
      build_schedule("1f1b", {.workload = one.workload(2), .nodes = one.cluster.groups_by_node(), .options = {}});
  const Prediction found = predict(one, shipped());
  CHECK(found.timeline == simulate(schedule, one.cluster, tawpipe::KernelCost{}));
  CHECK(found.summary.microbatch_size == 2);
  CHECK(predict(one, schedule).timeline == found.timeline);
}

TEST_CASE("of the microbatch sizes the fastest that fits is chosen, and where none fits the smallest") {
  Problem several = problem();
  several.schedules = {{"gpipe"}};
  CHECK(several.candidate_sizes() == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32});
  const Prediction best = predict(several, shipped());
  for (const std::int64_t size : several.candidate_sizes()) {
    Problem one = several;
    one.microbatch_sizes = {size};
    const Prediction other = predict(one, shipped());
    CHECK((!other.fits() || best.summary.makespan <= other.summary.makespan));
  }
  several.usable_memory = 1e-9;
  const Prediction none = predict(several, shipped());
  CHECK(!none.fits());
  CHECK(none.summary.microbatch_size == 1);
}

TEST_CASE("what cannot fit by its bounds is not simulated, all else is as it would be") {
  Problem one = problem();
  one.microbatch_sizes = {1, 2};
  one.cost = KernelCost{.held_sms = {.pair_ctas = 8, .collective_ctas = 16, .sms = 108}};
  const auto found = Predictor{one, shipped()}.best_that_may_fit({"1f1b"});
  const Prediction best = Predictor{one, shipped()}.best({"1f1b"});
  REQUIRE(found.has_value());
  CHECK(found->timeline == best.timeline);
  CHECK(found->summary.fullest() == best.summary.fullest());
  CHECK(best.summary.held.has_value());
  CHECK_FALSE(found->summary.held.has_value());
  one.usable_memory = 1e-6;
  CHECK_FALSE(Predictor{one, shipped()}.best_that_may_fit({"1f1b"}).has_value());
}

TEST_CASE("of a schedule that cannot fit the caller hears before it is simulated, of one that can never") {
  Problem one = problem();
  one.schedules = {{"1f1b"}};
  int told = 0;
  bool simulated = false;
  const auto note = [&](const Schedule& schedule) {
    ++told;
    CHECK(schedule.name() == "1f1b");
    CHECK_FALSE(simulated);
  };
  const HopelessSchedule hopeless{note};
  const auto progress = [&](std::size_t, std::size_t) { simulated = true; };
  const SimulationWatch watch{progress};
  for (const Mesh& mesh : {Mesh{}, Mesh{.tensor = 2}}) {
    CAPTURE(mesh.tensor);
    one.mesh = mesh;
    const Prediction told_nobody = predict(one, shipped());
    told = 0;
    simulated = false;
    CHECK(predict(one, shipped(), &hopeless).timeline == told_nobody.timeline);
    CHECK(told == 0);
    Problem tight = one;
    tight.usable_memory = 1e-6;
    const Timeline expected = predict(tight, shipped()).timeline;
    simulated = false;
    CHECK(predict(tight, shipped(), &hopeless).timeline == expected);
    CHECK(told == 1);
    CHECK(simulated);
  }
}

TEST_CASE("sizes that leave the replicas unequal shares are not tried") {
  Problem replicas = problem();
  replicas.mesh.data = 2;
  replicas.global_batch = 12;
  CHECK(replicas.candidate_sizes() == std::vector<std::int64_t>{1, 2, 3, 6});  // 12 / 4 = 3 microbatches
  replicas.global_batch = 7;
  replicas.schedules = {{"1f1b"}};
  CHECK_THROWS_WITH_AS(predict(replicas, shipped()),
                       "7 microbatches cannot be shared equally by 2 data-parallel replicas; choose a multiple of 2", InputError);
}

TEST_CASE("a folded prediction is the full one, of fewer tasks; noise is never folded") {
  Problem replicas = problem();
  replicas.mesh.data = 2;
  replicas.schedules = {{"1f1b"}};
  replicas.microbatch_sizes = {1};
  const Prediction folded = predict(replicas, shipped());
  replicas.fold = Fold::off;
  const Prediction full = predict(replicas, shipped());
  CHECK(folded.summary.folding.factor == 2);
  CHECK(full.summary.folding.factor == 1);
  CHECK(folded.summary.makespan == full.summary.makespan);
  CHECK(folded.summary.tasks == full.summary.tasks);
  CHECK(folded.schedule.tasks().size() < full.schedule.tasks().size());
  replicas.fold = Fold::on;
  replicas.noise.jitter = 0.01;
  CHECK_THROWS_WITH_AS(predict(replicas, shipped()), doctest::Contains("noise is drawn for each device"), InputError);
}

TEST_CASE("what goes to host memory has a lower bound too") {
  Problem one = problem();
  one.cluster = ClusterBuilder{}
                    .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                    .devices_of_nodes({2, 2})
                    .intra_node({.bandwidth = 10_GBps, .latency = 1_us})
                    .inter_node({.bandwidth = 1_GBps, .latency = 5_us})
                    .host_link({.bandwidth = 2_GBps, .latency = 1_us})
                    .build();
  one.microbatch_sizes = {1};
  for (const char* schedule : {"1f1b", "fsdp"}) {
    CAPTURE(schedule);
    for (const Offload offload : {Offload{.activations = true}, Offload{.optimizer = true}}) {
      one.offload = offload;
      const MinNeed least = Predictor{one, shipped()}.least({schedule});
      const Prediction found = Predictor{one, shipped()}.best({schedule});
      CHECK(least.time <= found.summary.makespan);
      CHECK(least.time > 0_s);
    }
  }
}

TEST_CASE("a problem that cannot be is refused before anything is computed") {
  Problem wrong = problem();
  CHECK_THROWS_WITH_AS(predict(wrong, shipped()), "the problem names no schedule to predict", InputError);
  wrong.global_batch = 0;
  CHECK_THROWS_WITH_AS(wrong.check(), "the problem has neither a global batch nor microbatches", InputError);
  wrong = problem();
  wrong.mesh.tensor = 3;
  CHECK_THROWS_WITH_AS(wrong.check(), doctest::Contains("does not divide the cluster's 4 devices"), InputError);
  wrong = problem();
  wrong.schedules = {{"1f1b"}};
  wrong.mesh.expert = 2;
  CHECK_THROWS_WITH_AS(predict(wrong, shipped()), "an expert axis needs whole experts on each rank", InputError);
  wrong = problem();
  wrong.noise.jitter = 2;
  CHECK_THROWS_AS(wrong.check(), InputError);
  wrong = problem();
  wrong.schedules = {{"1f2b"}};
  CHECK_THROWS_WITH_AS(predict(wrong, shipped()), doctest::Contains("1f2b"), InputError);
}
