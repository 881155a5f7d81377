// Tests of search/plan_space.hpp: which layouts a plan looks at, and what it tries around the best.
// Not: that the answer is the best of them (plan_test.cpp).
#include "tawpipe/search/plan_space.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/plan_requests.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/search/predict.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using support::request;
using support::small;
using support::with_memory;

TEST_CASE("the space is what the docs say") {
  PlanRequest of_docs{.problem = {.cluster = support::cluster(8, 2), .model = small, .sequence = 4096, .global_batch = 8}};
  bool context = false;
  for (const PlanLayout& layout : planned_layouts(of_docs)) {
    const Mesh& mesh = layout.mesh;
    CHECK(mesh.ranks() == 8);
    CHECK(mesh.tensor <= 4);   // heads, and a node
    CHECK(mesh.context <= 4);  // 1,024 tokens a device
    CHECK(8 / mesh.data % layout.microbatch_size == 0);
    context = context || mesh.context == 4;
  }
  CHECK(context);
  CHECK(planned_schedules(shipped()).size() + 1 == shipped().schedules().size());  // all but zb-auto
  for (const ScheduleChoice& open : planned_schedules(shipped())) {
    for (const ScheduleChoice& choice : variants_of(shipped(), open, of_docs.problem.cluster)) {
      CHECK_NOTHROW(shipped().check(choice.schedule, choice.options));
    }
  }
}

TEST_CASE("around the best pipeline states are shared out further, stages balanced, and things put into host memory") {
  PlanRequest asked = request(with_memory(3_MB));
  asked.schedules = {{"1f1b"}, {"gpipe"}};
  asked.axes[static_cast<std::size_t>(MeshAxis::pipeline)] = 2;
  const PlanResult plain = plan(asked, shipped());
  asked.sharding = {StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters};
  asked.offload = {{.optimizer = true}};
  asked.balanced_stages = true;
  const PlanResult found = plan(asked, shipped());
  CHECK(found.proven_best);
  CHECK(found.counts.bounded > plain.counts.bounded);
  CHECK(found.plans.front().summary.makespan <= plain.plans.front().summary.makespan);
  const PlanLayout two{.mesh = Mesh{.data = 2}.over(4), .recompute = Recompute::none, .microbatch_size = 1};
  const std::vector<PlanLayout> around = detail::planned_variants(asked, two, ScheduleFamily::pipeline);
  CHECK(around.size() == 6);  // 3 ways to share out with 2 to cut, less the problem's own, and host memory
  for (const PlanLayout& one : around) {
    CHECK(one.is_variant());
    const Problem problem = problem_of(asked, one, asked.schedules[0]);
    CHECK(problem.sharding == one.sharding.value_or(asked.problem.sharding));
    CHECK(problem.stage_cut.balanced == one.balanced_stages);
    CHECK(problem.offload == one.offload.value_or(Offload{}));
  }
  CHECK(detail::planned_variants(asked, {.mesh = Mesh{.data = 4}.over(4)}, ScheduleFamily::pipeline).empty());  // no pipeline
}

TEST_CASE("stages that cannot have equally many layers are balanced from the start") {
  PlanRequest asked = request(with_memory(1_GB));
  asked.problem.model->layers = 5;
  asked.schedules = {{"1f1b"}, {"fsdp"}};
  asked.axes[static_cast<std::size_t>(MeshAxis::pipeline)] = 2;
  const auto best_time = [&](bool balanced_stages) {
    asked.balanced_stages = balanced_stages;
    const PlanResult found = plan(asked, shipped());
    CHECK(found.proven_best);
    for (const Plan& one : found.plans) {
      CHECK(one.layout.balanced_stages == (balanced_stages && one.choice.schedule == "1f1b"));
      const Prediction again = predict(problem_of(asked, one.layout, one.choice), shipped());
      CHECK(again.summary.makespan == one.summary.makespan);
    }
    return found.plans.front().summary.makespan;
  };
  CHECK(best_time(true) <= best_time(false));
  asked.balanced_stages = true;
  const PlanLayout two{.mesh = Mesh{.data = 2}.over(4), .recompute = Recompute::none, .microbatch_size = 1};
  CHECK(detail::planned_variants(asked, two, ScheduleFamily::pipeline).empty());  // no other cut
  CHECK(detail::memory_savers(asked, two, ScheduleFamily::pipeline).empty());
}

