// Tests of core/parse_units.hpp and core/version.hpp.
// Not: literals (units_test.cpp).
#include "tawpipe/core/parse_units.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/version.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using tawpipe::InputError;
using tawpipe::parse_bandwidth;
using tawpipe::parse_bytes;
using tawpipe::parse_duration;
using tawpipe::parse_flops_rate;

TEST_CASE("durations") {
  CHECK(parse_duration("601us") == 601_us);
  CHECK(parse_duration("1.5 ms") == 1500_us);
  CHECK(parse_duration("0s") == 0_s);
  CHECK(parse_duration("3e2ns") == 300_ns);
  CHECK(parse_duration("7ps") == 7_ps);
}

TEST_CASE("sizes, decimal and binary") {
  CHECK(parse_bytes("80GiB") == 80_GiB);
  CHECK(parse_bytes("25MB") == 25_MB);
  CHECK(parse_bytes("1.5KiB") == 1536_B);
  CHECK(parse_bytes("7B") == 7_B);
  CHECK(parse_bytes("2TB") == 2000_GB);
  CHECK(parse_bytes("1TiB") == 1024_GiB);
}

TEST_CASE("bandwidths in bits and bytes, both ways to write a second") {
  CHECK(parse_bandwidth("10Gbps").value() == Approx(1.25e9));
  CHECK(parse_bandwidth("10Gb/s").value() == Approx(1.25e9));
  CHECK(parse_bandwidth("25GBps").value() == Approx(25e9));
  CHECK(parse_bandwidth("25 GB/s").value() == Approx(25e9));
  CHECK(parse_bandwidth("800Mbps").value() == Approx(1e8));
  CHECK(parse_bandwidth("1.6Tbps").value() == Approx(2e11));
}

TEST_CASE("compute rates") {
  CHECK(parse_flops_rate("312TFLOPS").value() == Approx(312e12));
  CHECK(parse_flops_rate("1PFLOPS").value() == Approx(1e15));
  CHECK(parse_flops_rate("900GFLOPS").value() == Approx(9e11));
}

TEST_CASE("what is no quantity is refused, with the units that exist") {
  CHECK_THROWS_WITH_AS(
      parse_duration("601"),
      "'601' is not a duration: write a number that is not negative and a unit (ps, ns, us, ms, s), such as 601us", InputError);
  for (const std::string text : {"", "us", "-1us", "1 uss", "1US", "nan us", "inf s", "1,5us", "us1", "1us "}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_duration(text), InputError);
  }
  CHECK_THROWS_AS(parse_duration("1e9s"), InputError);  // beyond 106 days
  CHECK_THROWS_AS(parse_bytes("1e10GB"), InputError);   // beyond 9e18
  CHECK_THROWS_AS(parse_bytes("80G"), InputError);
  CHECK_THROWS_AS(parse_bandwidth("0GBps"), InputError);
  CHECK_THROWS_AS(parse_bandwidth("10GB"), InputError);
  CHECK_THROWS_AS(parse_flops_rate("0TFLOPS"), InputError);
}

TEST_CASE("the version's text is made of its numbers") {
  CHECK(std::string{tawpipe::version} ==
        tawpipe::concat(TAWPIPE_VERSION_MAJOR, ".", TAWPIPE_VERSION_MINOR, ".", TAWPIPE_VERSION_PATCH));
}
