// Tests of schedules/weipipe.hpp: closed forms under fixed times of both its schedules, and their
// options.
// Not: the messages one by one (oracle/traces_test.cpp) nor what every schedule must do
// (properties/).
#include "tawpipe/schedules/weipipe.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Order;

namespace {

Schedule build(int ranks, std::int64_t microbatches, const tawpipe::schedules::WeipipeOptions& options = {}) {
  return tawpipe::schedules::weipipe(Workload::abstract(ranks, microbatches), ranks, options);
}

}  // namespace

TEST_CASE("in turns an iteration takes (AP + P-1)(F + B)") {
  const FixedCost costs[] = {{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s},
                             {.forward = 3_s, .backward_input = 4_s, .backward_weight = 2_s, .transfer = 0_s},
                             {.forward = 5_s, .backward_input = 1_s, .backward_weight = 0_s, .transfer = 0_s}};
  for (int p = 1; p <= 16; ++p) {
    for (int a = 1; a <= 4; ++a) {
      const Schedule schedule = build(p, a * p, {.order = Order::paper});
      for (const FixedCost& cost : costs) {
        CAPTURE(p);
        CAPTURE(a);
        const auto turn = cost.forward + cost.backward_input + cost.backward_weight;
        CHECK(simulate(schedule, support::cluster(p), cost).makespan() == turn * (std::int64_t{a} * p + p - 1));
      }
    }
  }
}

TEST_CASE("naive, in turns: (P+A-1)(F + B) + (2A-1)(P-1) max(F, B)") {
  const FixedCost costs[] = {{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s},
                             {.forward = 3_s, .backward_input = 1_s, .backward_weight = 2_s, .transfer = 0_s},
                             {.forward = 5_s, .backward_input = 1_s, .backward_weight = 0_s, .transfer = 0_s}};
  // In its 2AP + P-1 turns all ranks that compute are in their forwards in the first P and in one
  // more for each added round; all in their backwards in one for each round and in the last P-1;
  // the others mix both, and last as long as the longer.
  for (int p = 1; p <= 16; ++p) {
    for (int a = 1; a <= 4; ++a) {
      const Schedule schedule = tawpipe::schedules::weipipe_naive(Workload::abstract(p, a * p), p, {.order = Order::paper});
      for (const FixedCost& cost : costs) {
        CAPTURE(p);
        CAPTURE(a);
        const auto backward = cost.backward_input + cost.backward_weight;
        const auto longer = std::max(cost.forward, backward);
        CHECK(simulate(schedule, support::cluster(p), cost).makespan() ==
              (cost.forward + backward) * (p + a - 1) + longer * ((2 * a - 1) * (p - 1)));
      }
    }
  }
}

TEST_CASE("naive needs twice the turns, and with them twice the messages for each added round") {
  const auto messages = [](bool naive, int p, int rounds) {
    const Workload work = Workload::abstract(p, std::int64_t{rounds} * p);
    const Schedule schedule = naive ? tawpipe::schedules::weipipe_naive(work, p) : tawpipe::schedules::weipipe(work, p);
    return std::ranges::count_if(schedule.tasks(), [](const auto& task) { return task.op == Op::pass; });
  };
  for (int p = 2; p <= 9; ++p) {
    CAPTURE(p);
    // A round of the flows: forward weights P(P-1), backward weights P^2, gradients P^2.
    const int round = p * (3 * p - 1);
    CHECK(messages(true, p, 1) == messages(false, p, 1));
    CHECK(messages(false, p, 3) - messages(false, p, 2) == round);
    CHECK(messages(true, p, 3) - messages(true, p, 2) == 2 * round);
  }
}

TEST_CASE("naive: a rank runs all forwards of a microbatch, then all its backwards") {
  const int p = 3;
  const Schedule schedule = tawpipe::schedules::weipipe_naive(Workload::abstract(p, 2 * p), p);
  std::vector<Op> ops;
  for (const auto& task : schedule.tasks()) {
    if (task.rank == tawpipe::Rank{1} && (task.op == Op::forward || task.op == Op::backward)) ops.push_back(task.op);
  }
  std::vector<Op> expected;
  for (const Op op : {Op::forward, Op::backward, Op::forward, Op::backward}) expected.insert(expected.end(), 3, op);
  CHECK(ops == expected);
}

TEST_CASE("eager order is never slower, and never faster than one rank's work") {
  const FixedCost cost{.forward = 3_s, .backward_input = 4_s, .backward_weight = 2_s, .transfer = 0_s};
  for (int p = 1; p <= 16; ++p) {
    CAPTURE(p);
    const auto cluster = support::cluster(p);
    const auto eager = simulate(build(p, 2 * p, {.order = Order::eager}), cluster, cost).makespan();
    CHECK(eager <= simulate(build(p, 2 * p, {.order = Order::paper}), cluster, cost).makespan());
    CHECK(eager >= 9_s * (2 * p));  // two microbatches of P chunks
    const Workload work = Workload::abstract(p, 2 * p);
    const auto naive = simulate(tawpipe::schedules::weipipe_naive(work, p, {.order = Order::eager}), cluster, cost).makespan();
    CHECK(naive <= simulate(tawpipe::schedules::weipipe_naive(work, p, {.order = Order::paper}), cluster, cost).makespan());
    CHECK(naive >= 9_s * (2 * p));
  }
}

TEST_CASE("only one ring is used: every message goes to the next rank, but for the two that start and end the flow") {
  const int p = 6;
  const Schedule schedule = build(p, 2 * p);
  int elsewhere = 0;
  for (const auto& task : schedule.tasks()) {
    if (task.op != Op::pass) continue;
    if (number(task.peer) != (number(task.rank) + 1) % p) ++elsewhere;
  }
  // Before the backward flow rank r exchanges with 1 - r mod 6: pairs 0-1, 2-5, 3-4, of which 0 ->
  // 1 and 3 -> 4 are steps of the ring: 4 others. After it rank r sends home to 5 - r: pairs 0-5,
  // 1-4, 2-3, of which 5 -> 0 and 2 -> 3 are: 4 others.
  CHECK(elsewhere == 8);
}

TEST_CASE("every option that it was built with is recorded") {
  const std::vector<std::pair<std::string, std::string>> expected{{"order", "paper"}, {"overlap", "off"}};
  const Schedule schedule = build(4, 4, {.order = Order::paper, .overlap = false});
  CHECK(schedule.options() == expected);
  CHECK(schedule.name() == "weipipe");
  CHECK(schedule.lanes().size() == 1);
  CHECK(build(4, 4).lanes().size() == 7);
  const Schedule naive =
      tawpipe::schedules::weipipe_naive(Workload::abstract(4, 4), 4, {.order = Order::paper, .overlap = false});
  CHECK(naive.options() == expected);
  CHECK(naive.name() == "weipipe-naive");
}
