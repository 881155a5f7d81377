// Tests of search/plan.hpp: the answer is the best of the space, whatever was dropped.
// Not: the space (plan_space_test.cpp), nor the bounds by themselves (properties/bounds_test.cpp).
#include "tawpipe/search/plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/plan_requests.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/predict.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using support::request;
using support::small;
using support::with_memory;

namespace {

/// Whether a plan tries the schedule there: on one rank only what all others are.
bool is_tried(const PlanRequest& request, const PlanLayout& layout, const ScheduleChoice& choice) {
  const auto plain = [](const ScheduleChoice& one) { return shipped().info(one.schedule).plain; };
  return layout.mesh.pipeline > 1 || plain(choice) || std::none_of(request.schedules.begin(), request.schedules.end(), plain);
}

/// Everything in the space, simulated.
struct Exhaustive {
  std::optional<Duration> best;
  std::int64_t fitting = 0;
  std::int64_t possible = 0;
};
Exhaustive simulate_all(const PlanRequest& request) {
  Exhaustive found;
  for (const PlanLayout& layout : planned_layouts(request)) {
    for (const ScheduleChoice& choice : request.schedules) {
      if (!is_tried(request, layout, choice)) continue;
      try {
        Prediction one = predict(problem_of(request, layout, choice), shipped());
        ++found.possible;
        if (!one.fits() && layout.recompute == Recompute::none && request.partial_recompute) {
          for (int layers = 1; layers < small.layers && !one.fits(); ++layers) {
            one = predict(problem_of(request, detail::recomputing(layout, layers), choice), shipped());
          }
        }
        if (!one.fits()) continue;
        ++found.fitting;
        if (!found.best || one.summary.makespan < *found.best) found.best = one.summary.makespan;
      } catch (const InputError&) {
      }
    }
  }
  return found;
}

/// `request` with as much memory a device as `share` of what its largest need is.
void check_like_exhaustive(PlanRequest request) {
  const Exhaustive all = simulate_all(request);
  CAPTURE(request.problem.cluster.name());
  CAPTURE(all.possible);
  CAPTURE(all.fitting);
  const PlanResult found = plan(request, shipped());
  CHECK(found.proven_best);
  const PlanCounts& counts = found.counts;
  CHECK(counts.impossible + counts.memory + counts.time + counts.left + counts.simulated == counts.candidates);
  CHECK(counts.left == 0);
  for (const Plan& one : found.plans) CHECK(is_tried(request, one.layout, one.choice));
  REQUIRE(found.plans.empty() == !all.best.has_value());
  if (!all.best) return;
  const double best = to_seconds(*all.best);
  CHECK(to_seconds(found.plans.front().summary.makespan) <= best * (1 + plan_tolerance) * (1 + 1e-12));
  CHECK(to_seconds(found.plans.front().summary.makespan) >= best * (1 - 1e-12));
  CHECK(counts.simulated < all.possible);
}

}  // namespace

TEST_CASE("the plan is as fast as the best of all that there is, with much memory and with little") {
  check_like_exhaustive(request(with_memory(1_GB)));
  check_like_exhaustive(request(with_memory(3_MB)));
  check_like_exhaustive(request(with_memory(2_MB)));
  check_like_exhaustive(request(with_memory(1_KB)));  // nothing fits
}

TEST_CASE("the least part of the layers that must be computed again is in the space, if that is asked for") {
  for (const Bytes memory : {3_MB, 2_MB, 1500_KB, 1_KB}) {
    PlanRequest parts = request(with_memory(memory));
    parts.partial_recompute = true;
    check_like_exhaustive(std::move(parts));
  }
  PlanRequest asked = request(with_memory(1_GB));
  asked.schedules = {{"1f1b"}};
  asked.axes = {1, 1, 0, 2, 2};
  asked.orders.resize(1);
  asked.microbatch_sizes = {1};
  asked.problem.model->layers = 8;
  asked.partial_recompute = true;
  const auto best = [&](Recompute recompute) {
    PlanRequest one = asked;
    one.recompute = {recompute};
    return plan(one, shipped()).plans.at(0).summary;
  };
  const Summary none = best(Recompute::none);
  const Summary full = best(Recompute::full);
  asked.recompute = {Recompute::none, Recompute::full};
  CHECK(plan(asked, shipped()).plans.at(0).layout.recompute == Recompute::none);
  asked.problem.cluster = with_memory((none.fullest() + full.fullest()) / 2);
  const PlanResult found = plan(asked, shipped());
  CHECK(found.proven_best);
  const Plan& part = found.plans.at(0);
  CHECK(part.layout.recompute_layers > 0);
  CHECK(part.layout.recompute_layers < 4);  // of a stage
  CHECK(part.summary.makespan > none.makespan);
  CHECK(part.summary.makespan < full.makespan);
  CHECK_FALSE(
      predict(problem_of(asked, detail::recomputing(part.layout, part.layout.recompute_layers - 1), part.choice), shipped())
          .fits());
}