TEST_CASE("microbatches are of about twice as many sequences each, and around the best of any number that divides its part") {
  using Sizes = std::vector<std::int64_t>;
  CHECK(detail::planned_sizes(64, 1000) == Sizes{1, 2, 4, 8, 16, 32, 64});
  CHECK(detail::planned_sizes(24, 1000) == Sizes{1, 2, 4, 8, 24});
  CHECK(detail::planned_sizes(45, 1000) == Sizes{1, 3, 5, 15, 45});
  CHECK(detail::planned_sizes(45, 14) == Sizes{1, 3, 5, 9});  // at most 14
  CHECK(detail::planned_sizes(45, 1) == Sizes{1});
  PlanRequest asked = request(with_memory(1_GB));
  asked.problem.global_batch = 90;
  const auto around = [&](std::int64_t size) {
    Sizes sizes;
    const PlanLayout layout{.mesh = Mesh{.data = 2}.over(4), .microbatch_size = size};
    for (const PlanLayout& one : detail::other_sizes(asked, layout)) {
      CHECK(one.mesh == layout.mesh);
      sizes.push_back(one.microbatch_size);
    }
    return sizes;
  };
  CHECK(around(15) == Sizes{9});
  CHECK(around(5) == Sizes{3, 9});
  CHECK(around(1).empty());
  const auto best_of = [](const PlanRequest& of) { return plan(of, shipped()).plans.front(); };
  const Plan best = best_of(asked);
  asked.microbatch_sizes = {1};
  CHECK(around(5).empty());  // it is given
  CHECK(best.summary.makespan < best_of(asked).summary.makespan);
  asked.microbatch_sizes = {best.layout.microbatch_size};
  CHECK(best.summary.makespan == best_of(asked).summary.makespan);
}

TEST_CASE("context-parallel ranks exchange in every way that is asked for and possible") {
  PlanRequest asked{.problem = {.cluster = support::cluster(8, 1), .model = small, .sequence = 8192, .global_batch = 8}};
  CHECK(!planned_layouts(asked).front().exchange);
  asked.exchanges = {ContextExchange::ring, ContextExchange::all_to_all};
  int rings = 0;
  int whole_heads = 0;
  for (const PlanLayout& layout : planned_layouts(asked)) {
    CHECK(layout.exchange.has_value() == (layout.mesh.context > 1));
    if (!layout.exchange) continue;
    CHECK(problem_of(asked, layout, {"1f1b"}).context_exchange == *layout.exchange);
    rings += *layout.exchange == ContextExchange::ring ? 1 : 0;
    if (*layout.exchange != ContextExchange::all_to_all) continue;
    ++whole_heads;
    CHECK(layout.mesh.context == 2);  // of 2 key heads
  }
  CHECK(rings > whole_heads);
  CHECK(whole_heads > 0);
  // Where it is given, what it does not divide is no layout.
  asked.exchanges = {};
  asked.problem.context_exchange = ContextExchange::all_to_all;
  for (const PlanLayout& layout : planned_layouts(asked)) CHECK(layout.mesh.context <= 2);
  asked.problem.context_exchange = ContextExchange::two_level;
  asked.problem.context_inner = 2;
  int levels = 0;
  for (const PlanLayout& layout : planned_layouts(asked)) {
    CHECK((layout.mesh.context == 1 || (layout.mesh.context % 2 == 0 && layout.mesh.tensor == 1)));
    levels += layout.mesh.context > 1 ? 1 : 0;
  }
  CHECK(levels > 0);
  asked.axes = {1, 4, 0, 0, 0};
  asked.problem.context_exchange = ContextExchange::all_to_all;
  CHECK_THROWS_WITH_AS(planned_layouts(asked), doctest::Contains("2 key-value heads are not divisible so"), InputError);
}

