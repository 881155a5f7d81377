// Tests of schedules/microbatch_shares.hpp: counts by speed, and the numbers of each rank's
// microbatches.
// Not: the schedules that use them (tawpipe_test.cpp).
#include "tawpipe/schedules/microbatch_shares.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

using tawpipe::schedules::microbatches_by_speed;
using tawpipe::schedules::MicrobatchShares;

TEST_CASE("counts are whole numbers in about the ratio of the speeds") {
  using Counts = std::vector<int>;
  CHECK(microbatches_by_speed({}).empty());
  CHECK(microbatches_by_speed({7, 7, 7}) == Counts{1, 1, 1});
  CHECK(microbatches_by_speed({1, 2}) == Counts{1, 2});
  CHECK(microbatches_by_speed({2, 1, 1}) == Counts{2, 1, 1});
  // 1 and 2 (rounded up) would keep 3 / (2 / 1.5 x 2.5) = 90 % busy; 2 and 3 all
  CHECK(microbatches_by_speed({1, 1.5}) == Counts{2, 3});
  // an A100 and an H100: (1 + 3) / (1 x 4.17) = 96 %
  CHECK(microbatches_by_speed({312, 989}) == Counts{1, 3});
  CHECK(microbatches_by_speed({100, 101}) == Counts{1, 1});
}

TEST_CASE("at least 90 % of all speed is busy, whatever two speeds are joined") {
  for (int percent = 100; percent <= 800; ++percent) {
    const double fast = percent / 100.0;
    const auto counts = microbatches_by_speed({1, fast});
    const double round = std::max(static_cast<double>(counts[0]), counts[1] / fast);
    CAPTURE(percent);
    CHECK((counts[0] + counts[1]) / (round * (1 + fast)) > 0.9);
  }
}

TEST_CASE("speeds that are none, or too far apart, are refused") {
  const char* const message = "speeds of devices must be above zero, and none over 64 times another's";
  CHECK_THROWS_WITH_AS(microbatches_by_speed({1, 0}), message, tawpipe::InputError);
  CHECK_THROWS_WITH_AS(microbatches_by_speed({1, -2}), message, tawpipe::InputError);
  CHECK_THROWS_WITH_AS(microbatches_by_speed({1, 65}), message, tawpipe::InputError);
  CHECK_THROWS_WITH_AS(microbatches_by_speed({1, std::numeric_limits<double>::infinity()}), message, tawpipe::InputError);
  CHECK_THROWS_AS(microbatches_by_speed({1, std::numeric_limits<double>::quiet_NaN()}), tawpipe::InputError);
}

TEST_CASE("speeds may be given for each group, for each rank, or not at all") {
  using Counts = std::vector<int>;
  const tawpipe::DeviceGroups groups{{2, 1}};
  CHECK(microbatches_by_speed({}, groups) == Counts{1, 1, 1});
  CHECK(microbatches_by_speed({1, 2}, groups) == Counts{1, 1, 2});
  CHECK(microbatches_by_speed({2, 1, 1}, groups) == Counts{2, 1, 1});
  CHECK_THROWS_WITH_AS(microbatches_by_speed({1, 2, 3, 4}, groups),
                       "tawpipe: 4 speeds are given; give one for each of the 2 groups or of the 3 ranks", tawpipe::InputError);
}

TEST_CASE("every microbatch is one rank's, and a short last round begins with one for each rank") {
  const MicrobatchShares shares{{1, 3, 2}, 15};  // rounds of 6
  CHECK(shares.rounds() == 3);
  CHECK_FALSE(shares.are_equal());
  CHECK(shares.speeds(tawpipe::DeviceGroups{{2, 1}}).text() == "1+3+2");
  std::set<std::int64_t> seen;
  for (std::int64_t round = 0; round < shares.rounds(); ++round) {
    for (int r = 0; r < 3; ++r) {
      for (int i = 0; i < shares.count(r); ++i) {
        const std::int64_t microbatch = shares.microbatch(r, i, round);
        if (microbatch >= 0) CHECK(seen.insert(microbatch).second);
      }
    }
  }
  CHECK(seen.size() == 15);
  CHECK(*seen.rbegin() == 14);
  // the last round has three: one a rank
  for (int r = 0; r < 3; ++r) {
    CHECK(shares.microbatch(r, 0, 2) == 12 + r);
    CHECK(shares.has_microbatch(r, 2));
  }
  CHECK(shares.microbatch(1, 1, 2) == -1);
}

TEST_CASE("with one microbatch each, microbatch u * ranks + r is rank r's in round u") {
  const MicrobatchShares shares{{1, 1, 1, 1}, 10};
  CHECK(shares.speeds(tawpipe::DeviceGroups{{2, 2}}).text() == "equal");
  CHECK(MicrobatchShares{{2, 2, 3, 3}, 10}.speeds(tawpipe::DeviceGroups{{2, 2}}).text() == "2+3");
  CHECK(shares.microbatch(3, 0, 1) == 7);
  CHECK(shares.has_microbatch(1, 2));
  CHECK_FALSE(shares.has_microbatch(2, 2));
}
