// No simulation is faster than the bounds of its schedule, its layout and its cluster, nor needs
// less memory: on random draws (TAWPIPE_DRAWS=50000 for more).
// Not: what the plan does with them (unit/search/plan_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/bound.hpp"
#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan_result.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/topology/fabric_graph.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using support::one_of;
using support::Random;

namespace {

Cluster draw_cluster(Random& random) {
  const int shape = random.between(0, 3);
  if (shape == 0) return cluster_named(one_of<std::string>(random, {"dgx-h100", "dgx-a100*2", "l40s-pcie", "a800x24-10gbe*1"}));
  const auto sizes =
      one_of<std::vector<std::int32_t>>(random, {{2}, {4}, {2, 2}, {4, 4}, {2, 1}, {4, 4, 2}, {1, 1, 1}, {2, 2, 2, 2}});
  const auto node = [&] {
    return ClusterBuilder{}
        .device(device_named(one_of<std::string>(random, {"A100-80G", "H100-80G"})))
        .devices_of_nodes(sizes)
        .intra_node({.bandwidth = BytesPerSecond{random.real(1e9, 4e11)}, .latency = 3_us})
        .inter_node({.bandwidth = BytesPerSecond{random.real(1e8, 5e10)}, .latency = 12_us})
        .host_link({.bandwidth = BytesPerSecond{random.real(1e9, 5e10)}, .latency = 5_us})
        .build();
  };
  const Cluster plain = node();
  const int nodes = plain.nodes();
  std::vector<NodeType> kinds = plain.kinds();
  std::vector<std::int32_t> of;
  for (int n = 0; n < nodes; ++n) of.push_back(plain.kind_index(NodeId{n}));
  if (random.between(0, 3) == 0 && kinds.size() == 1 && nodes > 1) {  // nodes of two kinds
    kinds.push_back(node().kinds().front());
    for (std::size_t n = 1; n < of.size(); n += 2) of[n] = 1;
  }
  Fabric fabric;
  if (nodes > 2 && random.between(0, 1) == 0) {
    const LinkSpec uplink{.bandwidth = BytesPerSecond{random.real(1e8, 5e10)}, .latency = 1_us};
    fabric = make_fabric(leaf_spine(nodes, random.between(1, 2), random.between(1, 2), uplink));
  }
  return Cluster{plain.name(), std::move(kinds), std::move(of), std::move(fabric)};
}

void draw_experts(Random& random, Transformer& model) {
  model.experts = one_of<int>(random, {4, 8, 12});
  model.experts_per_token = random.between(1, 4);
  model.shared_width = one_of<int>(random, {0, 256});
  if (model.layers > 1 && random.between(0, 1) == 0) {
    model.dense_layers = 1;
    model.dense_width = 512;
  }
  if (random.between(0, 2) > 0) return;
  model.kv_heads = model.heads;
  model.head_dim = 96;
  model.rope_width = 32;
  model.value_size = 64;
  model.key_value_rank = 128;
  model.query_rank = one_of<int>(random, {0, 192});
}

PlanRequest draw(Random& random) {
  PlanRequest request{.problem = {.cluster = draw_cluster(random)}};
  Problem& problem = request.problem;
  problem.model = models::llama({.layers = random.between(1, 12),
                                 .hidden = one_of<int>(random, {256, 1024, 4096}),
                                 .heads = 8,
                                 .kv_heads = one_of<int>(random, {2, 8}),
                                 .vocab = 1000,
                                 .tied = random.between(0, 1) == 1});
  problem.model->gated = random.between(0, 3) > 0;
  problem.model->products = one_of<ProductFormat>(random, {ProductFormat::bits16, ProductFormat::bits16, ProductFormat::fp8});
  problem.offload.optimizer = random.between(0, 5) == 0;
  problem.offload.activations = random.between(0, 5) == 0;
  problem.sequence = one_of<std::int64_t>(random, {128, 2048, 8192});
  problem.global_batch = one_of<std::int64_t>(random, {4, 8, 12, 20, 24});
  problem.sequence_parallel = random.between(0, 3) > 0;
  problem.context_exchange = one_of<ContextExchange>(random, {ContextExchange::all_gather, ContextExchange::ring});
  request.exchanges = {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all,
                       ContextExchange::two_level};
  if (random.between(0, 2) == 0) problem.model->recompute_parts = RecomputeParts::of_bits(random.between(0, 15));
  problem.sharding = static_cast<StateSharding>(random.between(0, 3));
  problem.reshard = static_cast<Reshard>(random.between(0, 2));
  problem.overlap_gradients = random.between(0, 1) == 0;
  problem.overlap_gathers = random.between(0, 2) == 0;
  problem.tensor_overlap = random.between(0, 3) == 0;
  problem.usable_memory = random.real(0.02, 1);
  if (random.between(0, 1) == 1) problem.cost = RooflineCost{.nccl_collectives = random.between(0, 1) == 1};
  if (random.between(0, 3) == 0) problem.parameter_bytes.gradient = 4;
  Random ahead = random;
  Random of_buckets{ahead.next()};  // the other draws stay what they are
  problem.bucket = one_of<std::int64_t>(of_buckets, {automatic_bucket, 1, 20'000'000});
  if (of_buckets.between(0, 3) == 0) draw_experts(of_buckets, *problem.model);
  auto* const kernels = std::get_if<KernelCost>(&problem.cost);
  if (kernels != nullptr && of_buckets.between(0, 1) == 0) kernels->held_sms = measured_held_sms(problem.cluster.device(Rank{0}));
  return request;
}

/// No bound of a candidate, nor of its layout, is above what a simulation has.
void check_holds(const MinNeed& need, LayoutBounds& bounds, const PlanLayout& layout, const Summary& summary) {
  CHECK(to_seconds(need.time) <= to_seconds(summary.makespan));
  CHECK(need.memory.value() <= summary.fullest().value());
  CHECK((need.fits || !summary.fits()));
  CHECK(to_seconds(bounds.min_time(layout)) <= to_seconds(summary.makespan));
  CHECK((bounds.can_hold(layout) || !summary.fits()));
}

}  // namespace

