// The engine against a naive one on random graphs, and against recorded exact answers.
// Not: hand-made cases (unit/simulate/).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/engine_graphs.hpp"
#include "support/naive_engine.hpp"
#include "support/random.hpp"
#include "support/task_graph_file.hpp"
#include "tawpipe/core/text.hpp"

using support::GraphBuilder;
using tawpipe::run_engine;
using tawpipe::Timeline;

namespace {

/// A graph of up to `most` tasks: two in three are flows over one to three of a few links, some of
/// them twice or by half.
GraphBuilder random_graph(support::Random& random, int most) {
  const int links = random.between(1, 6);
  std::vector<double> capacities;
  for (int i = 0; i < links; ++i) capacities.push_back(random.between(1, 20));
  GraphBuilder graph{capacities};
  const int tasks = random.between(1, most);
  for (int t = 0; t < tasks; ++t) {
    std::vector<int> after;
    for (int i = random.between(0, 3); i > 0 && t > 0; --i) after.push_back(random.between(std::max(0, t - 12), t - 1));
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    const double delay = random.between(0, 3) == 0 ? 0 : random.between(0, 8) * 0.25;
    if (random.between(0, 2) == 0) {
      graph.wait(delay, after);
      continue;
    }
    std::vector<tawpipe::LinkLoad> loads;
    const int first = random.between(0, links - 1);
    const int count = std::min(links, random.between(1, 3));
    const double weights[] = {1, 1, 1, 2, 0.5};
    for (int i = 0; i < count; ++i) loads.push_back({tawpipe::LinkId{(first + i) % links}, weights[random.between(0, 4)]});
    const double bytes = random.between(0, 9) == 0 ? 0 : random.between(0, 1) == 0 ? random.between(1, 40) : random.real(1, 40);
    graph.weighted(delay, bytes, loads, after);
  }
  return graph;
}

/// The largest difference, relative where times exceed a second.
double difference(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0;
  for (std::size_t t = 0; t < found.size(); ++t) {
    largest = std::max(largest, std::abs(found[t] - expected[t]) / std::max(1.0, expected[t]));
  }
  return largest;
}

/// A recorded graph, or nothing where the folder of reference data is not there.
bool with_recorded(const std::string& name, std::ifstream& graph) {
  graph.open(std::string{TAWPIPE_SHARED} + "/reference/task_graphs/" + name);
  if (!graph.is_open()) MESSAGE("left out: " << name << " is not here");
  return graph.is_open();
}

}  // namespace

TEST_CASE("the engine's times are the naive engine's, on small random graphs") {
  support::Random random{20240611};
  int flows = 0;
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const GraphBuilder graph = random_graph(random, 40);
    const Timeline times = run_engine(graph.build());
    const support::NaiveTimes expected = support::naive_run(graph);
    CHECK(difference(support::to_seconds(times.start), expected.start) < 1e-9);
    CHECK(difference(support::to_seconds(times.end), expected.end) < 1e-9);
    flows += static_cast<int>(std::ranges::count_if(graph.nodes(), [](const auto& node) { return node.bytes > 0; }));
  }
  CHECK(flows > 1000);
}

TEST_CASE("at any moment the engine's rates are max-min fair: no flow can be faster without slowing one that is not") {
  // One start of many flows: until the first ends, each has a link that is full and on which no
  // flow is faster.
  support::Random random{7};
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    const int links = random.between(2, 8);
    std::vector<double> capacities;
    for (int link = 0; link < links; ++link) capacities.push_back(random.between(1, 50));
    std::vector<std::vector<tawpipe::LinkLoad>> paths;
    for (int flow = random.between(1, 20); flow > 0; --flow) {
      std::vector<tawpipe::LinkLoad> loads;
      for (int link = 0; link < links; ++link) {
        if (random.between(0, 2) == 0) loads.push_back({tawpipe::LinkId{link}, random.between(0, 3) == 0 ? 2.0 : 1.0});
      }
      if (!loads.empty()) paths.push_back(loads);
    }
    tawpipe::LinkSharing sharing{capacities};
    for (std::size_t f = 0; f < paths.size(); ++f) sharing.start(static_cast<std::int32_t>(f), 1, paths[f], 0);
    std::vector<double> rates(paths.size());
    sharing.solve(0, [&](auto, std::int32_t task, std::int64_t finish) {
      rates[static_cast<std::size_t>(task)] = 1 / (static_cast<double>(finish) * 1e-12);
    });
    std::vector<double> used(capacities.size());
    std::vector<double> fastest(capacities.size());
    for (std::size_t f = 0; f < paths.size(); ++f) {
      for (const auto& load : paths[f]) {
        used[tawpipe::index(load.link)] += rates[f] * load.weight;
        fastest[tawpipe::index(load.link)] = std::max(fastest[tawpipe::index(load.link)], rates[f]);
      }
    }
    for (std::size_t link = 0; link < capacities.size(); ++link) CHECK(used[link] <= capacities[link] * (1 + 1e-9));
    for (std::size_t f = 0; f < paths.size(); ++f) {
      CHECK(std::ranges::any_of(paths[f], [&](const auto& load) {
        const std::size_t link = tawpipe::index(load.link);
        return used[link] >= capacities[link] * (1 - 1e-9) && rates[f] >= fastest[link] * (1 - 1e-9);
      }));
    }
  }
}

