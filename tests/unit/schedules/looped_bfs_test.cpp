// Tests of schedules/looped_bfs.hpp: closed forms of time and memory.
// Not: what every pipeline must do (properties/pipelines_test.cpp).
#include "tawpipe/schedules/looped_bfs.hpp"

#include <doctest/doctest.h>

#include "support/pipelines.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Workload;
using namespace tawpipe::schedules;

TEST_CASE("looped BFS takes mS + (p-1)S/v where there are at least p microbatches") {
  const FixedCost cost{60_s, 120_s, 60_s, 0_s};
  for (const int p : {1, 2, 3, 5}) {
    for (const int v : {1, 2, 3, 5}) {
      for (const int m : {p, p + 1, 3 * p}) {
        CAPTURE(p);
        CAPTURE(v);
        CAPTURE(m);
        const auto s = support::whole(cost);
        const auto run = support::run_pipeline(looped_bfs(Workload::abstract(p, m), p, v), cost);
        CHECK(run.makespan == s * m + s * (p - 1) / v);
      }
    }
  }
}

TEST_CASE("with fewer microbatches than ranks looped BFS waits for each microbatch to come round") {
  // one microbatch: 2pv computations in a row and 2(pv - 1) hops
  const FixedCost cost{60_s, 120_s, 60_s, 1_s};
  const auto run = support::run_pipeline(looped_bfs(Workload::abstract(4, 1), 4, 3), cost);
  CHECK(run.makespan == 240_s * 4 + 22_s);
}

TEST_CASE("looped BFS keeps the activations of all microbatches") {
  for (const int peak : peak_saved(looped_bfs_program(4, 9, 3))) CHECK(peak == 9 * 3);
}

TEST_CASE("messages between the last rank and the first hide behind other microbatches") {
  // mS + (p-1)S/v + 2(p-1)c: m - p microbatches are longer than the ring's hops
  const FixedCost cost{60_s, 120_s, 60_s, 1_s};
  const auto run = support::run_pipeline(looped_bfs(Workload::abstract(4, 8), 4, 2), cost);
  CHECK(run.makespan == 240_s * 8 + 120_s * 3 + 6_s);
}