TEST_CASE("no simulated schedule is faster than any of its bounds, nor smaller") {
  Random random{20260917};
  const int wanted = support::draws(150);
  std::vector<ScheduleChoice> choices;
  for (const ScheduleChoice& open : planned_schedules(shipped())) {
    for (ScheduleOptions& options : shipped().variants(open.schedule, open.options, true)) {
      choices.push_back({open.schedule, std::move(options)});
    }
  }
  int simulated = 0;
  int mixtures = 0;
  double closest = 1e9;
  for (int i = 0; i < wanted; ++i) {
    const PlanRequest request = draw(random);
    const std::vector<PlanLayout> layouts = planned_layouts(request);
    if (layouts.empty()) continue;
    const TrainingBound any = training_bound(request.problem);
    LayoutBounds bounds{request};
    for (int repeat = 0; repeat < 3; ++repeat) {
      PlanLayout layout = one_of(random, layouts);
      if (random.between(0, 3) == 0) layout.loss_chunk = one_of<int>(random, {64, 1000});
      if (layout.recompute == Recompute::full) layout.recompute_layers = random.between(0, request.problem.model->layers);
      const ScheduleChoice& choice = one_of(random, choices);
      const Problem problem = problem_of(request, layout, choice);
      CAPTURE(problem.cluster.name());
      CAPTURE(problem.cluster.ranks());
      CAPTURE(choice.schedule);
      CAPTURE(layout.mesh.tensor);
      CAPTURE(layout.mesh.context);
      CAPTURE(layout.mesh.data);
      CAPTURE(layout.mesh.expert);
      CAPTURE(layout.mesh.whole_experts);
      CAPTURE(problem.model->experts);
      CAPTURE(name(layout.recompute));
      CAPTURE(layout.loss_chunk);
      CAPTURE(name(problem.offload));
      CAPTURE(name(problem.model->products));
      CAPTURE(i);
      try {
        const Predictor predictor{problem, shipped()};
        const MinNeed need = predictor.least(choice);
        const Summary summary = predictor.best().summary;
        ++simulated;
        mixtures += layout.mesh.whole_experts ? 1 : 0;
        check_holds(need, bounds, layout, summary);
        CHECK(any.seconds <= to_seconds(summary.makespan));
        CHECK((any.can_hold || !summary.fits()));
        closest = std::min(closest, summary.makespan / need.time);
        if (need.kept == 0) continue;
        PlanLayout none = layout;
        none.recompute = Recompute::none;
        none.recompute_layers = 0;
        if (!bounds.can_hold(none) && summary.fits()) {
          const std::optional<Duration> part = bounds.min_time_of_part(none);
          REQUIRE(part);
          CHECK(to_seconds(*part) <= to_seconds(summary.makespan));
        }
        const PlanLayout more = detail::recomputing(layout, layout.recompute_layers + 1);
        const MinNeed next = Predictor{problem_of(request, more, choice), shipped()}.least(choice);
        const bool reorders = shipped().info(choice.schedule).family == ScheduleFamily::weight_pipeline;
        CHECK(next.kept < need.kept);
        if (problem.offload.activations) continue;  // what is computed again is not copied: detail::may_recompute_part
        CHECK((reorders || to_seconds(next.time) >= to_seconds(need.time) * (1 - 1e-6)));  // less a picosecond a step
        if (next.kept == 0) continue;
        if (!need.splits_backward) CHECK(next.memory <= need.memory);
        if (next.memory <= need.memory) continue;  // else no more layers need less than these: detail::min_recompute
        const PlanLayout most = detail::recomputing(more, layout.recompute_layers + 2);
        CHECK(Predictor{problem_of(request, most, choice), shipped()}.least(choice).memory >= need.memory);
      } catch (const InputError&) {  // the schedule does not exist for that layout
      }
    }
  }
  CHECK(simulated > wanted);
  CHECK(mixtures > wanted / 50);  // ranks with whole experts
  CHECK(closest < 1.001);         // a bound that no schedule comes near proves nothing
}