TEST_CASE("it is the best on unequal nodes and by a roofline, too") {
  check_like_exhaustive(request(support::nodes_of({2, 1}), 6));
  PlanRequest roofline = request(with_memory(1_GB), 4);
  roofline.problem.cost = RooflineCost{};
  check_like_exhaustive(std::move(roofline));
}

TEST_CASE("what is given is kept") {
  PlanRequest given = request(with_memory(1_GB));
  given.axes[static_cast<std::size_t>(MeshAxis::tensor)] = 2;
  given.recompute = {Recompute::full};
  given.microbatch_sizes = {2};
  given.schedules = {{"1f1b"}, {"gpipe"}};
  const PlanResult found = plan(given, shipped());
  REQUIRE(!found.plans.empty());
  for (const Plan& one : found.plans) {
    CHECK(one.layout.mesh.tensor == 2);
    CHECK(one.summary.recompute == "full");
    CHECK(one.summary.microbatch_size == 2);
    CHECK((one.choice.schedule == "1f1b" || one.choice.schedule == "gpipe"));
  }
  given.axes[static_cast<std::size_t>(MeshAxis::pipeline)] = 2;
  for (const PlanLayout& layout : planned_layouts(given)) CHECK(layout.mesh.pipeline == 2);
}

TEST_CASE("a search that ends early says how far it may be from the best") {
  PlanRequest short_of = request(with_memory(1_GB));
  short_of.budget = 1;
  const PlanResult found = plan(short_of, shipped());
  CHECK_FALSE(found.proven_best);
  CHECK(found.counts.left > 0);
  const Exhaustive all = simulate_all(short_of);
  CHECK(found.bound <= *all.best);
  const auto alone = [](std::size_t count, auto&& run) {
    for (std::size_t i = 0; i < count; ++i) run(i);
  };
  const PlanResult stopped =
      plan(request(with_memory(1_GB)), shipped(), alone, [](const PlanProgress& now) { return now.best == nullptr; });
  CHECK(stopped.stopped);
  CHECK(!stopped.plans.empty());
}

TEST_CASE("a search that is stopped at once has a plan, and its progress only grows") {
  const auto alone = [](std::size_t count, auto&& run) {
    for (std::size_t i = 0; i < count; ++i) run(i);
  };
  for (const PlanRequest& one : {request(with_memory(1_GB)), request(with_memory(1_GB), 96)}) {
    const PlanResult stopped = plan(one, shipped(), alone, [](const PlanProgress&) { return false; });
    CHECK(stopped.stopped);
    CHECK_FALSE(stopped.proven_best);
    REQUIRE(!stopped.plans.empty());
    CHECK(stopped.plans[0].summary.fits());
    PlanProgress before;
    Duration best = Duration::max();
    plan(one, shipped(), alone, [&](const PlanProgress& now) {
      CHECK(now.done >= before.done);
      CHECK(now.done <= now.whole);
      before = now;
      if (now.best == nullptr) return true;
      CHECK(now.best->summary.makespan <= best);
      best = now.best->summary.makespan;
      return true;
    });
    CHECK(best == plan(one, shipped()).plans[0].summary.makespan);
  }
  const PlanResult nothing = plan(request(with_memory(1_KB)), shipped(), alone, [](const PlanProgress&) { return false; });
  CHECK(nothing.plans.empty());
}

