// Computations with held SMs against the naive engine on random graphs; and that holding more never
// ends a chain sooner.
// Not: hand-made cases (unit/simulate/held_sms_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "support/clusters.hpp"
#include "support/engine_graphs.hpp"
#include "support/hand_built.hpp"
#include "support/naive_engine.hpp"
#include "support/random.hpp"
#include "tawpipe/analysis/held_time.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using support::GraphBuilder;

namespace {

std::vector<int> some_of(support::Random& random, int below, int most) {
  std::vector<int> some;
  for (int i = random.between(0, most); i > 0 && below > 0; --i)
    some.push_back(random.between(std::max(0, below - 10), below - 1));
  std::sort(some.begin(), some.end());
  some.erase(std::unique(some.begin(), some.end()), some.end());
  return some;
}

/// Computations of three devices, waits, and flows over a few links that hold SMs of one or two
/// devices from when earlier tasks have ended.
GraphBuilder random_graph(support::Random& random) {
  std::vector<double> capacities;
  for (int i = random.between(1, 4); i > 0; --i) capacities.push_back(random.between(1, 20));
  const int links = static_cast<int>(capacities.size());
  GraphBuilder graph{capacities};
  std::vector<int> flows;
  const int tasks = random.between(2, 40);
  for (int t = 0; t < tasks; ++t) {
    const std::vector<int> after = some_of(random, t, 3);
    if (random.between(0, 1) == 0) {
      graph.compute(random.between(1, 16) * 0.25, random.between(0, 2), after);
    } else {
      graph.flow(random.between(0, 3) * 0.25, random.between(1, 40), {random.between(0, links - 1)}, after);
      flows.push_back(t);
    }
  }
  for (const int flow : flows) {
    for (int i = random.between(0, 2); i > 0; --i) {
      graph.hold(random.between(0, 2), random.between(1, 5), flow, some_of(random, flow, 2));
    }
  }
  return graph;
}

Timeline run(const GraphBuilder& graph, const std::vector<SpeedTable>& tables) {
  const EngineGraph built = graph.build();
  return detail::EngineRun{built, detail::SuccessorOrder{built}, detail::SharedProcessors{graph.holds(tables)}}.run();
}

/// Ranks that each compute in a chain, a message to the next now and then, all of it drawn.
Schedule random_chains(support::Random& random, int ranks) {
  ScheduleBuilder b{"chains", Workload::abstract(1, 1), ranks, {"compute", "out", "in"}};
  b.stages(Workload::abstract(1, 1).split(1));
  for (int i = random.between(ranks, 30); i > 0; --i) {
    const int rank = random.between(0, ranks - 1);
    const TaskId done = b.add({.op = Op::forward, .rank = Rank{rank}, .stage = StageId{0}, .microbatch = 0}, {});
    const int peer = (rank + 1) % ranks;
    if (peer == rank || random.between(0, 1) == 0) continue;
    Task message = support::pass(rank, peer, Bytes{random.between(1, 9) * 1'000'000});
    message.peer_lane = LaneId{2};
    b.add(message, {}, std::vector{done});
  }
  return b.build();
}

}  // namespace

TEST_CASE("the engine's times beside held SMs are the naive engine's, on random graphs") {
  support::Random random{13};
  double most = 0;
  std::size_t slowed = 0;
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const GraphBuilder graph = random_graph(random);
    std::vector<SpeedTable> tables;
    for (const int sms : {random.between(120, 160), 80, 200}) tables.push_back(HeldSms{.pair_ctas = 1}.table(sms));
    if (i % 3 == 0) tables[0] = HeldSms{.pair_ctas = 1, .speeds = {{2, 0.97}, {8, 0.5}, {30, 0.4}}}.table(132);
    const Timeline times = run(graph, tables);
    const support::NaiveTimes expected = support::naive_run(graph, tables);
    const auto starts = support::to_seconds(times.start);
    const auto ends = support::to_seconds(times.end);
    for (std::size_t t = 0; t < ends.size(); ++t) {
      most = std::max({most, std::abs(starts[t] - expected.start[t]), std::abs(ends[t] - expected.end[t])});
      const auto& node = graph.nodes()[t];
      slowed += node.until < 0 && node.device >= 0 && ends[t] - starts[t] > node.delay * 1.001 ? 1U : 0U;
    }
  }
  CHECK(most < 1e-9);
  CHECK(slowed > 300);
}

TEST_CASE("two runs beside held SMs give the same picoseconds") {
  support::Random random{14};
  for (int i = 0; i < 20; ++i) {
    const GraphBuilder graph = random_graph(random);
    const std::vector<SpeedTable> tables(3, HeldSms{.pair_ctas = 1}.table(132));
    CHECK(run(graph, tables) == run(graph, tables));
  }
}

TEST_CASE("a chain of computations and messages never ends sooner where messages hold more SMs") {
  support::Random random{15};
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    // Messages of fixed times share nothing: what starts later ends later.
    const Schedule schedule = random_chains(random, 2);
    FixedCost fixed{.forward = 7_ms, .backward_input = 7_ms, .backward_weight = 7_ms, .transfer = 3_ms};
    Duration before;
    for (const int ctas : {0, 1, 8, 16, 32, 60}) {
      fixed.held_sms = {.pair_ctas = ctas, .collective_ctas = ctas, .sms = 132};
      const Duration makespan = simulate(schedule, support::cluster(2), fixed).makespan();
      CHECK(makespan >= before);
      before = makespan;
    }
  }
}

TEST_CASE("what held SMs cost is the length of computations less the work in them") {
  support::Random random{16};
  for (int i = 0; i < 50; ++i) {
    CAPTURE(i);
    const Schedule schedule = random_chains(random, random.between(2, 5));
    const FixedCost cost{.forward = 7_ms,
                         .backward_input = 7_ms,
                         .backward_weight = 7_ms,
                         .transfer = 3_ms,
                         .held_sms = {.pair_ctas = 20, .waiting = i % 2 == 0, .sms = 132, .launch_order_implicit = i % 3 == 0}};
    const Cluster cluster = support::cluster(schedule.ranks());
    const Timeline timeline = simulate(schedule, cluster, cost);
    const HeldTime lost = held_time(schedule, cluster, timeline, cost.held_sms, {}, order_of_calls(schedule, cluster, cost));
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const double longer = to_seconds(timeline.duration_of(id<TaskId>(t)) - 7_ms);
      CHECK(std::abs(lost.task_s[t] - (is_compute(schedule.tasks()[t].op) ? longer : 0)) < 3e-12);
    }
    for (std::size_t rank = 0; rank < lost.slowed_s.size(); ++rank) {
      CHECK(lost.waiting_s[rank] <= (cost.held_sms.waiting ? lost.slowed_s[rank] + 1e-12 : 0));
    }
  }
}
