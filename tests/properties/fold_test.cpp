// Folded equals unfolded: random composed schedules, simulated by one copy an axis and in full,
// give the same summary to the byte (TAWPIPE_DRAWS=1000 for more).
// Not: that either is right (simulate/, analysis/).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/analysis/held_time.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/simulate/folding.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

namespace fold_test {

using namespace tawpipe;
using support::Random;

namespace {

/// A composed problem.
struct FoldDraw {
  Cluster cluster;
  Mesh mesh;
  std::string schedule;
  std::optional<Transformer> model;
  std::int64_t microbatches = 0;  ///< of each replica
  Recompute recompute = Recompute::none;
  Sharing sharing;
  StateSharding sharding = StateSharding::optimizer;
  Reshard reshard = Reshard::automatic;
  bool early_sums = false;
  bool early_gathers = false;
  std::int64_t bucket = automatic_bucket;
  std::variant<RooflineCost, FixedCost, MeasuredCost> cost;

  Workload workload(int replicas) const {
    const int devices = cluster.ranks() / mesh.copies();
    if (!model) return Workload::abstract(devices, microbatches * replicas);
    Workload work{*model, {64, mesh.expert, microbatches * replicas * mesh.expert}, recompute};
    work.over_devices(devices);
    return work;
  }

  Composition composition(const Schedule& logical) const {
    Composition with{.stages = {},
                     .sharding = sharding,
                     .reshard = reshard,
                     .overlap_gradients = early_sums,
                     .overlap_gathers = early_gathers,
                     .bucket = bucket};
    if (model) with.stages = share_stages(*model, logical.workload().batch(), recompute, logical.stages(), sharing);
    return with;
  }

  std::string text() const {
    return concat(schedule, " on ", cluster.nodes(), " nodes, ", cluster.ranks(), " devices, tensor ", mesh.tensor, ", context ",
                  mesh.context, ", expert ", mesh.expert, ", data ", mesh.data, ", ", mesh_order_text(mesh.order), ", ",
                  microbatches, " microbatches, cost ", cost.index());
  }
};

Cluster draw_cluster(Random& random) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(one_of<int>(random, {1, 2, 2, 3, 4, 4, 6, 8})),
                                  one_of<int>(random, {2, 4, 4, 8, 6}));
  if (random.between(0, 9) == 0) nodes.back() *= 2;
  // Slow links: what the last bit of a rate changes is then picoseconds.
  const double scale = one_of<double>(random, {1, 1e-3, 1e-5});
  return ClusterBuilder{}
      .device({.name = "d", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 100_GBps})
      .devices_of_nodes(std::move(nodes))
      .intra_node(
          {.bandwidth = BytesPerSecond{scale * random.real(1e9, 9e9)}, .latency = Duration{random.between(0, 3) * 1'000'003}})
      .inter_node(
          {.bandwidth = BytesPerSecond{scale * random.real(1e8, 9e8)}, .latency = Duration{random.between(0, 3) * 5'000'011}})
      .adapters_per_node(random.between(1, 3))
      .build();
}