TEST_CASE("two runs give the same picoseconds") {
  support::Random random{99};
  for (int i = 0; i < 20; ++i) {
    const GraphBuilder graph = random_graph(random, 200);
    const Timeline first = run_engine(graph.build());
    const Timeline second = run_engine(graph.build());
    CHECK(first.start == second.start);
    CHECK(first.end == second.end);
  }
}

TEST_CASE("task graphs read from text: 30 s and 11 s by hand") {
  // A computation of 2 s; then 100 and 50 bytes out of node 0 at 10 B/s together after 1 s: 5 each
  // from 3 on, 50 there at 13, 100 at 18; 1000 bytes inside node 1 at 100 B/s after 0.5 s: 28.5;
  // 1.5 s of work: 30.
  std::istringstream first{
      "tg1 platform 2 2 100 0.5 10 1 tasks 5 C 0 2.0 0 X 0 2 100 1 0 X 1 3 50 1 0 X 2 3 1000 1 1 C 3 1.5 2 2 3"};
  CHECK(run_engine(support::read_task_graph(first).build()).makespan() == tawpipe::seconds(30));
  // 2 -> 3 is the only flow out of 2; 3 -> 1 and 3 -> 2 share the way out of 3: 5 each after 1 s,
  // 50 bytes: 11.
  std::istringstream second{"tg1 platform 4 1 100 0.5 10 1 tasks 3 X 2 3 50 0 X 3 1 50 0 X 3 2 50 0"};
  const auto times = run_engine(support::read_task_graph(second).build());
  CHECK(support::to_seconds(times.end) == std::vector<double>{6, 11, 11});
}

TEST_CASE("recorded task graphs with an exact answer for every task") {
  // `mix` is the hard case: what its flows share magnifies any error, so that the rounding of every
  // event to a whole picosecond (5e-13 s) grows to 4e-9 of the makespan. In fractions of a
  // picosecond all are within 1e-9.
  struct Case {
    std::string name;
    int fraction_bits;
    double tolerance;
  };
  for (const Case& recorded :
       {Case{"star_d2k4s6", 0, 1e-9}, {"chain_d4k8s40", 0, 1e-9}, {"mix_d4k8s30", 0, 1e-8}, {"mix_d4k8s30", 10, 1e-9}}) {
    const std::string& name = recorded.name;
    CAPTURE(name);
    CAPTURE(recorded.fraction_bits);
    std::ifstream file;
    if (!with_recorded(name + ".tg", file)) continue;
    tawpipe::EngineGraph graph = support::read_task_graph(file).build();
    graph.fraction_bits = recorded.fraction_bits;
    const Timeline times = run_engine(graph);
    const auto starts = support::to_seconds(times.start);
    const auto ends = support::to_seconds(times.end);
    std::ifstream answers{std::string{TAWPIPE_SHARED} + "/reference/task_graphs/expected/" + name + ".times"};
    REQUIRE(answers.is_open());
    double makespan = 0;
    double largest = 0;
    std::size_t rows = 0;
    std::size_t task = 0;
    double start = 0;
    double end = 0;
    while (answers >> task >> start >> end) {
      REQUIRE(task < ends.size());
      makespan = std::max(makespan, end);
      largest = std::max({largest, std::abs(starts[task] - start), std::abs(ends[task] - end)});
      ++rows;
    }
    CHECK(rows == ends.size());
    CHECK(largest < recorded.tolerance * makespan);
  }
}

TEST_CASE("recorded task graphs that are exact by hand") {
  for (const auto& [name, seconds] : {std::pair{"hand1.tg", 30}, {"hand2.tg", 11}}) {
    std::ifstream file;
    if (!with_recorded(name, file)) continue;
    CHECK(run_engine(support::read_task_graph(file).build()).makespan() == tawpipe::seconds(seconds));
  }
}
