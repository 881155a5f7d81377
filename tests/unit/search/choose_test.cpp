// Tests of search/choose.hpp: what a problem leaves open is chosen as if all of it had been
// simulated.
// Not: the search for layouts (plan_test.cpp).
#include "tawpipe/search/choose.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/search/predict.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

Problem problem(Bytes memory) {
  const Transformer four_layers{
      .name = "small", .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .intermediate = 128, .vocab = 96};
  return {.cluster = ClusterBuilder{}
                         .device({.name = "device", .memory = memory, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                         .devices_of_nodes({2, 2})
                         .intra_node({.bandwidth = 10_GBps, .latency = 1_us})
                         .inter_node({.bandwidth = 1_GBps, .latency = 5_us})
                         .build(),
          .model = four_layers,
          .sequence = 256,
          .global_batch = 16,
          .recomputes = {Recompute::none, Recompute::selective, Recompute::full},
          .usable_memory = 1};
}

/// The fastest that fits of all variants, recomputations and sizes, each simulated.
std::optional<Duration> best_of_all(const Problem& open, const ScheduleChoice& choice) {
  std::optional<Duration> best;
  for (const ScheduleOptions& options : shipped().variants(choice.schedule, choice.options, choice.automatic)) {
    for (const Recompute recompute : open.recomputes) {
      for (const std::int64_t size : open.candidate_sizes()) {
        Problem one = open;
        one.recomputes.clear();
        one.recompute = recompute;
        one.microbatch_sizes = {size};
        try {
          const Summary summary = Predictor{one, shipped()}.best({choice.schedule, options}).summary;
          if (summary.fits() && (!best || summary.makespan < *best)) best = summary.makespan;
        } catch (const InputError&) {  // no such schedule with this size
        }
      }
    }
  }
  return best;
}

}  // namespace

TEST_CASE("what is chosen is the fastest that fits of all that is tried") {
  for (const Bytes memory : {1_GB, 4_MB, 2_MB}) {
    CAPTURE(memory.value());
    const Problem open = problem(memory);
    for (const std::string name : {"tawpipe", "fsdp", "1f1b", "interleaved-1f1b", "hsdp", "weipipe"}) {
      CAPTURE(name);
      const ScheduleChoice choice{.schedule = name, .automatic = true};
      const std::optional<Duration> best = best_of_all(open, choice);
      const Chosen chosen = choose(open, choice, shipped());
      REQUIRE(chosen.summary.fits() == best.has_value());
      if (!best) continue;
      CHECK(to_seconds(chosen.summary.makespan) <= to_seconds(*best) * (1 + plan_tolerance));
      // What was chosen says all: it is predicted again.
      Problem again = chosen_problem(open, chosen);
      CHECK(predict(again, shipped()).summary.makespan == chosen.summary.makespan);
      again = open;
      again.schedules = {choice};
      CHECK(predict(again, shipped()).summary.makespan == chosen.summary.makespan);
    }
  }
}

TEST_CASE("of what is computed again, no more layers than it takes to fit") {
  const auto with = [](Bytes memory) {
    Problem made = problem(memory);
    made.model->layers = 16;  // 4 in each stage
    made.microbatch_sizes = {1};
    made.recomputes = {Recompute::none, Recompute::full};
    return made;
  };
  const ScheduleChoice choice{.schedule = "1f1b", .automatic = true};
  const auto need = [&](Recompute policy) {
    Problem one = with(1_GB);
    one.recomputes.clear();
    one.recompute = policy;
    return Predictor{one, shipped()}.best(choice).summary.fullest();
  };
  const Bytes none = need(Recompute::none);
  const Bytes full = need(Recompute::full);
  const Problem open = with(Bytes{(none.value() + full.value()) / 2});  // half of what full recomputation saves is enough
  const Chosen chosen = choose(open, choice, shipped());
  CHECK(chosen.recompute == Recompute::full);
  CHECK(chosen.recompute_layers > 0);
  CHECK(chosen.summary.recompute == concat("full:", chosen.recompute_layers));
  CHECK(chosen.summary.fits());
  Problem again = chosen_problem(open, chosen);
  CHECK(predict(again, shipped()).summary.makespan == chosen.summary.makespan);
  again.model->recompute_layers = 0;
  CHECK(predict(again, shipped()).summary.makespan > chosen.summary.makespan);
}

TEST_CASE("a value that is given is kept, and one that is its standard is not said") {
  Problem open = problem(1_GB);
  open.recomputes.clear();
  open.recompute = Recompute::full;
  const Chosen chosen =
      choose(open, {.schedule = "fsdp", .options = {{"prefetch", "0"}, {"reshard", "auto"}}, .automatic = true}, shipped());
  CHECK(chosen.choice.options.at("prefetch") == "0");
  CHECK(chosen.recompute == Recompute::full);
  CHECK(chosen.summary.recompute == "full");
  if (chosen.choice.options.contains("reshard")) CHECK(chosen.choice.options.at("reshard") == "off");
  if (chosen.choice.options.contains("collectives")) CHECK(chosen.choice.options.at("collectives") == "two-level");
  // Of an option of which `auto` tries nothing, the standard is taken.
  const ScheduleChoice untried{.schedule = "tawpipe", .options = {{"order", "auto"}, {"buffers", "auto"}}};
  CHECK(!choose(open, untried, shipped()).choice.options.contains("order"));
  // Nothing is open: as Predictor::best().
  const Chosen given = choose(open, {.schedule = "fsdp"}, shipped());
  CHECK(given.choice.options.empty());
  CHECK(given.summary.makespan == Predictor{open, shipped()}.best({"fsdp"}).summary.makespan);
  CHECK_THROWS_AS(choose(open, {.schedule = "fsdp", .options = {{"reshard", "perhaps"}}}, shipped()), InputError);
}

TEST_CASE("variants are those that differ on the cluster") {
  const ScheduleChoice tawpipe{.schedule = "tawpipe", .automatic = true};
  CHECK(variants_of(shipped(), tawpipe, support::cluster(4)).size() == 4);        // buffers and shards
  CHECK(variants_of(shipped(), tawpipe, problem(1_GB).cluster).size() % 6 == 0);  // and node-cache, without more buffers
  CHECK(variants_of(shipped(), {.schedule = "tawpipe"}, support::cluster(4)).size() == 1);  // nothing is open
  // An option that reads auto itself keeps it.
  const auto kept = variants_of(shipped(), {.schedule = "tawpipe", .options = {{"stripe", "auto"}}}, support::cluster(4));
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].options.at("stripe") == "auto");
}

TEST_CASE("without a model all that is open is simulated") {
  const Problem stages{.cluster = support::cluster(4),
                       .microbatches = 8,
                       .schedules = {{.schedule = "1f1b", .automatic = true}, {"interleaved-1f1b", {{"chunks", "auto"}}}},
                       .cost = FixedCost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s}};
  const Prediction best = predict(stages, shipped());
  CHECK(best.summary.schedule == "interleaved-1f1b");
  CHECK(best.summary.makespan < 33_s);
  CHECK(choose(stages, stages.schedules[0], shipped()).summary.makespan == 33_s);  // (m + p - 1)(F + B)
}