FoldDraw draw_fold(Random& random) {
  FoldDraw drawn{.cluster = draw_cluster(random), .mesh = {}, .schedule = {}, .model = {}, .sharing = {}, .cost = {}};
  drawn.mesh = {one_of<int>(random, {1, 1, 2, 3, 4}), one_of<int>(random, {1, 1, 2, 3}), one_of<int>(random, {1, 2, 3, 4, 6, 8})};
  if (random.between(0, 1) == 0) {
    for (std::size_t i = 3; i > 0; --i) {
      std::swap(drawn.mesh.order[i], drawn.mesh.order[static_cast<std::size_t>(random.between(0, static_cast<int>(i)))]);
    }
  }
  drawn.schedule = one_of(random, shipped().schedules()).name;
  drawn.model = Transformer{.name = "drawn",
                            .layers = random.between(1, 13),
                            .hidden = 48 * random.between(1, 9),
                            .heads = 4,
                            .kv_heads = random.between(1, 2) * 2,
                            .intermediate = random.between(100, 900),
                            .vocab = random.between(100, 1000),
                            .tied = random.between(0, 1) == 0};
  drawn.microbatches = random.between(1, 4) * one_of<int>(random, {1, 2, 4, 8});
  drawn.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::selective, Recompute::full});
  drawn.sharding = static_cast<StateSharding>(random.between(0, 3));
  drawn.reshard = static_cast<Reshard>(random.between(0, 2));
  drawn.early_sums = random.between(0, 1) == 0;
  drawn.early_gathers = random.between(0, 1) == 0;
  drawn.bucket = one_of<std::int64_t>(random, {automatic_bucket, 1, 300'000});
  drawn.sharing = {.tensor = drawn.mesh.tensor,
                   .context = drawn.mesh.context,
                   .sequence_parallel = random.between(0, 2) > 0,
                   .exchange = random.between(0, 1) == 0 ? ContextExchange::all_gather : ContextExchange::ring};
  if (random.between(0, 3) == 0) {
    drawn.mesh.whole_experts = drawn.sharing.whole_experts = true;
    drawn.mesh.expert = drawn.sharing.expert = one_of<int>(random, {1, 2, 2, 3, 4});
    drawn.sharing.sequence_parallel = true;
    drawn.model->experts = drawn.mesh.shared() * random.between(1, 3);
    drawn.model->experts_per_token = random.between(1, drawn.model->experts);
    drawn.model->shared_width = random.between(0, 1) * 100;
    drawn.schedule = one_of<std::string>(random, {"1f1b", "ddp", "zb-h1", "interleaved-1f1b", "gpipe"});
  }
  const int kind = random.between(0, 5);
  if (kind == 0) {
    drawn.cost = FixedCost{Duration{1'000'000'007}, Duration{900'000'001}, Duration{800'000'003},
                           Duration{random.between(0, 99) * 1'000'001}};
    if (random.between(0, 1) == 0) drawn.model.reset();
  } else if (kind == 1) {
    const auto pass = [&] { return MeasuredPass{random.real(1e-4, 1e-3), random.real(0, 1e-3), random.real(0, 1e-3)}; };
    const auto link = [&] { return MeasuredLink{random.real(0, 1e-5), random.real(1e-10, 9e-9)}; };
    drawn.cost = MeasuredCost{.forward = pass(),
                              .backward = pass(),
                              .backward_input = pass(),
                              .backward_weight = pass(),
                              .update = MeasuredUpdate{1e-5, 1e-11},
                              .intra_node = link(),
                              .inter_node = link(),
                              .work = {}};
  } else {
    drawn.cost = RooflineCost{.utilization = random.real(0.1, 1),
                              .overhead = Duration{random.between(0, 2) * 4'200'000},
                              .all_reduce = random.between(0, 1) == 0 ? Algorithm::ring : Algorithm::tree,
                              .nccl_collectives = random.between(0, 2) == 0};
  }
  if (random.between(0, 1) == 0) {
    HeldSms held{.pair_ctas = random.between(0, 9), .collective_ctas = random.between(1, 9), .sms = 150};
    if (random.between(0, 1) == 0) held.state_ctas = random.between(5, 70);
    if (random.between(0, 1) == 0) held.state_rate = BytesPerSecond{random.real(1e8, 4e11)};
    held.waiting = random.between(0, 1) == 0;
    held.copy_engines = static_cast<ZeroCta>(random.between(0, 2));
    held.puts = static_cast<ZeroCta>(random.between(0, 2));
    held.launch_order_implicit = random.between(0, 5) == 0;  // refused
    std::visit([&](auto& cost) { cost.held_sms = held; }, drawn.cost);
  }
  return drawn;
}

std::string text_of(const Summary& summary) {
  auto json = to_json(summary);
  json.erase("folding");
  return json.dump(1);
}

/// The first lines that differ.
std::string difference(const std::string& a, const std::string& b) {
  std::string out;
  std::size_t i = 0;
  std::size_t j = 0;
  for (int found = 0; i < a.size() && j < b.size() && found < 4;) {
    const std::string left = a.substr(i, a.find('\n', i) - i);
    const std::string right = b.substr(j, b.find('\n', j) - j);
    if (left != right) {
      out += concat(left, "  instead of  ", right, "\n");
      ++found;
    }
    i += left.size() + 1;
    j += right.size() + 1;
  }
  return out;
}

}  // namespace

TEST_CASE("folded and full simulations of random composed schedules give the same summary") {
  Random random{2026};
  int equal = 0;
  int refused = 0;
  int coupled = 0;  // flows of one kind on one link
  int slowed = 0;   // by SMs that are held
  int mixtures = 0;
  int sharded = 0;  // mixtures of which ranks keep parts of weights or gradients
  std::string axes;
  for (int tries = 0; equal < support::draws(50) && tries < 100 * support::draws(50); ++tries) {
    const FoldDraw drawn = draw_fold(random);
    const std::string what = drawn.text();
    CAPTURE(tries);
    CAPTURE(what);
    try {
      const Mesh mesh = drawn.mesh.over(drawn.cluster.ranks());
      const Schedule logical = build_schedule(
          drawn.schedule,
          {.workload = drawn.workload(1), .nodes = mesh.pipeline_nodes(drawn.cluster.groups_by_node()), .options = {}});
      if (logical.tasks().size() * static_cast<std::size_t>(drawn.cluster.ranks()) > 200000) continue;
      std::visit(
          [&](const auto& cost) {
            const Workload whole = drawn.workload(drawn.mesh.data);
            const Composition with = drawn.composition(logical);
            const FoldedSimulation folded = simulate_folded(logical, whole, mesh, with, drawn.cluster, cost);
            if (!folded.run) {
              REQUIRE(!folded.refusal.empty());
              ++refused;
              return;
            }
            const Schedule composed = compose(logical, whole, mesh, with);
            const Schedule full = has_bodies(composed) ? expand_bodies(composed).schedule : composed;
            const Timeline timeline = simulate(full, drawn.cluster, cost);
            const Summary expected = summarize(full, drawn.cluster, timeline);
            const Summary found = summarize(folded.run->schedule, drawn.cluster, folded.run->timeline);
            const std::string differs = difference(text_of(found), text_of(expected));
            CHECK_MESSAGE(text_of(found) == text_of(expected), differs);
            if (const HeldSms* held = held_sms_of(cost)) {
              const HeldTime lost = held_time(full, drawn.cluster, timeline, *held);
              const HeldTime folded_lost = held_time(folded.run->schedule.schedule, drawn.cluster, folded.run->timeline, *held,
                                                     folded.run->schedule.same_as);
              CHECK(folded_lost.slowed_s == lost.slowed_s);
              CHECK(folded_lost.waiting_s == lost.waiting_s);
              slowed += HeldTime::mean(lost.slowed_s) > 0 ? 1 : 0;
            }
            CHECK(found.traffic.rank_sent_bytes == expected.traffic.rank_sent_bytes);
            CHECK(found.traffic.node_ingress_bytes == expected.traffic.node_ingress_bytes);
            CHECK(found.traffic.tasks == expected.traffic.tasks);
            CHECK(found.bubble.busy == expected.bubble.busy);
            CHECK(found.folding.factor > 1);
            CHECK(found.folding.tasks < found.tasks);
            CHECK(found.folding.ranks * found.folding.factor == found.ranks);
            ++equal;
            coupled += drawn.mesh.data > 1 ? 1 : 0;
            mixtures += drawn.mesh.expert > 1 ? 1 : 0;
            sharded += drawn.mesh.expert > 1 && drawn.sharding > StateSharding::optimizer ? 1 : 0;
          },
          drawn.cost);
    } catch (const InputError&) {
      continue;
    }
  }
  CHECK(equal == support::draws(50));
  CHECK(refused > 0);
  CHECK(coupled > 0);
  CHECK(slowed > 0);
  CHECK(mixtures > 0);
  CHECK(sharded > 0);
  MESSAGE(concat(equal, " folded, ", refused, " refused"));
}

}  // namespace fold_test
