// Tests of schedules/order_search.hpp and order_problem.hpp: orders that run in their memory,
// bounds that hold, exact answers.
// Not: how they compare with others' orders (oracle/order_search_test.cpp).
#include "tawpipe/schedules/order_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/order_problems.hpp"
#include "support/pipelines.hpp"
#include "support/random.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::InputError;
using tawpipe::Op;
using tawpipe::Workload;
using namespace tawpipe::schedules;
namespace detail = tawpipe::schedules::detail;

namespace {

/// Any place, any times, any memory that one microbatch has room in.
OrderProblem drawn_problem(support::Random& random, int max_stages, int max_microbatches) {
  const std::string places[] = {"line", "loop", "v", "pairs"};
  const std::string place = places[random.between(0, 3)];
  const int a_device = place == "line" ? 1 : random.between(1, std::min(4, max_stages));
  const int devices = random.between(1, std::max(max_stages / a_device, 1));
  std::vector<int> laid = support::lay_stages(place, devices, a_device);
  if (random.between(0, 3) == 0) {
    for (int& device : laid) device = random.between(0, devices - 1);  // any place at all
  }
  OrderProblem problem;
  problem.microbatches = random.between(1, max_microbatches);
  problem.limits.assign(static_cast<std::size_t>(devices), 0);
  const bool equal = random.between(0, 1) == 0;
  OrderStage stage;
  for (std::size_t s = 0; s < laid.size(); ++s) {
    if (s == 0 || !equal) {
      const std::int64_t saved = random.between(1, 5);
      stage = {.forward = random.between(0, 9),
               .backward_input = random.between(0, 9),
               .backward_weight = random.between(0, 9),
               .hop = random.between(0, 3),
               .saved = saved,
               .kept = random.between(0, static_cast<int>(saved)),
               .stash = std::max(random.between(-4, 4), 0)};
    }
    stage.device = laid[s];
    problem.stages.push_back(stage);
    problem.limits[static_cast<std::size_t>(stage.device)] += stage.saved + stage.stash;
  }
  for (auto& limit : problem.limits) limit += random.between(0, 20);
  return problem;
}

/// Runs the order by nothing but its definition: each computation after the one before it on its
/// device and after its input. Checks that it is complete. @return the makespan
std::int64_t run_by_definition(const OrderProblem& problem, const std::vector<std::vector<Action>>& actions) {
  std::map<std::pair<Op, std::pair<int, int>>, std::int64_t> ends;
  std::vector<std::size_t> next(actions.size());
  std::vector<std::int64_t> clock(actions.size());
  const std::size_t all = problem.stages.size() * static_cast<std::size_t>(problem.microbatches) * 3;
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t d = 0; d < actions.size(); ++d) {
      if (next[d] == actions[d].size()) continue;
      const Action& action = actions[d][next[d]];
      const auto& stage = problem.stages[static_cast<std::size_t>(action.stage)];
      REQUIRE(stage.device == static_cast<int>(d));
      std::int64_t start = clock[d];
      bool ready = true;
      const auto after = [&](Op op, int s, std::int64_t hop) {
        const auto end = ends.find({op, {s, action.microbatch}});
        ready = ready && end != ends.end();
        if (ready) start = std::max(start, end->second + hop);
      };
      const bool last = action.stage + 1 == static_cast<int>(problem.stages.size());
      if (action.op == Op::forward && action.stage > 0) {
        after(Op::forward, action.stage - 1, problem.stages[static_cast<std::size_t>(action.stage) - 1].hop);
      }
      if (action.op == Op::backward_input) after(Op::forward, action.stage, 0);
      if (action.op == Op::backward_input && !last) after(Op::backward_input, action.stage + 1, stage.hop);
      if (action.op == Op::backward_weight) after(Op::backward_input, action.stage, 0);
      if (!ready) continue;
      const std::int64_t takes = action.op == Op::forward          ? stage.forward
                                 : action.op == Op::backward_input ? stage.backward_input
                                                                   : stage.backward_weight;
      clock[d] = start + takes;
      CHECK(ends.emplace(std::pair{action.op, std::pair{action.stage, action.microbatch}}, clock[d]).second);
      ++next[d];
      moved = true;
    }
  }
  REQUIRE(ends.size() == all);
  return *std::max_element(clock.begin(), clock.end());
}

