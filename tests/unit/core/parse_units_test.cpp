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
using tawpipe::parse_count;
using tawpipe::parse_duration;
using tawpipe::parse_flops_rate;
using tawpipe::parse_power;
using tawpipe::parse_price;
using tawpipe::parse_time_span;
using tawpipe::Price;

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

TEST_CASE("spans of time and powers") {
  CHECK(parse_time_span("50000h") == Approx(1.8e8));
  CHECK(parse_time_span("10 min") == 600);
  CHECK(parse_time_span("1.5d") == 129'600);
  CHECK(parse_time_span("0s") == 0);
  CHECK(parse_power("700W") == 700);
  CHECK(parse_power("1.2kW") == 1200);
  for (const std::string text : {"", "10", "-1h", "10ms", "nan h", "1e16s", "1e308d", "h", "5 years"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_time_span(text), InputError);
  }
  for (const std::string text : {"", "700", "0W", "-5W", "2GW", "2000MW", "700w"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_power(text), InputError);
  }
}

TEST_CASE("counts, by themselves or in thousands, millions, billions and trillions") {
  CHECK(parse_count("15T") == 15e12);
  CHECK(parse_count("1.5T") == 1.5e12);
  CHECK(parse_count("300B") == 3e11);
  CHECK(parse_count("0.25M") == 250'000);
  CHECK(parse_count("2K") == 2000);
  CHECK(parse_count("15000000000000") == 15e12);
  CHECK(parse_count("1") == 1);
  CHECK_THROWS_WITH_AS(parse_count("15t"),
                       "'15t' is not a count: write a whole number from 1 to 1e18, by itself or with K, M, B or T, such as 15T",
                       InputError);
  for (const std::string text :
       {"", "T", "0", "0T", "-1T", "1.5", "0.0001K", "1e19", "1e7T", "1e400", "nan", "15TT", "15 T", "15TB", "15P"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_count(text), InputError);
  }
}

TEST_CASE("prices, with a currency's letters or without") {
  CHECK(parse_price("2.5") == Price{2.5, ""});
  CHECK(parse_price("2.5USD") == Price{2.5, "USD"});
  CHECK(parse_price("2.5 EUR") == Price{2.5, "EUR"});
  for (const std::string text :
       {"", "USD", "0", "0USD", "-2", "2.5usd", "2.5US", "2.5USDT", "$2.5", "2.5$", "2,5USD", "1e10", "inf", "2.5 ", "2.5USD "}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_price(text), InputError);
  }
}

TEST_CASE("the version's text is made of its numbers") {
  CHECK(std::string{tawpipe::version} ==
        tawpipe::concat(TAWPIPE_VERSION_MAJOR, ".", TAWPIPE_VERSION_MINOR, ".", TAWPIPE_VERSION_PATCH));
}
