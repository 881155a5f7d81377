// Makespans against Boost.Graph: where nothing shares a link, a schedule takes its longest path.
// Not: shared links (engine_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <boost/graph/topological_sort.hpp>
#include <cstdint>
#include <iterator>
#include <vector>

#include "support/clusters.hpp"
#include "support/engine_graphs.hpp"
#include "support/graph_order.hpp"
#include "support/random.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"
#include "tawpipe/simulate/simulate.hpp"

using tawpipe::Cluster;
using tawpipe::DeviceGroups;
using tawpipe::Duration;
using tawpipe::Path;
using tawpipe::Schedule;
using tawpipe::Task;
using tawpipe::TaskId;
using tawpipe::Timeline;
using tawpipe::Workload;

namespace {

/// Times drawn at random, the same for the same task. Nothing shares a link.
struct RandomCost {
  std::uint64_t seed = 0;

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster&) const {
    const Task& task = schedule.task(id);
    return drawn(number(task.rank), number(task.stage), task.microbatch, static_cast<int>(task.op));
  }
  Path path(const Schedule&, const Task& task, const Cluster&) const {
    return {.latency = drawn(number(task.rank), task.partner(), task.bytes.repeat(), static_cast<int>(task.op)),
            .fraction = 0,
            .loads = {}};
  }

 private:
  Duration drawn(int a, int b, int c, int d) const {
    std::uint64_t mixed = seed;
    for (const int value : {a, b, c, d}) mixed = support::Random{mixed ^ static_cast<std::uint64_t>(value + 1000)}.next();
    return Duration{static_cast<std::int64_t>(mixed % 1'000'000'007)};
  }
};

using Weight = boost::property<boost::edge_weight_t, std::int64_t>;
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Weight>;

/// When each task ends: one vertex a task and a source before all; an edge into a task weighs its
/// length, negated.
std::vector<std::int64_t> longest_ends(const std::vector<std::vector<std::size_t>>& before,
                                       const std::vector<std::int64_t>& lengths) {
  const std::size_t count = before.size();
  Graph graph(count + 1);
  for (std::size_t t = 0; t < count; ++t) {
    boost::add_edge(count, t, Weight{-lengths[t]}, graph);
    for (const std::size_t earlier : before[t]) boost::add_edge(earlier, t, Weight{-lengths[t]}, graph);
  }
  std::vector<Graph::vertex_descriptor> order;
  boost::topological_sort(graph, std::back_inserter(order));  // throws on a cycle
  CHECK(order.size() == count + 1);
  std::vector<std::int64_t> distances(count + 1);
  boost::dag_shortest_paths(graph, count, boost::distance_map(distances.data()));
  std::vector<std::int64_t> ends;
  for (std::size_t t = 0; t < count; ++t) ends.push_back(-distances[t]);
  return ends;
}

void check_longest_path(const Schedule& schedule, std::uint64_t seed) {
  CAPTURE(schedule.name());
  CAPTURE(schedule.ranks());
  const RandomCost cost{seed};
  const Cluster cluster = support::cluster(schedule.ranks());
  std::vector<std::int64_t> lengths;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    const Duration length = tawpipe::is_compute(task.op) ? cost.compute_time(schedule, tawpipe::id<TaskId>(t), cluster)
                                                         : cost.path(schedule, task, cluster).latency;
    lengths.push_back(length.value());
  }
  const auto ends = longest_ends(support::direct_predecessors(schedule), lengths);
  const Timeline timeline = simulate(schedule, cluster, cost);
  CHECK(timeline.makespan().value() == *std::max_element(ends.begin(), ends.end()));
  std::size_t different = 0;
  for (std::size_t t = 0; t < ends.size(); ++t) {
    if (timeline.end[t].picoseconds() != ends[t] || timeline.start[t].picoseconds() != ends[t] - lengths[t]) ++different;
  }
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("each schedule takes its longest path under random times, task by task") {
  std::uint64_t seed = 1;
  for (const int p : {1, 2, 3, 6, 8}) {
    for (const std::int64_t n : {std::int64_t{p}, std::int64_t{2} * p + 1}) {
      const Workload work = Workload::abstract(p, n);
      for (int d = 1; d <= p; ++d) {
        if (p % d != 0) continue;
        const DeviceGroups groups = DeviceGroups::even(p, d);
        check_longest_path(tawpipe::schedules::tawpipe(work, groups), ++seed);
        check_longest_path(tawpipe::schedules::tawpipe(work, groups, {.order = tawpipe::schedules::Order::paper}), ++seed);
        check_longest_path(tawpipe::schedules::tawpipe(work, groups, {.overlap = false}), ++seed);
        check_longest_path(tawpipe::schedules::fully_sharded(work, groups, {.two_level = d > 1}), ++seed);
        check_longest_path(tawpipe::schedules::fully_sharded(work, groups, {.overlap = false}), ++seed);
      }
      for (const bool overlap : {true, false}) {
        check_longest_path(tawpipe::schedules::weipipe(work, p, {.overlap = overlap}), ++seed);
        check_longest_path(tawpipe::schedules::weipipe_naive(work, p, {.overlap = overlap}), ++seed);
        check_longest_path(tawpipe::schedules::weipipe_zb1(work, p, {.overlap = overlap}), ++seed);
        check_longest_path(tawpipe::schedules::gpipe(work, p, {.overlap = overlap}), ++seed);
        check_longest_path(tawpipe::schedules::one_f_one_b(work, p, {.overlap = overlap}), ++seed);
      }
    }
  }
}

TEST_CASE("random graphs of tasks without flows take their longest path") {
  support::Random random{5};
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    support::GraphBuilder graph;
    std::vector<std::vector<std::size_t>> before;
    std::vector<std::int64_t> lengths;
    for (int t = 0; t < 100; ++t) {
      std::vector<int> after;
      for (int j = random.between(0, 3); j > 0 && t > 0; --j) after.push_back(random.between(0, t - 1));
      before.emplace_back(after.begin(), after.end());
      lengths.push_back(random.between(0, 5) * std::int64_t{1'000'000'000'000});
      graph.wait(static_cast<double>(lengths.back()) * 1e-12, after);
    }
    std::vector<std::int64_t> ends;
    for (const auto time : tawpipe::run_engine(graph.build()).end) ends.push_back(time.picoseconds());
    CHECK(ends == longest_ends(before, lengths));
  }
}
