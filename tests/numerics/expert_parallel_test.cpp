// A recorded mixture of experts, trained by ranks that share its stages: every loss, gradient and parameter as
// recorded; and another one, clipped, as by one device.
// Not: mixtures of which each rank has all experts, and whole sequences (composed_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "support/clusters.hpp"
#include "support/reference_training.hpp"
#include "support/shared_stage_checks.hpp"
#include "support/tensor_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

namespace expert_parallel_test {

using namespace tawpipe;
using namespace reference_training;

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/moe_golden/M0";

constexpr StateSharding shardings[] = {StateSharding::none, StateSharding::optimizer, StateSharding::gradients,
                                       StateSharding::parameters};

Splitting among(const Mesh& axes, ContextExchange exchange = ContextExchange::all_gather) {
  Splitting how{true, exchange};
  how.experts = axes.expert;
  return how;
}
Mesh mesh(int experts, int data = 1) { return {.data = data, .expert = experts, .whole_experts = true}; }

void check_recorded(const training::ReferenceRun& reference, const std::string& schedule, int ranks, const Mesh& axes,
                    const Composition& with = {}, Splitting how = true) {
  how.experts = axes.expert;
  CAPTURE(schedule);
  CAPTURE(ranks);
  CAPTURE(axes.tensor);
  CAPTURE(axes.context);
  CAPTURE(axes.whole_experts);
  CAPTURE(axes.expert);
  CAPTURE(axes.data);
  CAPTURE(std::string{name(with.sharding)});
  check_recorded_numbers(train_tensor_parallel<double>(reference, schedule, ranks, axes, how, with));
}

TEST_CASE("a recorded mixture by 2 and 4 ranks that divide its experts, alone and in pipelines, in f64") {
  const training::ReferenceRun reference{folder};
  for (const int experts : {2, 4}) {
    check_recorded(reference, "1f1b", 1, mesh(experts));
    for (const std::string schedule : {"1f1b", "zb-h1", "interleaved-1f1b"})
      check_recorded(reference, schedule, 2, mesh(experts));
  }
  check_recorded(reference, "zb-v", 2, mesh(2));
  Splitting chunks = true;
  chunks.loss_chunk = 10;
  check_recorded(reference, "1f1b", 1, mesh(2), {}, chunks);
}
TEST_CASE("a recorded mixture by context-parallel ranks, with all experts on each and divided, in f64") {
  const training::ReferenceRun reference{folder};
  for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all}) {
    for (const bool whole : {false, true}) {
      const Mesh axes{.context = 2, .whole_experts = whole};
      check_recorded(reference, "1f1b", 1, axes, {}, {true, exchange});
      check_recorded(reference, "zb-v", 2, axes, {}, {true, exchange});
    }
  }
  check_recorded(reference, "zb-h1", 1, {.context = 2, .expert = 2, .whole_experts = true});
  check_recorded(reference, "1f1b", 2, {.context = 4, .whole_experts = true});
  for (const std::string schedule : {"tawpipe", "fsdp", "weipipe"}) check_recorded(reference, schedule, 2, {.context = 2});
}
TEST_CASE("a recorded mixture by tensor-parallel ranks, with whole experts and a part of each, in f64") {
  const training::ReferenceRun reference{folder};
  for (const bool whole : {false, true}) {
    const Mesh axes{.tensor = 2, .whole_experts = whole};
    for (const std::string schedule : {"1f1b", "zb-v"}) check_recorded(reference, schedule, 2, axes);
    check_recorded(reference, "zb-h1", 1, {.tensor = 2, .context = 2, .whole_experts = whole}, {}, {true, ContextExchange::ring});
  }
  const Mesh divided{.tensor = 2, .expert = 2, .whole_experts = true};
  for (const std::string schedule : {"1f1b", "zb-v"}) check_recorded(reference, schedule, 2, divided);
  check_recorded(reference, "ddp", 1, divided);
  for (const std::string schedule : {"tawpipe", "fsdp"}) check_recorded(reference, schedule, 2, {.tensor = 2});
}
// With `parameters` FSDP: a unit's experts and the rest are gathered by messages of their own.
TEST_CASE("experts 2 x data 2 and more with shared states, gradients and parameters in f64") {
  const training::ReferenceRun reference{folder};
  for (const StateSharding sharding : shardings) {
    check_recorded(reference, "1f1b", 2, mesh(2, 2), {.sharding = sharding});
    check_recorded(reference, "ddp", 1, mesh(2, 4), {.sharding = sharding, .overlap_gathers = true});
  }
  check_recorded(reference, "zb-h1", 1, mesh(4, 2), {.sharding = StateSharding::optimizer, .overlap_gradients = true});
  for (const StateSharding sharding : {StateSharding::gradients, StateSharding::parameters}) {
    check_recorded(reference, "1f1b", 1, {.tensor = 2, .context = 2, .data = 2, .whole_experts = true}, {.sharding = sharding});
    check_recorded(reference, "ddp", 1, mesh(4), {.sharding = sharding});  // each rank has its experts alone
  }
  check_recorded(reference, "zb-v", 2, {.tensor = 2, .expert = 2, .whole_experts = true},
                 {.sharding = StateSharding::parameters});
}