TEST_CASE("a search that is told to stop ends where it is, with the best so far") {
  const auto alone = [](std::size_t count, auto&& run) {
    for (std::size_t i = 0; i < count; ++i) run(i);
  };
  const PlanRequest one = request(with_memory(1_GB), 96);
  const Duration whole = plan(one, shipped()).plans[0].summary.makespan;
  for (const int most : {0, 1, 10, 100, 1000, 10'000}) {
    int asked = 0;
    bool found = false;
    const auto told = [&] { return ++asked > most; };
    const tawpipe::StopScope scope{told};
    const PlanResult stopped = plan(one, shipped(), alone, [&](const PlanProgress& now) {
      found = now.best != nullptr;
      return true;
    });
    CAPTURE(most);
    CHECK(stopped.stopped == (asked > most));
    CHECK((!stopped.plans.empty() || !found));
    const PlanCounts& counts = stopped.counts;
    CHECK(counts.impossible + counts.memory + counts.time + counts.left + counts.simulated == counts.candidates);
    CHECK(counts.left >= 0);
    if (!stopped.stopped) continue;
    CHECK_FALSE(stopped.proven_best);
    CHECK(stopped.bound <= whole);
    CHECK(asked < most + 100);  // and did little more
  }
}

TEST_CASE("the clock ends a search with the best so far, and the answer says so") {
  PlanRequest one = request(with_memory(1_GB), 96);
  one.seconds = 1e-9;
  const PlanResult ended = plan(one, shipped());
  CHECK(ended.timed_out);
  CHECK_FALSE(ended.stopped);
  CHECK_FALSE(ended.proven_best);
  CHECK(ended.counts.left > 0);
  REQUIRE(!ended.plans.empty());
  one.seconds = 1e6;
  const PlanResult whole = plan(one, shipped());
  CHECK_FALSE(whole.timed_out);
  CHECK(ended.bound <= whole.plans[0].summary.makespan);
}

TEST_CASE("the answer does not depend on the order in which candidates are worked on") {
  PlanRequest many = request(with_memory(1_GB), 96);  // ordered by a few microbatches, and ended by the budget
  many.budget = 100'000;
  const auto backwards = [](std::size_t count, auto&& run) {
    for (std::size_t i = count; i-- > 0;) run(i);
  };
  for (const PlanRequest& one : {request(with_memory(3_MB)), many}) {
    const PlanResult a = plan(one, shipped());
    const PlanResult b = plan(one, shipped(), backwards, [](const PlanProgress&) { return true; });
    REQUIRE(a.plans.size() == b.plans.size());
    for (std::size_t i = 0; i < a.plans.size(); ++i) {
      CHECK(a.plans[i].summary.makespan == b.plans[i].summary.makespan);
      CHECK(a.plans[i].choice.schedule == b.plans[i].choice.schedule);
    }
    CHECK(a.counts.bounded == b.counts.bounded);
    CHECK(a.counts.simulated == b.counts.simulated);
    CHECK(a.counts.memory == b.counts.memory);
    CHECK(a.counts.time == b.counts.time);
    CHECK(a.counts.left == b.counts.left);
  }
}

TEST_CASE("the Pareto front falls in memory as it rises in time") {
  const PlanResult found = plan(request(with_memory(1_GB)), shipped());
  const std::vector<std::size_t> front = found.pareto();
  REQUIRE(!front.empty());
  CHECK(front[0] == 0);
  for (std::size_t i = 1; i < front.size(); ++i) {
    CHECK(found.plans[front[i]].summary.fullest() < found.plans[front[i - 1]].summary.fullest());
    CHECK(found.plans[front[i]].summary.makespan > found.plans[front[i - 1]].summary.makespan);
  }
}

TEST_CASE("each schedule has a plan that fits, or a reason that holds why it has none") {
  for (const Bytes memory : {1_GB, 3_MB, 2_MB, 1_KB}) {
    const PlanRequest asked = request(with_memory(memory));
    const PlanResult found = plan(asked, shipped());
    REQUIRE(found.proven_best);
    std::set<std::string> planned;
    for (const Plan& one : found.plans) planned.insert(one.choice.schedule);
    for (const char* family : {"tawpipe", "fsdp", "1f1b", "interleaved-1f1b", "v-min"}) {
      CHECK((memory != 1_GB || planned.contains(family)));
    }
    CHECK(planned.size() + found.losses.size() == asked.schedules.size());
    for (const PlanLoss& loss : found.losses) {
      CAPTURE(loss.schedule);
      CHECK(!planned.contains(loss.schedule));
      if (loss.least && !found.plans.empty()) {
        CHECK(*loss.least / found.plans[0].summary.makespan >= 1 - plan_tolerance * (1 + 1e-9));
      }
      const auto choice = std::find_if(asked.schedules.begin(), asked.schedules.end(),
                                       [&](const ScheduleChoice& one) { return one.schedule == loss.schedule; });
      for (const PlanLayout& layout : planned_layouts(asked)) {
        if (!is_tried(asked, layout, *choice)) continue;
        try {
          const Prediction one = predict(problem_of(asked, layout, *choice), shipped());
          if (one.fits()) {
            REQUIRE(loss.least);
            CHECK(one.summary.makespan >= *loss.least);
          } else if (!loss.least) {
            REQUIRE(loss.memory);
            CHECK(one.summary.fullest() >= *loss.memory);
          }
        } catch (const InputError&) {
        }
      }
    }
  }
}

TEST_CASE("what is fast and needs a little too much memory is tried with less") {
  PlanRequest asked = request(with_memory(1_GB));
  asked.problem.model->vocab = 8192;
  asked.schedules = {{"1f1b"}};
  asked.recompute = {Recompute::none};
  asked.microbatch_sizes = {1};
  asked.axes = {1, 1, 0, 2, 2};
  asked.orders.resize(1);
  const PlanResult plain = plan(asked, shipped());
  REQUIRE(plain.plans.size() == 1);
  asked.problem.cluster = with_memory(plain.plans[0].summary.fullest() - 1_MB);
  CHECK(plan(asked, shipped()).plans.empty());
  asked.loss_chunk = 1024;
  const PlanResult chunked = plan(asked, shipped());
  REQUIRE(!chunked.plans.empty());
  CHECK(chunked.plans[0].layout.loss_chunk == 1024);
  CHECK(problem_of(asked, chunked.plans[0].layout, chunked.plans[0].choice).model->loss_chunk == 1024);
  asked.offload = {{.optimizer = true}};
  const std::vector<PlanLayout> savers = detail::memory_savers(asked, plain.plans[0].layout, ScheduleFamily::data_parallel);
  REQUIRE(savers.size() == 3);
  CHECK((savers[0].loss_chunk == 1024 && !savers[0].offload));
  CHECK((savers[1].loss_chunk == 0 && savers[1].offload == Offload{.optimizer = true}));
  CHECK((savers[2].loss_chunk == 1024 && savers[2].offload));
  CHECK(detail::memory_savers(asked, chunked.plans[0].layout, ScheduleFamily::data_parallel).empty());
}

TEST_CASE("many microbatches are ordered by a few, and the answer is still the best") {
  PlanRequest many = request(with_memory(1_GB), 96);
  many.microbatch_sizes = {1};
  many.recompute = {Recompute::none};
  check_like_exhaustive(many);
}

TEST_CASE("a problem that cannot be planned is refused") {
  PlanRequest wrong = request(with_memory(1_GB));
  wrong.problem.model.reset();
  CHECK_THROWS_WITH_AS(plan(wrong, shipped()), "a plan needs a model, a sequence length and a global batch", InputError);
  wrong = request(with_memory(1_GB));
  wrong.problem.cost = FixedCost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s};
  CHECK_THROWS_WITH_AS(plan(wrong, shipped()), doctest::Contains("kernels or roofline"), InputError);
  wrong = request(with_memory(1_GB));
  wrong.problem.noise.jitter = 0.1;
  CHECK_THROWS_WITH_AS(plan(wrong, shipped()), doctest::Contains("without noise"), InputError);
  wrong = request(with_memory(1_GB));
  wrong.schedules = {{"1f2b"}};
  CHECK_THROWS_WITH_AS(plan(wrong, shipped()), doctest::Contains("1f2b"), InputError);
}

TEST_CASE("what the request's own condition refuses is no answer, and the rest is still searched") {
  PlanRequest asked = request(support::cluster(4, 2));
  asked.runs = [](const PlanRequest&, const PlanLayout& layout, const ScheduleChoice& choice) {
    return layout.mesh.tensor == 2 && choice.schedule != "ddp";
  };
  const PlanResult found = plan(asked, shipped());
  CHECK(found.proven_best);
  REQUIRE(!found.plans.empty());
  for (const Plan& one : found.plans) {
    CHECK(one.layout.mesh.tensor == 2);
    CHECK(one.choice.schedule != "ddp");
  }
  CHECK(found.counts.impossible > 0);
}
