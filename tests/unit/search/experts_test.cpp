// Tests of problems and plans of a mixture of experts: its microbatches, predictions, and the meshes
// that a plan looks at.
// Not: which plan is best (plan_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/plan_requests.hpp"
#include "support/refusal.hpp"
#include "tawpipe/search/bound.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/verify/validate.hpp"

namespace search_experts_test {

using namespace tawpipe;
using namespace tawpipe::literals;
using Sizes = std::vector<std::int64_t>;
using support::refusal;

namespace {

Transformer mixture() {
  Transformer model = support::small;  // 4 heads, of which 2 of keys
  model.name = "mixture";
  model.intermediate = 64;
  model.experts = 8;
  model.experts_per_token = 2;
  return model;
}
Problem problem(const Mesh& mesh, std::int64_t batch = 32) {
  return {.cluster = support::cluster(8, 2),
          .model = mixture(),
          .sequence = 256,
          .global_batch = batch,
          .schedules = {{"1f1b"}},
          .mesh = mesh};
}

}  // namespace

TEST_CASE("a microbatch has sequences for each rank of the expert axis") {
  const Problem one = problem({.data = 2, .expert = 4, .whole_experts = true});
  // 32 sequences on 4 ranks of 2 replicas: 8 of each rank's sequences, a half for each replica.
  CHECK(one.candidate_sizes() == Sizes{1, 2, 4});
  for (const std::int64_t size : one.candidate_sizes()) {
    const Workload all = one.workload(size);
    CHECK(all.microbatches() == 8 / size);
    CHECK(all.batch().microbatch_size == 4 * size);
    CHECK(all.batch().global_batch == 32);
    CHECK(one.workload(size, 2).microbatches() == 4 / size);
  }
  Problem counted = one;
  counted.global_batch = 0;
  counted.microbatches = 6;
  counted.microbatch_sizes = {3};
  CHECK(counted.workload(3).batch().global_batch == 6 * 3 * 4);
  CHECK(counted.workload(3).batch().microbatch_size == 12);
  CHECK_NOTHROW(counted.check());
  // As many tokens of all ranks as a microbatch may have.
  Problem wide = one;
  wide.sequence = Batch::max_tokens / 8;
  CHECK(wide.most_sequences() == 2);
  wide.mesh.expert = 1;
  CHECK(wide.most_sequences() == 8);
}

TEST_CASE("a batch that expert-parallel ranks cannot share equally is refused") {
  const Mesh mesh{.expert = 4, .whole_experts = true};
  const std::string why =
      "a global batch of 30 sequences cannot be shared equally by 4 expert-parallel ranks; choose a multiple of 4";
  CHECK(refusal([&] { problem(mesh, 30).check(); }) == why);
  CHECK(refusal([&] { predict(problem(mesh, 30), shipped()); }) == why);
  CHECK(refusal([&] { problem(mesh, 3).check(); }) ==
        "a global batch of 3 sequences cannot be shared equally by 4 expert-parallel ranks; choose a multiple of 4");
  CHECK(problem(mesh, 3).candidate_sizes() == Sizes{1});
  CHECK(refusal([&] { problem({.data = 2, .expert = 4, .whole_experts = true}, 12).check(); }) ==
        "");  // 3 microbatches of each rank
  CHECK(refusal([&] { predict(problem({.data = 2, .expert = 4, .whole_experts = true}, 12), shipped()); }) ==
        "3 microbatches cannot be shared equally by 2 data-parallel replicas; choose a multiple of 2");
}

TEST_CASE("whole experts are of a model that has experts, as many as the ranks divide") {
  Problem none = problem({.expert = 2, .whole_experts = true});
  none.model = support::small;
  CHECK(refusal([&] { none.check(); }) == "expert parallelism: model 'small' has no experts; leave it out");
  none.model.reset();
  none.microbatches = 8;
  CHECK(refusal([&] { none.check(); }) == "expert parallelism: there is no model with experts; leave it out");
  CHECK(refusal([&] { problem({.expert = 2}).check(); }) == "an expert axis needs whole experts on each rank");
  Problem uneven = problem({.expert = 8, .whole_experts = true});
  uneven.model->experts = 12;
  CHECK(refusal([&] { predict(uneven, shipped()); }) ==
        "expert parallelism among 8 ranks: they do not divide the 12 experts equally; choose a divisor");
  Problem whole = problem({.tensor = 2, .whole_experts = true});
  whole.sequence_parallel = false;
  CHECK(refusal([&] { predict(whole, shipped()); }) ==
        "expert parallelism with tensor parallelism needs sequence parallelism, so that each rank sends its own tokens");
  Problem moved = problem({.expert = 2, .whole_experts = true});
  moved.schedules = {{"tawpipe"}};
  CHECK(refusal([&] { predict(moved, shipped()); }).find("moves experts or their gradients between its") != std::string::npos);
}

TEST_CASE("predictions of a mixture: folded as in full, clean, and no faster than their bounds") {
  for (const Mesh& mesh : {Mesh{.expert = 2, .whole_experts = true}, Mesh{.expert = 8, .whole_experts = true},
                           Mesh{.tensor = 2, .data = 2, .whole_experts = true},
                           Mesh{.tensor = 2, .expert = 2, .whole_experts = true}, Mesh{.tensor = 2, .data = 2}}) {
    CAPTURE(mesh.tensor);
    CAPTURE(mesh.expert);
    Problem one = problem(mesh);
    one.microbatch_sizes = {2};
    if (mesh.shared() > 2) one.expert_dispatch = ExpertDispatch::deepep;
    const Prediction folded = predict(one, shipped());
    const MinNeed least = Predictor{one, shipped()}.least({"1f1b"});
    CHECK(least.time <= folded.summary.makespan);
    CHECK(least.time > 0_s);
    CHECK(least.memory <= folded.summary.fullest());
    one.fold = Fold::off;
    const Prediction full = predict(one, shipped());
    CHECK(full.summary.makespan == folded.summary.makespan);
    CHECK(full.summary.fullest() == folded.summary.fullest());
    CHECK(full.summary.folding.factor == 1);
    const Diagnostics found = validate(full.schedule, one.cluster);
    CHECK_MESSAGE(found.ok(), found.text());
  }
}

TEST_CASE("neighbours are ranks with whole experts that lie in one node") {
  const auto neighbours = [](Mesh mesh, ExpertDispatch dispatch = ExpertDispatch::deepep) {
    const Problem one{.cluster = support::cluster(16, 2), .model = mixture(), .expert_dispatch = dispatch};
    mesh.whole_experts = true;
    return expert_neighbours_of(one, mesh.over(16));
  };
  CHECK(neighbours({.expert = 16}) == 8);
  CHECK(neighbours({.tensor = 2, .expert = 8}) == 8);
  CHECK(neighbours({.tensor = 2, .context = 2, .expert = 2}) == 8);
  CHECK(neighbours({.expert = 4}) == 4);
  CHECK(neighbours({.expert = 8, .order = parse_mesh_order("stced")}) == 4);  // of two stages, next to each other
  CHECK(neighbours({.data = 8, .expert = 2, .order = parse_mesh_order("dtces")}) == 1);
  CHECK(neighbours({.expert = 16}, ExpertDispatch::all_to_all) == 1);
}

TEST_CASE("by DeepEP fewer bytes cross between nodes, and a layer is faster") {
  const auto of = [](ExpertDispatch dispatch) {
    Problem one = problem({.expert = 8, .whole_experts = true});
    one.model->experts_per_token = 4;
    one.schedules = {{"ddp"}};
    one.microbatch_sizes = {1};
    one.recompute = Recompute::none;
    one.fold = Fold::off;
    one.expert_dispatch = dispatch;
    return predict(one, shipped()).summary;
  };
  const Summary copies = of(ExpertDispatch::all_to_all);
  const Summary once = of(ExpertDispatch::deepep);
  CHECK(once.makespan < copies.makespan);
  // A copy for each of 4 experts, half of which the other node has; or one if it has any of them.
  constexpr double of_once = 1 - 4.0 * 3 * 2 * 1 / (8 * 7 * 6 * 5);
  const double saved = static_cast<double>(copies.traffic.inter_node_bytes - once.traffic.inter_node_bytes);
  constexpr double tokens = 32.0 * 256 * 64 * 2;  // bytes, there and back in 4 layers, forward and backward
  CHECK(saved == doctest::Approx((2 - of_once) * tokens * 2 * 4 * 2).epsilon(1e-3));
}

TEST_CASE("ranks with experts of their own need less memory than those that have all") {
  // 8 devices, one stage: replicas, each with all experts; or the same ranks with one of 8 each.
  const auto states = [](const Mesh& mesh) {
    Problem one = problem(mesh);
    one.sharding = StateSharding::none;
    one.microbatch_sizes = {1};
    one.fold = Fold::off;
    const Prediction found = predict(one, shipped());
    std::int64_t bytes = 0;
    for (const Buffer& buffer : found.schedule.buffers()) {
      if (buffer.rank == Rank{0} && buffer.persistent && is_of_parameters(buffer.content.kind())) bytes += buffer.bytes.value();
    }
    return bytes;
  };
  const std::int64_t experts = mixture().layers * 3 * 64 * 8 * 64;
  CHECK(states({.data = 8}) == 16 * mixture().parameters());
  CHECK(states({.expert = 8, .whole_experts = true}) == 16 * (mixture().parameters() - experts * 7 / 8));
}

TEST_CASE("a plan looks at the meshes that can divide a mixture's experts, and only at these") {
  PlanRequest asked{.problem = {.cluster = support::cluster(8, 2), .model = mixture(), .sequence = 2048, .global_batch = 4}};
  int with_axis = 0;
  int with_tensor = 0;
  int split = 0;
  const auto meshes = detail::planned_meshes(asked);
  for (const Mesh& mesh : meshes) {
    CHECK(mesh.ranks() == 8);
    CHECK_NOTHROW(mesh.over(8));
    CHECK(detail::can_have_experts(asked, mesh));
    CHECK(std::count(meshes.begin(), meshes.end(), mesh) == 1);
    if (mesh.whole_experts) {
      CHECK(mesh.shared() > 1);
      CHECK(8 % mesh.shared() == 0);
      with_axis += mesh.expert > 1 ? 1 : 0;
      with_tensor += mesh.expert == 1 && mesh.tensor > 1 ? 1 : 0;
    } else {
      CHECK(mesh.expert == 1);
      split += mesh.tensor > 1 ? 1 : 0;
    }
    CHECK(4 % mesh.expert == 0);  // of the batch
  }
  CHECK(with_axis > 0);
  CHECK(with_tensor > 0);
  CHECK(split > 0);
  for (const PlanLayout& layout : planned_layouts(asked)) CHECK(4 / layout.mesh.batch_parts() % layout.microbatch_size == 0);

  const auto parts = [&](int number) {
    asked.expert_parts = number;
    auto found = detail::planned_meshes(asked);
    asked.expert_parts = 0;
    return found;
  };
  std::size_t all = 0;
  for (const int number : {1, 2, 4, 8}) {
    const auto found = parts(number);
    CHECK(!found.empty());
    for (const Mesh& mesh : found) CHECK((number == 1 ? !mesh.whole_experts : mesh.whole_experts && mesh.shared() == number));
    all += found.size();
  }
  CHECK(all == meshes.size());
  CHECK(parts(3).empty());

  asked.axes[static_cast<std::size_t>(MeshAxis::expert)] = 2;
  for (const Mesh& mesh : detail::planned_meshes(asked)) CHECK((mesh.expert == 2 && mesh.whole_experts));
  asked.axes = {};
  asked.problem.sequence_parallel = false;
  for (const Mesh& mesh : detail::planned_meshes(asked)) CHECK((!mesh.whole_experts || mesh.tensor == 1));
}

TEST_CASE("a plan of a dense model has no meshes with experts") {
  PlanRequest asked{.problem = {.cluster = support::cluster(8, 2), .model = support::small, .sequence = 2048, .global_batch = 4}};
  const auto meshes = detail::planned_meshes(asked);
  std::size_t expected = 0;  // tensor in a node and of 4 heads, context of 1,024 tokens, replicas of the batch
  for (const int tensor : {1, 2, 4}) {
    for (const int context : {1, 2}) {
      for (const int data : {1, 2, 4}) {
        const int copies = tensor * context * data;
        if (8 % copies != 0) continue;
        expected += data > 1 && copies < 8 ? 2 : 1;  // replicas may lie nearer than stages
      }
    }
  }
  CHECK(meshes.size() == expected);
  for (const Mesh& mesh : meshes) {
    CHECK_FALSE(mesh.whole_experts);
    CHECK(mesh.expert == 1);
    CHECK(mesh_order_text(mesh.order).size() == 4);
  }
  asked.expert_parts = 1;
  CHECK(detail::planned_meshes(asked) == meshes);
  asked.expert_parts = 2;
  CHECK(detail::planned_meshes(asked).empty());
}

TEST_CASE("the best plan of a mixture is a layout that can run") {
  PlanRequest asked = support::request(support::with_memory(1_GB));
  asked.problem.model = mixture();
  asked.schedules = {{"1f1b"}, {"tawpipe"}};
  const PlanResult found = plan(asked, shipped());
  REQUIRE(!found.plans.empty());
  CHECK(found.proven_best);
  for (const Plan& one : found.plans) {
    const Problem again = problem_of(asked, one.layout, one.choice);
    CHECK(predict(again, shipped()).summary.makespan == one.summary.makespan);
    if (one.layout.mesh.whole_experts && one.layout.mesh.pipeline > 1) CHECK(one.choice.schedule == "1f1b");
  }
  asked.expert_parts = 4;
  const PlanResult parts = plan(asked, shipped());
  REQUIRE(!parts.plans.empty());
  for (const Plan& one : parts.plans) CHECK(one.layout.mesh.expert_parts() == 4);
  CHECK(found.plans.front().summary.makespan <= parts.plans.front().summary.makespan);
}

TEST_CASE("no layout of a mixture is faster than its bounds, or smaller, and the plan is the best of all") {
  for (const StateSharding sharding :
       {StateSharding::none, StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
    const bool shared = sharding == StateSharding::none || sharding == StateSharding::gradients;
    CAPTURE(name(sharding));
    PlanRequest asked = support::request(support::with_memory(shared ? 1_GB : 3_MB));
    asked.problem.model = mixture();
    asked.problem.model->shared_width = shared ? 32 : 0;
    asked.problem.sharding = sharding;
    asked.problem.expert_dispatch = shared ? ExpertDispatch::deepep : ExpertDispatch::all_to_all;
    asked.schedules = {{"1f1b"}, {"zb-h1"}, {"ddp"}};
    const TrainingBound any = training_bound(asked.problem);
    LayoutBounds bounds{asked};
    Duration best = Duration::max();
    int whole = 0;
    for (const PlanLayout& layout : planned_layouts(asked)) {
      for (const ScheduleChoice& choice : asked.schedules) {
        if (layout.mesh.pipeline > 1 && choice.schedule == "ddp") continue;
        CAPTURE(choice.schedule);
        CAPTURE(layout.mesh.tensor);
        CAPTURE(layout.mesh.expert);
        CAPTURE(layout.mesh.whole_experts);
        try {
          const Problem one = problem_of(asked, layout, choice);
          const Predictor predictor{one, shipped()};
          const MinNeed need = predictor.least(choice);
          const Summary summary = predictor.best().summary;
          CHECK(need.time <= summary.makespan);
          CHECK(need.memory <= summary.fullest());
          CHECK((need.fits || !summary.fits()));
          CHECK(bounds.min_time(layout) <= summary.makespan);
          CHECK((bounds.can_hold(layout) || !summary.fits()));
          CHECK(any.seconds <= to_seconds(summary.makespan));
          if (summary.fits()) best = std::min(best, summary.makespan);
          whole += layout.mesh.whole_experts ? 1 : 0;
        } catch (const InputError&) {  // fewer microbatches than the schedule needs
        }
      }
    }
    CHECK(whole > 40);
    const PlanResult found = plan(asked, shipped());
    CHECK(found.proven_best);
    REQUIRE(!found.plans.empty());
    CHECK(to_seconds(found.plans.front().summary.makespan) <= to_seconds(best) * (1 + plan_tolerance));
    CHECK(to_seconds(found.plans.front().summary.makespan) >= to_seconds(best) * (1 - 1e-12));
  }
}

TEST_CASE("gradients and parameters are shared out around whole experts too, and the plan tries both") {
  PlanRequest asked = support::request(support::with_memory(1_GB));
  asked.problem.model = mixture();
  asked.schedules = {{"1f1b"}, {"ddp"}};
  asked.problem.sharding = StateSharding::parameters;
  CHECK(plan(asked, shipped()).proven_best);
  // Layers as small as these are faster with experts that are split by width, whose copies nobody sorts.
  asked.expert_parts = 4;
  const PlanResult given = plan(asked, shipped());
  CHECK(given.proven_best);
  REQUIRE_FALSE(given.plans.empty());
  CHECK(std::all_of(given.plans.begin(), given.plans.end(), [](const Plan& one) { return one.layout.mesh.whole_experts; }));
  asked.expert_parts = 0;
  asked.problem.sharding = StateSharding::optimizer;
  asked.sharding = {StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters};
  int wider = 0;
  for (const PlanLayout& layout : planned_layouts(asked)) {
    if (!layout.mesh.whole_experts) continue;
    for (const PlanLayout& variant : detail::planned_variants(asked, layout, ScheduleFamily::pipeline))
      wider += variant.sharding.value_or(StateSharding::none) > StateSharding::optimizer ? 1 : 0;
  }
  CHECK(wider > 0);
}

}  // namespace search_experts_test
