// Sharded data parallelism, every strategy: bytes that leave a node and memory against their closed
// forms; and the validator.
// Not: single strategies' tasks and times (unit/schedules/).
#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/sharded_strategies.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/schedules/sharded.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe::literals;
using support::Ratio;
using support::strategies;
using support::Strategy;
using tawpipe::BufferKind;
using tawpipe::Cluster;
using tawpipe::DeviceGroups;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Scope;
using tawpipe::schedules::ShardingPlan;

namespace {

std::string text(const Strategy& strategy) {
  std::string built = strategy.name;
  for (const auto& [key, value] : strategy.options) built += tawpipe::concat(" ", key, "=", value);
  return built;
}

/// Every part of it (embedding, layer, head) has a number of parameters that 1536 divides, so no
/// share is padded.
Workload divisible(std::int64_t microbatches) {
  const tawpipe::Transformer model{
      .name = "divisible", .layers = 2, .hidden = 1536, .heads = 4, .kv_heads = 4, .intermediate = 192, .vocab = 192};
  return {model, tawpipe::Batch{.sequence = 4, .microbatch_size = 1, .global_batch = microbatches}};
}

void check_all(const Schedule& schedule, const Cluster& cluster) {
  const auto diagnostics = tawpipe::validate(schedule);
  CHECK_MESSAGE(diagnostics.errors() + diagnostics.warnings() == 0, diagnostics.text(2));
  const tawpipe::FixedCost cost{.forward = 2_s, .backward_input = 2_s, .backward_weight = 2_s, .transfer = 1_s};
  CHECK(tawpipe::simulate(schedule, cluster, cost).makespan() > 0_s);
}

/// Nodes of 1 to 4 devices, half of the time of one size, and up to three rounds of microbatches.
struct ShardedDraw {
  std::vector<std::int32_t> sizes;
  std::int64_t microbatches;
  std::uint32_t kind;  ///< of workload

  explicit ShardedDraw(std::uint32_t seed) {
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
    const auto nodes = 1 + below(4);
    const auto same = below(2) == 0 ? 0 : 1 + below(4);
    for (std::int32_t g = 0; g < nodes; ++g) sizes.push_back(same > 0 ? same : 1 + below(4));
    const auto ranks = std::accumulate(sizes.begin(), sizes.end(), 0);
    microbatches = 1 + below(3 * static_cast<std::uint32_t>(ranks));
    kind = seed % 3;
  }
  Workload workload() const {
    const auto ranks = std::accumulate(sizes.begin(), sizes.end(), 0);
    return kind == 0 ? Workload::abstract(ranks, microbatches) : support::transformer(3, microbatches, kind == 2);
  }
  std::string text() const {
    std::string out;
    for (const auto size : sizes) out += tawpipe::concat(out.empty() ? "" : "+", size);
    return tawpipe::concat(out, ", ", microbatches, " microbatches, workload ", kind);
  }
};

}  // namespace

TEST_CASE("bytes that leave a node are exactly those of the closed form") {
  for (const Strategy& strategy : strategies()) {
    CAPTURE(text(strategy));
    for (const int p : {8, 16, 24, 64}) {
      for (const int d : {2, 3, 8}) {
        if (p % d != 0) continue;
        const Cluster cluster = support::cluster(p, d);
        for (const std::int64_t a : {1, 4, 16}) {
          CAPTURE(p);
          CAPTURE(d);
          CAPTURE(a);
          const Workload work = divisible(a * p);
          const Schedule schedule = tawpipe::build_schedule(strategy.name, {work, cluster.groups_by_node(), strategy.options});
          const Ratio ratio = strategy.egress(p, d, a);
          const auto traffic = tawpipe::traffic(schedule, cluster);
          for (const auto bytes : traffic.node_egress_bytes) {
            CHECK(bytes * ratio.whole == 2 * work.model().parameters() * ratio.part);
          }
          CHECK(traffic.node_ingress_bytes == traffic.node_egress_bytes);
        }
      }
    }
  }
}

TEST_CASE("model states of a rank are exactly those of the closed form") {
  for (const Strategy& strategy : strategies()) {
    CAPTURE(text(strategy));
    for (const int p : {8, 16, 24, 64}) {
      for (const int d : {2, 8}) {
        CAPTURE(p);
        CAPTURE(d);
        const Workload work = divisible(p);
        const DeviceGroups nodes = DeviceGroups::even(p, d);
        const Schedule schedule = tawpipe::build_schedule(strategy.name, {work, nodes, strategy.options});
        std::vector<std::int64_t> states(static_cast<std::size_t>(p), 0);
        for (const auto& buffer : schedule.buffers()) {
          if (!buffer.persistent || buffer.kind() == BufferKind::activations || buffer.kind() == BufferKind::workspace) continue;
          states[index(buffer.rank)] += buffer.bytes.value();
        }
        const Ratio ratio = strategy.states(p, p / d);
        for (const auto bytes : states) CHECK(bytes * ratio.whole == work.model().parameters() * ratio.part);
      }
    }
  }
}