TEST_CASE("nor is one that runs microbatches in pairs") {
  Random random{20261129};
  const int wanted = support::draws(60);
  const std::vector<ScheduleChoice> choices{{"ddp"},
                                            {"interleaved-1f1b", {{"chunks", "1"}}},
                                            {"interleaved-1f1b", {{"chunks", "2"}}},
                                            {"interleaved-1f1b", {{"chunks", "3"}}},
                                            {"dualpipe-v"}};
  int simulated = 0;
  double closest = 1e9;
  for (int i = 0; i < wanted; ++i) {
    PlanRequest request = draw(random);
    if (!request.problem.model->is_routed()) draw_experts(random, *request.problem.model);
    request.problem.expert_overlap = one_of<ExpertOverlap>(random, {ExpertOverlap::on, ExpertOverlap::delayed});
    request.problem.expert_dispatch = one_of<ExpertDispatch>(random, {ExpertDispatch::all_to_all, ExpertDispatch::deepep});
    std::vector<PlanLayout> layouts = planned_layouts(request);
    std::erase_if(layouts, [](const PlanLayout& layout) { return !layout.mesh.whole_experts || layout.mesh.shared() == 1; });
    if (layouts.empty()) continue;
    LayoutBounds bounds{request};
    for (int repeat = 0; repeat < 4; ++repeat) {
      const PlanLayout& layout = one_of(random, layouts);
      const ScheduleChoice& choice = one_of(random, choices);
      const Problem problem = problem_of(request, layout, choice);
      CAPTURE(problem.cluster.ranks());
      CAPTURE(choice.schedule);
      CAPTURE(layout.mesh.tensor);
      CAPTURE(layout.mesh.context);
      CAPTURE(layout.mesh.pipeline);
      CAPTURE(layout.mesh.expert);
      CAPTURE(name(problem.expert_overlap));
      CAPTURE(name(layout.recompute));
      CAPTURE(i);
      try {
        const Predictor predictor{problem, shipped()};
        const MinNeed need = predictor.least(choice);
        const Summary summary = predictor.best().summary;
        ++simulated;
        check_holds(need, bounds, layout, summary);
        closest = std::min(closest, summary.makespan / need.time);
      } catch (const InputError&) {  // the schedule does not exist for that layout
      }
    }
  }
  CHECK(simulated > wanted / 2);
  CHECK(closest < 1.2);
}
