// Tests of search/sweep_axis.hpp.
// Not: what each parameter changes (tests/cli/instruments_test.cpp).
#include "tawpipe/search/sweep_axis.hpp"

#include <doctest/doctest.h>

using tawpipe::bisect_crossover;
using tawpipe::InputError;
using tawpipe::parse_sweep_axis;
using tawpipe::SweepAxis;

TEST_CASE("ranges and lists are read in base units") {
  const SweepAxis log = parse_sweep_axis("inter-node=1Gbps:100Gbps:log:3");
  REQUIRE(log.size() == 3);
  CHECK(log.logarithmic);
  CHECK(log.numbers[0] == 0.125e9);  // bytes a second
  CHECK(log.numbers[1] == doctest::Approx(1.25e9));
  CHECK(log.numbers[2] == 12.5e9);
  const SweepAxis linear = parse_sweep_axis("nodes=1:4:linear:7");  // 1, 1.5, 2, ... rounded, without repeats
  CHECK(linear.numbers == std::vector<double>{1, 2, 3, 4});
  CHECK(parse_sweep_axis("sequence=4096,8192").numbers == std::vector<double>{4096, 8192});
  CHECK(parse_sweep_axis("option.groups=nodes,flat").names == std::vector<std::string>{"nodes", "flat"});
  CHECK(parse_sweep_axis("intra-node-latency=5us").numbers[0] == doctest::Approx(5e-6));
}

TEST_CASE("what cannot be varied is named") {
  for (const char* wrong : {"", "sequence", "sequence=", "=3", "sequense=1", "sequence=0", "sequence=1.5", "sequence=1:2:log",
                            "sequence=1:2:cubic:3", "sequence=1:2:log:1", "utilization=1.5", "inter-node=fast", "option.=3"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_sweep_axis(wrong), InputError);
  }
  CHECK_THROWS_WITH_AS(parse_sweep_axis("sequense=1"), doctest::Contains("did you mean"), InputError);
  CHECK_THROWS_WITH_AS(parse_sweep_axis("inter-node-latency=0us:10us:log:4"), doctest::Contains("begin and end above 0"),
                       InputError);
}

TEST_CASE("a crossover is found between two points of different sign") {
  // x - 37 changes its sign at 37; found within 0.1 % from either side
  const auto f = [](double x) { return x - 37; };
  CHECK(bisect_crossover(1, 100, true, false, f) == doctest::Approx(37).epsilon(0.0015));
  CHECK(bisect_crossover(100, 1, false, false, f) == doctest::Approx(37).epsilon(0.0015));
  // whole numbers: 36 is the last before, 38 the first beyond; at 37 the lead is 0, which counts
  // with the side below
  CHECK(bisect_crossover(1, 100, false, true, f) == 38);
  for (int last = 1; last < 40; ++last) {
    const auto above = [&](double x) { return x - last - 0.5; };
    for (const bool logarithmic : {false, true}) CHECK(bisect_crossover(1, 40, logarithmic, true, above) == last + 1);
  }
}
