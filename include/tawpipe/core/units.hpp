// Quantities with units: bytes, time, floating-point operations and their rates.
// Not: parsing and printing them (core/parse_units.hpp).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tawpipe/core/error.hpp"

namespace tawpipe::inline v0 {

namespace detail {

template <class Rep>
[[noreturn]] constexpr Rep beyond_64_bits(Rep) {
  throw InputError(
      "sizes or times add up to more than 64 bits hold, 9.2 exabytes or 106 days; give smaller sizes, shorter times or fewer "
      "tasks");
}

}  // namespace detail

/// Sum, difference and product that stop at the ends of the type's range, where whole numbers would
/// wrap: a value that a file or flag makes too large stays too large, and is refused or shown as
/// such.
template <class Rep>
constexpr Rep saturating_add(Rep a, Rep b) {
  if constexpr (!std::is_integral_v<Rep>)
    return a + b;
  else {
    Rep sum{};
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < 0 ? std::numeric_limits<Rep>::min() : std::numeric_limits<Rep>::max();
  }
}
template <class Rep>
constexpr Rep saturating_subtract(Rep a, Rep b) {
  if constexpr (!std::is_integral_v<Rep>)
    return a - b;
  else {
    Rep difference{};
    if (!__builtin_sub_overflow(a, b, &difference)) return difference;
    return b < 0 ? std::numeric_limits<Rep>::max() : std::numeric_limits<Rep>::min();
  }
}
template <class Rep>
constexpr Rep saturating_multiply(Rep a, Rep b) {
  if constexpr (!std::is_integral_v<Rep>)
    return a * b;
  else {
    Rep product{};
    if (!__builtin_mul_overflow(a, b, &product)) return product;
    return (a < 0) != (b < 0) ? std::numeric_limits<Rep>::min() : std::numeric_limits<Rep>::max();
  }
}

/// Sum, difference and product of sizes or times. @throws InputError  where a whole number would wrap
template <class Rep>
constexpr Rep checked_add(Rep a, Rep b) {
  if constexpr (!std::is_integral_v<Rep>)
    return a + b;
  else {
    Rep sum{};
    return __builtin_add_overflow(a, b, &sum) ? detail::beyond_64_bits(sum) : sum;
  }
}
template <class Rep>
constexpr Rep checked_subtract(Rep a, Rep b) {
  if constexpr (!std::is_integral_v<Rep>)
    return a - b;
  else {
    Rep difference{};
    return __builtin_sub_overflow(a, b, &difference) ? detail::beyond_64_bits(difference) : difference;
  }
}
template <class Rep>
constexpr Rep checked_multiply(Rep a, Rep b) {
  if constexpr (!std::is_integral_v<Rep>)
    return a * b;
  else {
    Rep product{};
    return __builtin_mul_overflow(a, b, &product) ? detail::beyond_64_bits(product) : product;
  }
}

/// A number with a unit. Sums, scalings and ratios compile; mixing units does not, unless physics
/// allows it (below). Whole numbers that would wrap throw InputError: a total that is shown is right.
template <class Unit, class Rep>
class Quantity {
 public:
  using rep = Rep;

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep value) : value_{value} {}

  constexpr Rep value() const { return value_; }
  static constexpr Quantity max() { return Quantity{std::numeric_limits<Rep>::max()}; }

  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    value_ = checked_add(value_, other.value_);
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ = checked_subtract(value_, other.value_);
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity{checked_add(a.value_, b.value_)}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity{checked_subtract(a.value_, b.value_)}; }
  friend constexpr Quantity operator*(Quantity a, Rep factor) { return Quantity{checked_multiply(a.value_, factor)}; }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return a * factor; }
  friend constexpr Quantity operator/(Quantity a, Rep divisor) { return Quantity{static_cast<Rep>(a.value_ / divisor)}; }
  /// The plain ratio of two quantities of the same unit.
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value_) / static_cast<double>(b.value_);
  }

 private:
  Rep value_{};
};

/// Bytes, a 64-bit integer.
using Bytes = Quantity<struct BytesUnit, std::int64_t>;
/// A span of time in integer picoseconds: range ±106 days, equal times compare equal on every
/// machine.
using Duration = Quantity<struct PicosecondsUnit, std::int64_t>;
/// Floating-point operations (a multiply-add counts as two).
using Flops = Quantity<struct FlopsUnit, double>;
/// Floating-point operations a second.
using FlopsPerSecond = Quantity<struct FlopsPerSecondUnit, double>;
/// Bytes a second, in one direction.
using BytesPerSecond = Quantity<struct BytesPerSecondUnit, double>;

