// Tests of schedules/detail/tawpipe_order.hpp: where a group is at each step, and in which order
// steps come.
// Not: the tasks of a step (../tawpipe_test.cpp).
#include "tawpipe/schedules/detail/tawpipe_order.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using tawpipe::DeviceGroups;
using tawpipe::StageWork;
using tawpipe::schedules::MicrobatchShares;
using tawpipe::schedules::detail::TawpipeOrder;

namespace {

TawpipeOrder order(const std::vector<std::int32_t>& groups, int shards, std::int64_t microbatches, bool drawn) {
  const DeviceGroups ranks{groups};
  const std::vector<int> counts(static_cast<std::size_t>(ranks.ranks()), 1);
  return {ranks, shards, MicrobatchShares{counts, microbatches}, StageWork{}, drawn};
}

}  // namespace

TEST_CASE("a round is every shard forward, first to last, then backward, last to first") {
  const TawpipeOrder steps = order({2, 2}, 3, 8, false);
  const int shards[] = {0, 1, 2, 2, 1, 0};
  for (int step = 0; step < 12; ++step) {
    const auto place = steps.place(step, 1);
    CAPTURE(step);
    CHECK(place.active);
    CHECK(place.round == step / 6);
    CHECK(place.forward == (step % 6 < 3));
    CHECK(place.shard == shards[step % 6]);
  }
  CHECK_FALSE(steps.place(-1, 0).active);
  CHECK_FALSE(steps.place(12, 0).active);
}

TEST_CASE("a group without a microbatch in the last round has no place in it") {
  const TawpipeOrder steps = order({2, 2}, 3, 5, false);  // the fifth runs on rank 0
  CHECK(steps.place(6, 0).active);
  CHECK_FALSE(steps.place(6, 1).active);
}

TEST_CASE("all groups' steps come in the order of time, a group one forward behind the one before") {
  const TawpipeOrder steps = order({1, 1}, 2, 2, false);
  std::int64_t before = -1;
  std::vector<std::int64_t> next{-1, -1};
  for (const auto& event : steps.events()) {
    CHECK(event.time >= before);
    before = event.time;
    CHECK(event.step == next[static_cast<std::size_t>(event.group)]++);
    // forwards take 1 unit, backwards 2 where the work does not say: steps begin at 0 1 2 4 6
    const int begins[] = {-1, 0, 1, 2, 4, 6};
    CHECK(event.time == event.group + begins[event.step + 1]);
  }
  CHECK(next == std::vector<std::int64_t>{5, 5});
}

TEST_CASE("idle units are drawn where the paper draws them, and otherwise nowhere") {
  const TawpipeOrder drawn = order({1, 1, 1}, 2, 3, true);
  CHECK(drawn.idle_units(0, 0) == 0);
  CHECK(drawn.idle_units(0, 2) == 2);  // starts late
  CHECK(drawn.idle_units(2, 2) == 1);  // turns
  CHECK(drawn.idle_units(2, 0) == 0);
  CHECK(drawn.idle_units(4, 0) == 1);  // the first group's comes after its last backward
  CHECK(drawn.idle_units(1, 1) == 0);
  const TawpipeOrder eager = order({1, 1, 1}, 2, 3, false);
  for (int group = 0; group < 3; ++group) {
    for (int step = 0; step < 5; ++step) CHECK(eager.idle_units(step, group) == 0);
  }
}
