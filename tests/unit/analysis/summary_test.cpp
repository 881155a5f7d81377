// The summary's derived figures: throughput and MFU.
#include "tawpipe/analysis/summary.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"
#include "tawpipe/cost/roofline.hpp"

using namespace tawpipe;

TEST_CASE("without a model there are counts and times, but no throughput, MFU or memory verdict") {
  const test::TwoRanks two;
  const Summary summary = summarize(two.schedule, two.cluster, two.timeline);
  CHECK(summary.model.empty());
  CHECK(summary.makespan == seconds(12));
  CHECK(summary.tokens_per_device_per_second == 0);
  CHECK(summary.mfu == 0);
  CHECK(summary.out_of_memory.empty());
  CHECK(summary.ranks == 2);
  CHECK(summary.nodes == 2);
}

TEST_CASE("throughput is tokens over time and devices, MFU model operations over time and peak") {
  const test::TwoRanks two;
  const Transformer model{.name = "m", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 4, .intermediate = 128, .vocab = 100};
  const Workload work{model, Batch{.sequence = 32, .microbatch_size = 1, .global_batch = 4}, Recompute::full};
  const Schedule schedule = schedules::gpipe(work, 2, {.overlap = true});
  const Timeline timeline = simulate(schedule, two.cluster, RooflineCost{.utilization = 0.5});
  const Summary summary = summarize(schedule, two.cluster, timeline);
  const double time = to_seconds(timeline.makespan());
  CHECK(summary.tokens_per_device_per_second == doctest::Approx(4 * 32 / time / 2));
  CHECK(summary.mfu == doctest::Approx(work.model_flops().value() / time / 2e12));
  CHECK(summary.mfu < 0.5);
}