/// A point of simulated or measured time: picoseconds since the start of the iteration.
class TimePoint {
 public:
  constexpr TimePoint() = default;
  constexpr explicit TimePoint(Duration since_start) : since_start_{since_start} {}

  constexpr Duration since_start() const { return since_start_; }
  constexpr std::int64_t picoseconds() const { return since_start_.value(); }
  constexpr auto operator<=>(const TimePoint&) const = default;

  friend constexpr TimePoint operator+(TimePoint t, Duration d) { return TimePoint{t.since_start_ + d}; }
  friend constexpr Duration operator-(TimePoint a, TimePoint b) { return a.since_start_ - b.since_start_; }

 private:
  Duration since_start_{};
};

/// Seconds as a Duration, rounded to the nearest picosecond.
/// @throws InputError  if negative, not a number, or beyond the 106 days that fit.
constexpr Duration seconds(double value) {
  const double picoseconds = value * 1e12;
  if (!(picoseconds >= 0.0) || picoseconds >= 9.2e18) {
    throw InputError(
        "a duration must lie between 0 and 106 days; a rate of zero or a far too large task gives one that does not");
  }
  return Duration{static_cast<std::int64_t>(picoseconds + 0.5)};
}

/// A duration times a factor, rounded to the nearest picosecond.
/// @throws InputError  beyond the 106 days that fit
constexpr Duration scaled(Duration time, double factor) {
  const double picoseconds = static_cast<double>(time.value()) * factor;
  if (!(picoseconds < 9.2e18)) throw InputError("a time grows beyond 106 days by a factor; give a smaller one");
  return Duration{static_cast<std::int64_t>(picoseconds + 0.5)};
}

/// A Duration in seconds.
constexpr double to_seconds(Duration duration) { return static_cast<double>(duration.value()) * 1e-12; }
/// A TimePoint in seconds since the start.
constexpr double to_seconds(TimePoint time) { return to_seconds(time.since_start()); }

/// Time to move `bytes` at `rate`. @throws InputError as seconds().
constexpr Duration operator/(Bytes bytes, BytesPerSecond rate) {
  return seconds(static_cast<double>(bytes.value()) / rate.value());
}
/// Time to compute `flops` at `rate`. @throws InputError as seconds().
constexpr Duration operator/(Flops flops, FlopsPerSecond rate) { return seconds(flops.value() / rate.value()); }

/// `80_GiB`, `25_GBps`, `10_Gbps`, `312_TFLOPS`, `2_us`: decimal and binary prefixes, bits and
/// bytes kept apart.
inline namespace literals {

constexpr Bytes operator""_B(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v)}; }
constexpr Bytes operator""_KiB(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v) << 10}; }
constexpr Bytes operator""_MiB(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v) << 20}; }
constexpr Bytes operator""_GiB(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v) << 30}; }
constexpr Bytes operator""_KB(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v) * 1'000}; }
constexpr Bytes operator""_MB(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v) * 1'000'000}; }
constexpr Bytes operator""_GB(unsigned long long v) { return Bytes{static_cast<std::int64_t>(v) * 1'000'000'000}; }

constexpr Duration operator""_ps(unsigned long long v) { return Duration{static_cast<std::int64_t>(v)}; }
constexpr Duration operator""_ns(unsigned long long v) { return Duration{static_cast<std::int64_t>(v) * 1'000}; }
constexpr Duration operator""_us(unsigned long long v) { return Duration{static_cast<std::int64_t>(v) * 1'000'000}; }
constexpr Duration operator""_us(long double v) { return seconds(static_cast<double>(v) * 1e-6); }
constexpr Duration operator""_ms(unsigned long long v) { return Duration{static_cast<std::int64_t>(v) * 1'000'000'000}; }
constexpr Duration operator""_s(unsigned long long v) { return Duration{static_cast<std::int64_t>(v) * 1'000'000'000'000}; }

constexpr BytesPerSecond operator""_GBps(unsigned long long v) { return BytesPerSecond{static_cast<double>(v) * 1e9}; }
constexpr BytesPerSecond operator""_GBps(long double v) { return BytesPerSecond{static_cast<double>(v) * 1e9}; }
constexpr BytesPerSecond operator""_Gbps(unsigned long long v) { return BytesPerSecond{static_cast<double>(v) * 1.25e8}; }
constexpr BytesPerSecond operator""_Gbps(long double v) { return BytesPerSecond{static_cast<double>(v) * 1.25e8}; }
constexpr FlopsPerSecond operator""_TFLOPS(unsigned long long v) { return FlopsPerSecond{static_cast<double>(v) * 1e12}; }
constexpr FlopsPerSecond operator""_TFLOPS(long double v) { return FlopsPerSecond{static_cast<double>(v) * 1e12}; }

}  // namespace literals

}  // namespace tawpipe