/// @return bytes of tokens that all ranks sent in a step, over those that are told
double check_messages(const training::ReferenceRun& reference, const std::string& name, int ranks, const Mesh& axes) {
  CAPTURE(name);
  CAPTURE(axes.tensor);
  CAPTURE(axes.context);
  CAPTURE(axes.expert);
  const Splitting how = among(axes);
  const Schedule told = expand_bodies(simulated_schedule<double>(reference, name, ranks, axes, how)).schedule;
  const Schedule executed = tensor_schedule<double>(reference, name, ranks, axes, how);
  const ExecutedSchedule run{executed};
  for (int r = 0; r < told.ranks(); ++r) {
    CHECK(!messages(told, Rank{r}).empty());
    CHECK(messages(run.schedule(), Rank{r}) == messages(told, Rank{r}));
  }
  const auto once = train_steps<double>(reference, executed, axes, how, {});
  const auto again = train_steps<double>(reference, executed, axes, how, {.seed = 7, .longest_microseconds = 20});
  for (std::size_t step = 0; step < once.size(); ++step) {
    CHECK(again[step].losses == once[step].losses);
    for (std::size_t r = 0; r < once[step].sent.size(); ++r)
      CHECK(again[step].sent[r].by_payload == once[step].sent[r].by_payload);
  }
  const Traffic traffic_told = traffic(told, support::cluster(told.ranks()));
  if (!axes.whole_experts) check_token_bytes(once.back(), traffic_told);
  const auto activations = static_cast<std::size_t>(Payload::activations);
  double sent = 0;
  for (const SentBytes& rank : once.back().sent) sent += static_cast<double>(rank.by_payload[activations]);
  const auto& bytes = traffic_told.payload_bytes[activations];
  return sent / static_cast<double>(bytes[0] + bytes[1]);
}

TEST_CASE("tokens travel in the collectives that are simulated, all copies of them, with the same bits under delays") {
  const training::ReferenceRun reference{folder};
  const auto check = [&](const std::string& name, int ranks, const Mesh& axes) {
    CHECK(check_messages(reference, name, ranks, axes) == doctest::Approx(1).epsilon(axes.whole_experts ? 0.05 : 1e-12));
  };
  for (const std::string name : {"1f1b", "zb-h1"}) check(name, 2, mesh(4));
  for (const bool whole : {false, true}) {
    check("zb-h1", 2, {.context = 2, .whole_experts = whole});
    check("1f1b", 2, {.tensor = 2, .whole_experts = whole});
    check("zb-v", 1, {.tensor = 2, .context = 2, .whole_experts = whole});
  }
  check("zb-v", 2, {.tensor = 2, .expert = 2, .whole_experts = true});
}

TEST_CASE("weights and gradients of experts and of the rest travel in the bytes that are simulated") {
  const training::ReferenceRun reference{folder};
  for (const StateSharding sharding : shardings) {
    for (const std::string name : {"1f1b", "ddp"}) {
      CAPTURE(name);
      CAPTURE(std::string{tawpipe::name(sharding)});
      const Mesh axes = mesh(2, 2);
      const Composition with{.sharding = sharding};
      const auto same = [](std::vector<SharedStage> stages, const Sharing&) { return stages; };
      const Schedule told = expand_bodies(simulated_schedule<double>(reference, name, 1, axes, among(axes), with, same)).schedule;
      const Traffic traffic_told = traffic(told, support::cluster(told.ranks()));
      const auto run = train_steps<double>(reference, tensor_schedule<double>(reference, name, 1, axes, among(axes), with), axes,
                                           among(axes), {});
      for (const Payload payload : {Payload::weights, Payload::gradients}) {
        const auto p = static_cast<std::size_t>(payload);
        std::int64_t sent = 0;
        for (const SentBytes& rank : run.back().sent) sent += rank.by_payload[p];
        CHECK(sent == traffic_told.payload_bytes[p][0] + traffic_told.payload_bytes[p][1]);
      }
    }
  }
}

// ---- with a shared expert, an odd vocabulary and clipping ---------------------------------------

const Transformer shared_expert{.name = "small",
                                .layers = 4,
                                .hidden = 16,
                                .heads = 4,
                                .kv_heads = 2,
                                .intermediate = 24,
                                .vocab = 31,
                                .dtype = Dtype::f64,
                                .experts = 4,
                                .experts_per_token = 2,
                                .shared_width = 8};

struct Tokens {
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((7 * static_cast<std::int64_t>(i) + 3 * microbatch + step) % shared_expert.vocab);
      targets[i] = (tokens[i] * 5 + 2) % shared_expert.vocab;
    }
  }
};

struct Outcome {
  std::vector<double> norms;    ///< [step]
  std::vector<double> losses;   ///< [step, microbatch]
  std::vector<double> weights;  ///< [step, parameter]
};

