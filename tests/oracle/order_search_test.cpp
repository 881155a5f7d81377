// At the memory of every order that the published generators of zero-bubble pipelines were measured
// with, the search is not slower.
// Not: the search in general (unit/schedules/order_search_test.cpp). Source:
// sail-sg/zero-bubble-pipeline-parallelism, its schedulers zb, zbv and zbv_greedy, and
// Megatron-LM's interleaved 1F1B.
#include "tawpipe/schedules/order_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "support/order_problems.hpp"

using namespace tawpipe::schedules;

TEST_CASE("no order of the published generators is faster than the one that the search finds in their memory") {
  const auto orders = support::published_orders(TAWPIPE_TEST_DATA "/zero_bubble/generators.csv");
  REQUIRE(orders.size() == 46);
  int optimal = 0;
  for (const auto& published : orders) {
    CAPTURE(published.name);
    CAPTURE(published.size);
    CAPTURE(published.times);
    // The largest take long without optimization: they end as soon as they are as fast.
    const std::size_t computations =
        published.problem.stages.size() * static_cast<std::size_t>(published.problem.microbatches) * 3;
    FoundOrder found;
    for (const std::int64_t moves : {std::int64_t{64}, std::int64_t{1000}, standard_moves}) {
      if (computations < 600 && moves < standard_moves) continue;
      found = search_order(published.problem, moves, published.starts);
      if (static_cast<double>(found.makespan) <= published.makespan) break;
    }
    // they are written with six digits
    CHECK(static_cast<double>(found.makespan) <= published.makespan * (1 + 5e-6));
    CHECK(found.makespan >= found.bound);
    for (std::size_t d = 0; d < found.held.size(); ++d) CHECK(found.held[d] <= published.problem.limits[d]);
    optimal += found.is_optimal() ? 1 : 0;
  }
  CHECK(optimal >= 24);  // no order of any kind is faster
}
