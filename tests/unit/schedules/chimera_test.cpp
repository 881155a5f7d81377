// Tests of schedules/chimera.hpp: time, memory, copies.
// Not: what every pipeline must do (properties/pipelines_test.cpp).
#include "tawpipe/schedules/chimera.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/pipelines.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Workload;
using namespace tawpipe::schedules;

TEST_CASE("Chimera takes 2m + p - 2 slots where a forward and a backward take one and p divides m") {
  const FixedCost cost{30_s, 20_s, 10_s, 0_s};
  for (int p = 2; p <= 16; p += 2) {
    for (const int units : {1, 2, 5}) {
      const int m = units * p;
      CAPTURE(p);
      CAPTURE(m);
      CHECK(support::run_pipeline(chimera(Workload::abstract(p, m), p), cost).makespan == 30_s * (2 * m + p - 2));
    }
  }
}

TEST_CASE("Chimera keeps p/2 + 1 activations at the ends of the ranks and p in their middle, however many microbatches") {
  for (int p = 2; p <= 12; p += 2) {
    for (const int m : {p, 3 * p}) {
      const auto peaks = peak_saved(chimera_program(p, m));
      for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == p / 2 + 1 + std::min(r, p - 1 - r));
    }
  }
}

TEST_CASE("Chimera sums the gradients of each stage's two copies") {
  const auto schedule = chimera(Workload::abstract(6, 6), 6);
  CHECK(std::ranges::count_if(schedule.tasks(), [](const auto& task) { return task.op == Op::all_reduce; }) == 6);
}

TEST_CASE("Chimera refuses an odd number of ranks and says what would do") {
  CHECK_THROWS_WITH_AS(chimera(Workload::abstract(5, 5), 5),
                       "chimera feeds microbatches from both ends and needs an even number of ranks, not 5", tawpipe::InputError);
}
