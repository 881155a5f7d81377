// What is meant to save memory never costs any, and more memory never makes less fit: on random
// draws (TAWPIPE_DRAWS=5000 for more).
// Not: bounds of memory (bounds_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace less_memory_test {

using namespace tawpipe;
using namespace tawpipe::literals;
using support::one_of;
using support::Random;

namespace {

const std::vector<std::string> pipelines{"1f1b",   "gpipe", "interleaved-1f1b", "zb-h1",    "zb-h2",         "zb-auto", "zb-v",
                                         "v-half", "v-min", "chimera",          "dualpipe", "interleaved-zb"};

Cluster cluster_of(int devices, Bytes memory = 80_GiB) {
  DeviceSpec device = device_named("H100-80G");
  device.memory = memory;
  return ClusterBuilder{}
      .device(device)
      .devices_per_node(devices)
      .intra_node({.bandwidth = 300_GBps, .latency = 3_us})
      .host_link({.bandwidth = 48_GBps, .latency = 5_us})
      .host_memory({.capacity = 10'000_GB})
      .build();
}

Transformer draw_model(Random& random) {
  Transformer model = models::llama({.layers = 4 * random.between(1, 3),
                                     .hidden = one_of<int>(random, {64, 256, 1024}),
                                     .heads = 8,
                                     .kv_heads = one_of<int>(random, {2, 8}),
                                     .vocab = one_of<int>(random, {100, 32000}),
                                     .tied = random.between(0, 3) == 0});
  model.gated = random.between(0, 3) > 0;
  model.fused_swiglu = model.gated && random.between(0, 1) == 0;
  model.fused_attention = random.between(0, 5) > 0;
  model.code = model.gated ? one_of<LayerCode>(random, {LayerCode::megatron, LayerCode::torchtitan}) : LayerCode::megatron;
  model.products = one_of<ProductFormat>(random, {ProductFormat::bits16, ProductFormat::bits16, ProductFormat::fp8});
  if (random.between(0, 4) == 0) model.loss_chunk = 64;
  if (random.between(0, 4) == 0 && model.code == LayerCode::megatron && model.fused_attention) {
    model.experts = 8;
    model.experts_per_token = random.between(1, 2);
  }
  return model;
}

/// A small problem with one schedule and one size of microbatch. Times are fixed, and a message
/// takes none: what is held then follows from the order alone, not from how early messages arrive.
Problem draw(Random& random, const std::vector<std::string>& schedules) {
  Problem problem{.cluster = cluster_of(one_of<int>(random, {4, 8})), .model = draw_model(random)};
  problem.schedules = {{one_of(random, schedules)}};
  problem.mesh.tensor = one_of<int>(random, {1, 1, 2});
  problem.mesh.data = one_of<int>(random, {1, 2});
  problem.sequence_parallel = random.between(0, 2) > 0;
  problem.sequence = one_of<std::int64_t>(random, {128, 1024});
  problem.microbatch_sizes = {random.between(1, 2)};
  problem.microbatches = one_of<std::int64_t>(random, {1, 2, 3}) * problem.cluster.ranks();
  problem.usable_memory = 1;
  problem.recompute = Recompute::none;
  problem.cost = FixedCost{3_s, 3_s, 2_s, 0_s};
  return problem;
}

/// The prediction; none if the layout does not exist.
std::optional<Summary> run(const Problem& problem) {
  try {
    return Predictor{problem, shipped()}.best().summary;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Parts of sizes are rounded up, by less than a byte a buffer.
constexpr std::int64_t rounding = 4096;

void check_no_more(const Summary& less, const Summary& more, std::int64_t within) {
  for (std::size_t rank = 0; rank < more.peak_memory.size(); ++rank) {
    CAPTURE(rank);
    CHECK(less.peak_memory[rank].total.value() <= more.peak_memory[rank].total.value() + within);
  }
}

}  // namespace

TEST_CASE("recomputation never raises a rank's peak memory, with whole or split backwards") {
  Random random{20261127};
  const int wanted = support::draws(80);
  std::vector<std::string> schedules = pipelines;
  schedules.insert(schedules.end(), {"weipipe", "weipipe-zb2", "tawpipe", "fsdp", "ddp"});
  int compared = 0;
  for (int i = 0; i < wanted; ++i) {
    const Problem problem = draw(random, schedules);
    const std::optional<Summary> none = run(problem);
    for (int policy = 0; none && policy < 4; ++policy) {
      Problem again = problem;
      again.recompute = policy < 2 ? Recompute::full : Recompute::selective;
      if (policy == 1) again.model->recompute_layers = 1;
      if (policy == 3) again.model->recompute_parts = RecomputeParts::of_bits(random.between(1, 15));
      const std::optional<Summary> less = run(again);
      if (!less) continue;
      // Between its halves a backward keeps the gradients of a layer's norms, two rows of H in float32 a sequence.
      const std::int64_t norms =
          8 * std::int64_t{problem.model->hidden} * 2 * problem.cluster.ranks() * problem.microbatch_sizes[0];
      CAPTURE(i);
      CAPTURE(policy);
      CAPTURE(problem.schedules[0].schedule);
      CAPTURE(again.model->recompute_parts.bits());
      CAPTURE(problem.model->fused_swiglu);
      CAPTURE(problem.model->gated);
      CAPTURE(problem.model->experts);
      CAPTURE(problem.model->fused_attention);
      CAPTURE(name(problem.model->products));
      CAPTURE(name(problem.model->code));
      CAPTURE(problem.mesh.tensor);
      check_no_more(*less, *none, norms + (problem.mesh.tensor == 1 ? 0 : rounding));
      ++compared;
    }
  }
  CHECK(compared > wanted);
}

TEST_CASE("states shared out further, and among more replicas, never take more memory") {
  Random random{20261128};
  const int wanted = support::draws(80);
  int compared = 0;
  for (int i = 0; i < wanted; ++i) {
    Problem problem = draw(random, pipelines);
    const bool by_layer = random.between(0, 1) == 0;  // ddp on one device a replica: units are layers
    if (by_layer) {
      problem.schedules = {{"ddp"}};
      problem.model->vocab = 100;
      problem.model->experts = problem.model->experts_per_token = 0;
    }
    problem.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::full});
    problem.mesh.data = by_layer ? problem.cluster.ranks() / problem.mesh.tensor : 2;
    CAPTURE(i);
    CAPTURE(problem.schedules[0].schedule);
    CAPTURE(problem.mesh.tensor);
    CAPTURE(problem.mesh.data);
    std::optional<Summary> more;
    for (int s = 0; s < (by_layer ? state_shardings : 2); ++s) {
      problem.sharding = static_cast<StateSharding>(s);
      CAPTURE(name(problem.sharding));
      const std::optional<Summary> less = run(problem);
      if (less && more) check_no_more(*less, *more, rounding);
      if (less && more) ++compared;
      if (less) more = less;
    }
    if (!more) continue;
    problem.cluster = cluster_of(2 * problem.cluster.ranks());
    problem.mesh.data *= 2;
    problem.microbatches *= 2;
    const std::optional<Summary> wider = run(problem);
    if (!wider) continue;
    CHECK(wider->fullest().value() <= more->fullest().value() + rounding);
    ++compared;
  }
  CHECK(compared > wanted);
}

TEST_CASE("what fits a device fits a larger one, and is no slower") {
  Random random{20261129};
  const int wanted = support::draws(40);
  int compared = 0;
  for (int i = 0; i < wanted; ++i) {
    Problem problem = draw(random, pipelines);
    problem.microbatch_sizes = {1, 2};
    problem.global_batch = 2 * problem.microbatches;
    problem.microbatches = 0;
    problem.cost = RooflineCost{.utilization = 0.5};
    const std::optional<Summary> any = run(problem);
    if (!any) continue;
    const Bytes least{static_cast<std::int64_t>(random.real(0.5, 2) * static_cast<double>(any->fullest().value()))};
    std::optional<Summary> before;
    for (const int times : {1, 2, 4}) {
      problem.cluster = cluster_of(problem.cluster.ranks(), least * times);
      const std::optional<Summary> now = run(problem);
      REQUIRE(now);
      CAPTURE(i);
      CAPTURE(times);
      CAPTURE(problem.schedules[0].schedule);
      if (before && before->fits()) {
        CHECK(now->fits());
        CHECK(now->makespan <= before->makespan);
      }
      ++compared;
      before = now;
    }
  }
  CHECK(compared > wanted);
}

TEST_CASE("what lies in host memory takes none of a device") {
  Random random{20261130};
  const int wanted = support::draws(80);
  int compared = 0;
  for (int i = 0; i < wanted; ++i) {
    Problem problem = draw(random, pipelines);
    problem.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::selective, Recompute::full});
    const std::optional<Summary> on_device = run(problem);
    for (int kind = 1; on_device && kind < 4; ++kind) {
      problem.offload.activations = (kind & 1) != 0;
      problem.offload.optimizer = (kind & 2) != 0;
      const std::optional<Summary> offloaded = run(problem);
      if (!offloaded) continue;
      CAPTURE(i);
      CAPTURE(name(problem.offload));
      CAPTURE(problem.schedules[0].schedule);
      check_no_more(*offloaded, *on_device, problem.mesh.tensor == 1 ? 0 : rounding);
      ++compared;
    }
  }
  CHECK(compared > wanted);
}

}  // namespace less_memory_test