/// Two steps of 16 sequences, two in a microbatch.
Outcome clipped(const std::string& name, int ranks, const Mesh& axes, Composition with = {},
                Recompute recompute = Recompute::none) {
  const auto work = [&](int replicas) {
    Workload one{shared_expert, {.sequence = 8, .microbatch_size = 2, .global_batch = 16 / replicas}, recompute};
    one.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
    return one;
  };
  Schedule schedule = build_schedule(name, {.workload = work(axes.data), .nodes = DeviceGroups{{ranks}}, .options = {}});
  const Batch batch = schedule.workload().batch();
  Sharing sharing = among(axes).of(axes);
  if (axes.copies() > 1) {
    sharing.sends_activations = hands_on(schedule);
    with.stages =
        layers::host::tensor_stages<double>(shared_expert, batch, recompute, sharing,
                                            share_stages(shared_expert, batch, recompute, schedule.stages(), sharing), true);
    schedule = compose(schedule, work(1), axes.over(ranks * axes.copies()), with);
    REQUIRE(validate(schedule).ok());
    schedule = parts_of_tensors(schedule, shared_expert, axes, true);
  }
  schedule = with_gradient_norm(schedule);
  using Layer = layers::host::TensorLlama<double>;
  // With a small epsilon the first step would magnify rounding in gradients that are nearly zero.
  host::HostExecutor<double, Layer, layers::AdamWUpdate<double>> executor{
      schedule,
      [&] {
        return Layer{shared_expert, batch, recompute, {}, sharing};
      },
      layers::AdamWUpdate<double>{shared_expert, {.epsilon = 1e-5}}};
  std::vector<double> weights(static_cast<std::size_t>(shared_expert.parameters()));
  for (std::size_t p = 0; p < weights.size(); ++p) weights[p] = 0.2 * std::sin(static_cast<double>(p));
  load_weights(executor, std::span<const double>{weights});
  Outcome outcome;
  for (int step = 1; step <= 2; ++step) {
    const IterationResult result = executor.run(Tokens{}, {.step = step, .learning_rate = 0.01, .gradient_clip = 0.01});
    outcome.norms.push_back(result.gradient_norm);
    outcome.losses.insert(outcome.losses.end(), result.losses.begin(), result.losses.end());
    const std::vector<double> now = collect_weights(executor);
    outcome.weights.insert(outcome.weights.end(), now.begin(), now.end());
  }
  return outcome;
}

double furthest(const std::vector<double>& one, const std::vector<double>& other) {
  REQUIRE(one.size() == other.size());
  double worst = 0;
  for (std::size_t i = 0; i < one.size(); ++i) worst = std::max(worst, std::abs(one[i] - other[i]));
  return worst;
}

TEST_CASE("clipped steps of a mixture with a shared expert by ranks that share stages are those of one device in f64") {
  const Outcome alone = clipped("1f1b", 1, {});
  for (const double norm : alone.norms) REQUIRE(norm > 0.02);  // clipped
  const auto check = [&](const std::string& name, int ranks, const Mesh& axes, const Composition& with,
                         Recompute recompute = Recompute::none) {
    CAPTURE(name);
    CAPTURE(ranks);
    CAPTURE(axes.tensor);
    CAPTURE(axes.context);
    CAPTURE(std::string{tawpipe::name(recompute)});
    CAPTURE(axes.expert);
    CAPTURE(axes.data);
    CAPTURE(std::string{tawpipe::name(with.sharding)});
    CAPTURE(with.overlap_gathers);
    const Outcome shared = clipped(name, ranks, axes, with, recompute);
    CHECK(furthest(shared.norms, alone.norms) <= 1e-12);
    CHECK(furthest(shared.losses, alone.losses) <= 1e-12);
    CHECK(furthest(shared.weights, alone.weights) <= 1e-12);
  };
  for (const StateSharding sharding : shardings) {
    for (const std::string name : {"1f1b", "zb-h1"}) check(name, 2, mesh(2, 2), {.sharding = sharding});
    check("1f1b", 1, mesh(2, 4), {.sharding = sharding});
    check("ddp", 1, mesh(2, 2), {.sharding = sharding, .overlap_gathers = true});
  }
  check("interleaved-1f1b", 2, mesh(2, 2), {.sharding = StateSharding::optimizer, .overlap_gradients = true});
  // Tensor-parallel ranks divide the shared expert.
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool whole : {false, true}) {
      check("zb-h1", 2, {.tensor = 2, .data = 2, .whole_experts = whole}, {}, recompute);
      check("1f1b", 1, {.tensor = 2, .context = 2, .whole_experts = whole}, {}, recompute);
    }
    check("1f1b", 2, {.tensor = 2, .expert = 2, .whole_experts = true}, {.sharding = StateSharding::parameters}, recompute);
  }
  // These move experts between their ranks.
  for (const std::string name : {"tawpipe", "fsdp"})
    CHECK_THROWS_AS(clipped(name, 2, mesh(2, 2), {.sharding = StateSharding::optimizer}), InputError);
}

}  // namespace expert_parallel_test