/// The most that each device holds, by definition.
std::vector<std::int64_t> held_by_definition(const OrderProblem& problem, const std::vector<std::vector<Action>>& actions) {
  std::vector<std::int64_t> most(actions.size());
  for (std::size_t d = 0; d < actions.size(); ++d) {
    std::int64_t held = 0;
    for (const Action& action : actions[d]) {
      const auto& stage = problem.stages[static_cast<std::size_t>(action.stage)];
      if (action.op == Op::forward) held += stage.saved;
      if (action.op == Op::backward_input) held += stage.stash;
      most[d] = std::max(most[d], held);
      if (action.op == Op::backward_input) held -= stage.saved - stage.kept;
      if (action.op == Op::backward_weight) held -= stage.kept + stage.stash;
    }
  }
  return most;
}

/// The shortest makespan of all orders, by going through all of them.
class AllOrders {
 public:
  explicit AllOrders(const OrderProblem& problem) : problem_{problem}, words_(problem.limits.size()), clock_{problem} {
    left_.assign(3 * problem.stages.size(), problem.microbatches);
    extend(0, 0);
  }
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();

 private:
  void extend(std::size_t device, std::int64_t held) {
    if (device == words_.size()) {
      if (clock_.run(words_)) shortest = std::min(shortest, clock_.makespan());
      return;
    }
    bool complete = true;
    for (std::size_t step = 0; step < left_.size(); ++step) {
      const OrderStage& stage = problem_.stages[step / 3];
      if (stage.device != static_cast<int>(device) || left_[step] == 0) continue;
      complete = false;
      if (step % 3 > 0 && left_[step - 1] >= left_[step]) continue;
      const auto kind = static_cast<int>(step % 3);
      if (held + tawpipe::schedules::detail::needs(stage, kind) > problem_.limits[device]) continue;
      const std::int64_t then = held + tawpipe::schedules::detail::holds(stage, kind);
      --left_[step];
      words_[device].push_back(static_cast<std::int32_t>(step));
      extend(device, then);
      words_[device].pop_back();
      ++left_[step];
    }
    if (complete) extend(device + 1, 0);
  }

  const OrderProblem& problem_;
  tawpipe::schedules::detail::OrderWords words_;
  std::vector<std::int32_t> left_;
  tawpipe::schedules::detail::OrderClock clock_;
};

}  // namespace

TEST_CASE("orders found for any place, times and memory are complete, run, keep the limits and are no faster than the bound") {
  support::Random random{17};
  for (int draw = 0; draw < 300; ++draw) {
    CAPTURE(draw);
    const OrderProblem problem = drawn_problem(random, 12, 9);
    const FoundOrder found = search_order(problem, 60);
    CHECK(run_by_definition(problem, found.actions) == found.makespan);
    CHECK(held_by_definition(problem, found.actions) == found.held);
    for (std::size_t d = 0; d < found.held.size(); ++d) CHECK(found.held[d] <= problem.limits[d]);
    CHECK(found.bound >= order_bound(problem));
    CHECK(found.makespan >= found.bound);
    CHECK(found.gap() >= 0);
  }
}

TEST_CASE("the bound is never above the best of all orders, and small pipelines are solved") {
  support::Random random{5};
  int solved = 0;
  for (int draw = 0; draw < 120; ++draw) {
    CAPTURE(draw);
    OrderProblem problem = drawn_problem(random, 3, 2);
    std::vector<int> on(problem.limits.size());
    for (const auto& stage : problem.stages) ++on[static_cast<std::size_t>(stage.device)];
    if (*std::max_element(on.begin(), on.end()) * problem.microbatches > 4) continue;  // too many orders to go through
    const AllOrders all{problem};
    CHECK(order_bound(problem) <= all.shortest);
    const FoundOrder found = search_order(problem, 32);
    CHECK(found.makespan == all.shortest);
    CHECK(found.is_optimal());
    ++solved;
  }
  CHECK(solved > 60);
}