TEST_CASE("beside its states and activations a rank holds at most two gathered units and two gradients") {
  // one unit computed with and none ahead; gradients of the unit before, and of the one computed
  for (const Strategy& strategy : strategies()) {
    if (strategy.options.contains("reshard")) continue;
    CAPTURE(text(strategy));
    const Workload work = divisible(32);
    const Cluster cluster = support::cluster(16, 2);
    const Schedule schedule = tawpipe::build_schedule(strategy.name, {work, cluster.groups_by_node(), strategy.options});
    const tawpipe::FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 5_s};
    const auto timeline = tawpipe::simulate(schedule, cluster, cost);
    std::int64_t copies = 0;
    for (const auto& buffer : schedule.buffers()) {
      if (buffer.rank == tawpipe::Rank{0} && buffer.persistent && buffer.kind() == BufferKind::transfer) {
        copies += buffer.bytes.value();
      }
    }
    const std::int64_t unit = 2 * work.model().layer_parameters();
    for (const auto& peak : tawpipe::peak_memory(schedule, timeline)) {
      CHECK(peak.by_kind[static_cast<std::size_t>(BufferKind::transfer)].value() - copies <= 4 * unit);
    }
  }
}

TEST_CASE("every strategy on random nodes and batches: no finding, and it runs") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const ShardedDraw draw{seed};
    CAPTURE(draw.text());
    const DeviceGroups nodes{draw.sizes};
    const Cluster cluster = support::nodes_of(draw.sizes);
    const Workload work = draw.workload();
    for (const Strategy& strategy : strategies()) {
      const bool gathers = strategy.weights != Scope::replicated;
      for (const std::uint32_t variant : {0U, 1U + seed % 3}) {
        auto options = strategy.options;
        if (variant == 1 || variant == 3) options["overlap"] = "off";
        if (variant > 1 && gathers) options["prefetch"] = std::to_string(variant - 1);
        if (variant == 2 && gathers && strategy.name != "hpz") options["reshard"] = "off";
        CAPTURE(text(strategy));
        CAPTURE(variant);
        check_all(tawpipe::build_schedule(strategy.name, {work, nodes, options}), cluster);
      }
    }
  }
}

TEST_CASE("any scopes that widen from weights over gradients to optimizer states make a schedule") {
  const std::vector<Scope> scopes{Scope::replicated, Scope::node, Scope::all};
  int made = 0;
  for (std::uint32_t seed = 100; seed < 112; ++seed) {
    const ShardedDraw draw{seed};
    CAPTURE(draw.text());
    const DeviceGroups nodes{draw.sizes};
    for (const Scope weights : scopes) {
      for (const Scope gradients : scopes) {
        for (const Scope optimizer : scopes) {
          const ShardingPlan plan{.weights = weights, .gradients = gradients, .optimizer = optimizer, .two_level = true};
          if (weights > gradients || gradients > optimizer) {
            CHECK_THROWS_AS(tawpipe::schedules::sharded(draw.workload(), nodes, plan), tawpipe::InputError);
            continue;
          }
          CAPTURE(static_cast<int>(weights));
          CAPTURE(static_cast<int>(gradients));
          CAPTURE(static_cast<int>(optimizer));
          const Schedule schedule = tawpipe::schedules::sharded(draw.workload(), nodes, plan);
          check_all(schedule, support::nodes_of(draw.sizes));
          ++made;
        }
      }
    }
  }
  CHECK(made == 12 * 10);
}

// All ranks have work: what a rank without it fails to receive does no harm.
TEST_CASE("the validator finds a collective that forgets its last buffer, or has another one's bytes") {
  const DeviceGroups nodes{{2, 1}};
  for (const Strategy& strategy : strategies()) {
    CAPTURE(text(strategy));
    const int rounds = strategy.name == "hpz" ? 1 : 2;  // a copy that is not refreshed is still good
    const Schedule right = tawpipe::build_schedule(strategy.name, {support::transformer(2, rounds * 3), nodes, strategy.options});
    int faults = 0;
    for (std::size_t t = 0; t < right.tasks().size(); ++t) {
      if (!tawpipe::is_collective(right.tasks()[t].op) || right.uses(tawpipe::id<tawpipe::TaskId>(t)).empty()) continue;
      ++faults;
      CAPTURE(t);
      auto parts = right.parts();
      parts.tasks[t].bytes = parts.tasks[t].bytes / 2;
      CHECK_FALSE(tawpipe::validate({right.workload(), parts}).ok());
      parts = right.parts();
      std::vector<std::uint32_t> begin{0};
      std::vector<tawpipe::Use> items;
      for (std::size_t i = 0; i < parts.tasks.size(); ++i) {
        for (const auto& use : right.uses(tawpipe::id<tawpipe::TaskId>(i))) items.push_back(use);
        if (i == t) items.pop_back();
        begin.push_back(static_cast<std::uint32_t>(items.size()));
      }
      parts.uses = {begin, items};
      CHECK_FALSE(tawpipe::validate({right.workload(), parts}).ok());
    }
    CHECK(faults > 0);
  }
}
