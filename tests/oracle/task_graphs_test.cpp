// Plain task graphs, as `tawpipe simulate --graph` runs them, against recorded exact answers for
// every task.
// Not: the engine without fractions of a picosecond (engine_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "tawpipe/simulate/task_graph_text.hpp"

using tawpipe::Timeline;

namespace {

const std::string folder = std::string{TAWPIPE_SHARED} + "/reference/task_graphs/";

bool is_here(const std::string& name) {
  const bool here = std::ifstream{folder + name}.is_open();
  if (!here) MESSAGE("left out: " << name << " is not here");
  return here;
}

}  // namespace

TEST_CASE("every task of the recorded graphs starts and ends within 1e-9 of the exact answer") {
  for (const std::string name : {"star_d2k4s6", "chain_d4k8s40", "mix_d4k8s30"}) {
    CAPTURE(name);
    if (!is_here(name + ".tg")) continue;
    const Timeline timeline = simulate(tawpipe::read_task_graph(folder + name + ".tg"));
    std::ifstream answers{folder + "expected/" + name + ".times"};
    std::size_t rows = 0;
    std::size_t task = 0;
    double start = 0;
    double end = 0;
    double largest = 0;
    while (answers >> task >> start >> end) {
      REQUIRE(task < timeline.end.size());
      largest =
          std::max({largest, std::abs(to_seconds(timeline.start[task]) - start), std::abs(to_seconds(timeline.end[task]) - end)});
      ++rows;
    }
    CHECK(rows == timeline.end.size());
    CHECK(largest < 1e-10);  // the answers have 12 digits
  }
}

TEST_CASE("the recorded graphs that are exact by hand are so to the picosecond") {
  for (const auto& [name, expected] : {std::pair{"hand1.tg", 30}, {"hand2.tg", 11}}) {
    if (!is_here(name)) continue;
    CHECK(simulate(tawpipe::read_task_graph(folder + name)).makespan() == tawpipe::seconds(expected));
  }
}