TEST_CASE("an order is never longer than one that the search is given, and the same in every run") {
  support::Random random{3};
  for (int draw = 0; draw < 40; ++draw) {
    CAPTURE(draw);
    const OrderProblem problem = drawn_problem(random, 10, 8);
    const FoundOrder good = search_order(problem, 200);
    const FoundOrder poor = search_order(problem, 32, {good.actions});
    CHECK(poor.makespan <= good.makespan);
    CHECK(search_order(problem, 200).actions == good.actions);
    // one that does not keep the limits is left out
    OrderProblem tight = problem;
    for (std::size_t d = 0; d < tight.limits.size(); ++d) {
      std::int64_t one = 0;
      for (const auto& stage : tight.stages) one += stage.device == static_cast<int>(d) ? stage.saved + stage.stash : 0;
      tight.limits[d] = one;
    }
    const FoundOrder found = search_order(tight, 32, {good.actions});
    for (std::size_t d = 0; d < found.held.size(); ++d) CHECK(found.held[d] <= tight.limits[d]);
  }
}

TEST_CASE("an order takes the simulator as long as the search says") {
  for (const char* place : {"line", "loop", "v"}) {
    const int chunks = place == std::string{"line"} ? 1 : 2;
    const auto laid = support::lay_stages(place, 4, chunks);
    const auto problem =
        support::equal_stages(laid, 10, {.forward = 30, .backward_input = 40, .backward_weight = 20}, 2, 4 * chunks);
    const FoundOrder found = search_order(problem, 500);
    const auto schedule = pipeline("searched", Workload::abstract(4, 10), {.rank_of_stage = laid, .actions = found.actions}, {});
    const FixedCost cost{30_s * chunks, 40_s * chunks, 20_s * chunks, 2_s};
    const auto run = support::run_pipeline(schedule, cost);
    CHECK(run.makespan == 1_s * found.makespan);
    CHECK(run.span == 1_s * found.span);
    CHECK(support::max_saved({.rank_of_stage = laid, .actions = found.actions}) <= 4 * chunks);
  }
}

TEST_CASE("1F1B's memory: no order is faster than ZB-H1, and less memory takes longer") {
  const OrderStage stage{.forward = 10, .backward_input = 10, .backward_weight = 5};
  const auto line = support::lay_stages("line", 8, 1);
  const auto zb_h1 = interleaved_zero_bubble_program(8, 24, 1).actions;
  const FoundOrder found = search_order(support::equal_stages(line, 24, stage, 1, 8), 400, {zb_h1});
  CHECK(found.makespan == 24 * 25 + 7 * 15 + 4 * 7);
  CHECK(found.is_optimal());
  std::int64_t before = found.makespan;
  for (const std::int64_t held : {4, 2, 1}) {
    const auto problem = support::equal_stages(line, 24, stage, 1, held);
    CHECK(order_bound(problem) > before);
    before = search_order(problem, 400).makespan;
  }
}

TEST_CASE("times near what 64 bits hold are searched too") {
  const auto line = support::lay_stages("line", 4, 1);
  const std::int64_t unit = 1'000'000'000'000;
  const auto small = support::equal_stages(line, 8, {.forward = 3, .backward_input = 4, .backward_weight = 2}, 1, 4);
  const auto large =
      support::equal_stages(line, 8, {.forward = 3 * unit, .backward_input = 4 * unit, .backward_weight = 2 * unit}, unit, 4);
  CHECK(search_order(large, 400).makespan == search_order(small, 400).makespan * unit);
}

TEST_CASE("a problem that no order solves is refused with what is wrong") {
  OrderProblem problem = support::equal_stages(support::lay_stages("v", 2, 2), 3, {.saved = 5, .kept = 5}, 0, 1);
  CHECK_THROWS_WITH_AS(search_order(problem, 10), "device 0 may hold 5, but one microbatch on its stages saves 10", InputError);
  problem.limits = {10, 10};
  problem.stages[0].kept = problem.stages[0].saved;
  CHECK(search_order(problem, 10).makespan > 0);
  problem.stages[3].device = 2;
  CHECK_THROWS_WITH_AS(search_order(problem, 10), "stage 3 is on device 2, but there are 2 devices", InputError);
  problem.stages[3].device = 0;
  problem.stages[1].kept = 6;
  CHECK_THROWS_WITH_AS(search_order(problem, 10), "stage 1 has a time below 0, or keeps more than it saves", InputError);
  problem.stages.clear();
  CHECK_THROWS_WITH_AS(search_order(problem, 10), "an order needs at least one stage and one microbatch", InputError);
}
