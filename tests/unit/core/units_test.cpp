// Tests of core/units.hpp: arithmetic of quantities, conversions, literals.
// Not: parsing them (parse_units_test.cpp).
#include "tawpipe/core/units.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tawpipe/core/error.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using tawpipe::Bytes;
using tawpipe::BytesPerSecond;
using tawpipe::Duration;
using tawpipe::Flops;
using tawpipe::TimePoint;

namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};

}  // namespace

TEST_CASE("quantities of one unit add, scale, divide and compare; of two units they do not") {
  CHECK(3_B + 4_B == 7_B);
  CHECK(7_B - 9_B == Bytes{-2});
  CHECK(3_B * 4 == 12_B);
  CHECK(4 * 3_B == 12_B);
  CHECK(13_B / std::int64_t{4} == 3_B);
  CHECK(10_s / 4_s == Approx(2.5));
  CHECK(1_us < 1_ms);
  static_assert(Addable<Bytes, Bytes>);
  static_assert(!Addable<Bytes, Duration>);
  static_assert(!Addable<Bytes, Flops>);
  static_assert(!Comparable<Bytes, Duration>);
  static_assert(!std::is_convertible_v<std::int64_t, Bytes>);
  Bytes sum;
  sum += 5_B;
  sum -= 2_B;
  CHECK(sum == 3_B);
  CHECK(Bytes{} == 0_B);
  CHECK(Bytes::max().value() == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("bytes over a rate and operations over a rate are times") {
  CHECK(10_GB / 2_GBps == 5_s);
  CHECK(Flops{3e12} / 2_TFLOPS == 1_s + 500_ms);
  CHECK(1_GB / 8_Gbps == 1_s);
  CHECK_THROWS_AS(1_B / BytesPerSecond{0}, tawpipe::InputError);
  CHECK_THROWS_AS(0_B / BytesPerSecond{0}, tawpipe::InputError);  // not a number
}

TEST_CASE("seconds are rounded to the nearest picosecond and must fit") {
  CHECK(tawpipe::seconds(1.5) == 1_s + 500_ms);
  CHECK(tawpipe::seconds(1.4e-12) == 1_ps);
  CHECK(tawpipe::seconds(1.6e-12) == 2_ps);
  CHECK(tawpipe::seconds(0) == 0_ps);
  CHECK(tawpipe::seconds(9.1e6).value() == 9'100'000'000'000'000'000);  // 105 days
  CHECK_THROWS_AS(tawpipe::seconds(9.3e6), tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::seconds(-1e-12), tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::seconds(std::nan("")), tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::seconds(std::numeric_limits<double>::infinity()), tawpipe::InputError);
  CHECK(tawpipe::to_seconds(2500_ms) == Approx(2.5));
}

TEST_CASE("points of time differ by durations and move by them") {
  const TimePoint start{2_s};
  CHECK(start + 3_s == TimePoint{5_s});
  CHECK(TimePoint{5_s} - start == 3_s);
  CHECK(start.picoseconds() == 2'000'000'000'000);
  CHECK(start.since_start() == 2_s);
  CHECK(TimePoint{} < start);
  CHECK(tawpipe::to_seconds(start) == Approx(2));
}

TEST_CASE("literals: decimal and binary prefixes, bits and bytes") {
  CHECK(1_KiB == 1024_B);
  CHECK(1_MiB == 1024_KiB);
  CHECK(1_GiB == 1024_MiB);
  CHECK(1_KB == 1000_B);
  CHECK(1_MB == 1000_KB);
  CHECK(1_GB == 1000_MB);
  CHECK(1_ns == 1000_ps);
  CHECK(1_us == 1000_ns);
  CHECK(1_ms == 1000_us);
  CHECK(1_s == 1000_ms);
  CHECK(1.5_us == 1500_ns);
  CHECK((8_Gbps).value() == Approx((1_GBps).value()));
  CHECK((2.5_GBps).value() == Approx(2.5e9));
  CHECK((0.4_Gbps).value() == Approx(5e7));
  CHECK((1.5_TFLOPS).value() == Approx(1.5e12));
}

TEST_CASE("sums and products of whole units that would wrap are refused") {
  constexpr Bytes most = Bytes::max();
  constexpr Bytes least{std::numeric_limits<std::int64_t>::min()};
  static_assert(most + 0_B == most);
  static_assert(least + most == Bytes{-1});
  Bytes sum = most;
  CHECK_THROWS_WITH_AS(sum += 1_B, doctest::Contains("more than 64 bits hold"), tawpipe::InputError);
  CHECK(sum == most);
  CHECK_THROWS_AS(sum -= Bytes{-1}, tawpipe::InputError);
  CHECK_THROWS_AS(most + 1_B, tawpipe::InputError);
  CHECK_THROWS_AS(least - 1_B, tawpipe::InputError);
  CHECK_THROWS_AS(most * 2, tawpipe::InputError);
  CHECK_THROWS_AS(least * -1, tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::TimePoint{Duration::max()} + 1_ps, tawpipe::InputError);
  CHECK((tawpipe::Flops{1e308} + tawpipe::Flops{1e308}).value() == std::numeric_limits<double>::infinity());
}

TEST_CASE("where that is asked for, whole numbers stop at the ends of their range") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  static_assert(tawpipe::saturating_add(most, std::int64_t{1}) == most);
  static_assert(tawpipe::saturating_subtract(least, std::int64_t{1}) == least);
  static_assert(tawpipe::saturating_subtract(most, least) == most);
  CHECK(tawpipe::saturating_multiply(most, std::int64_t{-2}) == least);
  CHECK(tawpipe::saturating_multiply(least, std::int64_t{-1}) == most);
  CHECK(tawpipe::saturating_multiply(std::int64_t{1} << 40, std::int64_t{1} << 40) == most);
}