TEST_CASE("ranks share every kind of a model's layers, or the mesh is no layout") {
  PlanRequest asked{.problem = {.cluster = support::cluster(8, 1), .model = small, .sequence = 8192, .global_batch = 8}};
  const auto meshes = [&] {
    std::set<std::array<int, 2>> found;
    for (const PlanLayout& layout : planned_layouts(asked)) found.insert({layout.mesh.tensor, layout.mesh.context});
    return found;
  };
  const Mamba2 mamba{.heads = 4, .head_dim = 64, .groups = 4, .state = 64};
  asked.problem.model = Transformer::of({.hidden = small.hidden,
                                         .vocab = small.vocab,
                                         .kinds = {small.layer_kind(), {.sublayers = {mamba}}},
                                         .pattern = repeated({0, 1}, 8)});
  for (const auto& [tensor, context] : meshes()) CHECK((tensor <= 4 && context == 1));  // a convolution needs all tokens
  CHECK(meshes().size() == 3);
  asked.axes = {1, 2, 0, 0, 0};
  CHECK_THROWS_WITH_AS(planned_layouts(asked), doctest::Contains("context parallelism is not known for"), InputError);
}

TEST_CASE("an exchange in two levels is all-to-all among as many as one node has and heads allow") {
  Problem problem{.cluster = support::cluster(16, 4), .model = small, .sequence = 8192, .global_batch = 8};
  problem.model->heads = problem.model->kv_heads = 8;
  problem.context_exchange = ContextExchange::two_level;
  const auto inner = [&](int tensor, int context, const char* order = "tcsd") {
    return context_inner_of(problem, Mesh{.tensor = tensor, .context = context, .order = parse_mesh_order(order)}.over(16));
  };
  CHECK(inner(1, 8) == 4);  // nodes of 4
  CHECK(inner(1, 2) == 2);
  CHECK(inner(2, 8) == 2);
  CHECK(inner(4, 4) == 1);
  CHECK(inner(1, 4, "stcd") == 1);  // neighbours lie in different nodes
  problem.model->kv_heads = 2;
  CHECK(inner(1, 8) == 2);
  problem.context_inner = 8;
  CHECK(inner(1, 8) == 8);
}

TEST_CASE("layouts near each other differ in two axes, one twice and one half as large, or not at all") {
  const auto layout = [](int tensor, int context, int data, Recompute recompute = Recompute::none, std::int64_t size = 1) {
    return PlanLayout{Mesh{.tensor = tensor, .context = context, .data = data}.over(64), recompute, size};
  };
  const PlanLayout here = layout(4, 2, 2);  // 4 in a pipeline
  CHECK(detail::is_near(here, here));
  CHECK(detail::is_near(layout(4, 2, 2, Recompute::full), here));
  CHECK(detail::is_near(layout(2, 4, 2), here));
  CHECK(detail::is_near(layout(4, 1, 2, Recompute::full), here));  // 8 in a pipeline
  CHECK(detail::is_near(layout(4, 2, 1), here));
  CHECK_FALSE(detail::is_near(layout(1, 2, 8), here));  // a quarter
  CHECK_FALSE(detail::is_near(layout(2, 2, 2, Recompute::none, 2), layout(4, 2, 2)));
  CHECK_FALSE(detail::is_near(layout(2, 4, 4), here));  // three axes
  PlanLayout ring = here;
  ring.exchange = ContextExchange::ring;
  CHECK_FALSE(detail::is_near(ring, here));
  PlanLayout none = layout(8, 1, 2);
  CHECK(detail::is_near(none, ring));  // nothing is exchanged
}
