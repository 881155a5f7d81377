// Text to quantities: "18522us", "80GiB", "10Gbps", "312TFLOPS". The unit is always required, except
// of counts, "15T", and prices, "2.5USD".
// Not: literals in code (core/units.hpp) nor printing (report/formatters.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

namespace detail {

struct UnitName {
  std::string_view name;
  double factor;
};

/// The value of `text` in the base unit; `what` and `example` word the error.
template <std::size_t Count>
double parse_quantity(std::string_view text, const UnitName (&units)[Count], std::string_view what, std::string_view example) {
  std::string_view unit = text;
  const auto number = take_number<double>(unit);
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  for (const auto& known : units) {
    const double value = number.value_or(-1) * known.factor;
    if (unit == known.name && value >= 0 && std::isfinite(value)) return value;
  }
  std::string known_units;
  for (const auto& known : units) known_units += concat(known_units.empty() ? "" : ", ", known.name);
  throw InputError(concat(quote(text), " is not a ", what, ": write a number that is not negative and a unit (", known_units,
                          "), such as ", example));
}

}  // namespace detail

/// A duration such as "601us". @throws InputError naming the text and the units that exist.
inline Duration parse_duration(std::string_view text) {
  static constexpr detail::UnitName units[] = {{"ps", 1e-12}, {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return seconds(detail::parse_quantity(text, units, "duration", "601us"));
}

/// A size such as "80GiB" or "25MB". @throws InputError naming the text and the units that exist.
inline Bytes parse_bytes(std::string_view text) {
  static constexpr detail::UnitName units[] = {{"B", 1},           {"KB", 1e3},           {"MB", 1e6},
                                               {"GB", 1e9},        {"TB", 1e12},          {"KiB", 1024.0},
                                               {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
  const double value = detail::parse_quantity(text, units, "size", "80GiB");
  if (value > 9e18) throw InputError(concat(quote(text), " is not a size: it must be below 9e18 bytes"));
  return Bytes{static_cast<std::int64_t>(value + 0.5)};
}

/// A bandwidth in one direction such as "25GBps" (bytes) or "10Gbps" (bits). @throws InputError as
/// above; zero is refused.
inline BytesPerSecond parse_bandwidth(std::string_view text) {
  static constexpr detail::UnitName units[] = {{"MBps", 1e6},     {"GBps", 1e9},    {"TBps", 1e12},   {"MB/s", 1e6},
                                               {"GB/s", 1e9},     {"TB/s", 1e12},   {"Mbps", 1.25e5}, {"Gbps", 1.25e8},
                                               {"Tbps", 1.25e11}, {"Mb/s", 1.25e5}, {"Gb/s", 1.25e8}};
  const double value = detail::parse_quantity(text, units, "bandwidth", "10Gbps");
  if (value <= 0) throw InputError(concat(quote(text), " is not a bandwidth: it must be above zero, such as 10Gbps"));
  return BytesPerSecond{value};
}

/// A compute rate such as "312TFLOPS". @throws InputError as above; zero is refused.
inline FlopsPerSecond parse_flops_rate(std::string_view text) {
  static constexpr detail::UnitName units[] = {{"GFLOPS", 1e9}, {"TFLOPS", 1e12}, {"PFLOPS", 1e15}};
  const double value = detail::parse_quantity(text, units, "compute rate", "312TFLOPS");
  if (value <= 0) throw InputError(concat(quote(text), " is not a compute rate: it must be above zero, such as 312TFLOPS"));
  return FlopsPerSecond{value};
}

/// A span of time in seconds, such as "50000h", which may be longer than a Duration. @throws
/// InputError as above; beyond 1e15 s too.
inline double parse_time_span(std::string_view text) {
  static constexpr detail::UnitName units[] = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
  const double value = detail::parse_quantity(text, units, "span of time", "10min");
  if (value > 1e15) throw InputError(concat(quote(text), " is not a span of time: it must be at most 1e15 s"));
  return value;
}

/// A power in watts, such as "700W". @throws InputError as above; zero and more than 1 GW are refused.
inline double parse_power(std::string_view text) {
  static constexpr detail::UnitName units[] = {{"W", 1}, {"kW", 1e3}, {"MW", 1e6}};
  const double value = detail::parse_quantity(text, units, "power", "700W");
  if (!(value > 0 && value <= 1e9)) throw InputError(concat(quote(text), " is not a power: it must be above zero, such as 700W"));
  return value;
}

/// A count such as "15T": a whole number above 0, by itself or in thousands (K), millions (M), billions
/// (B) or trillions (T). @throws InputError naming the text
inline double parse_count(std::string_view text) {
  std::string_view unit = text;
  const auto number = take_number<double>(unit);
  const std::size_t at = unit.empty() ? 0 : std::string_view{"KMBT"}.find(unit) + 1;
  const double value = number.value_or(0) * (at == 1 ? 1e3 : at == 2 ? 1e6 : at == 3 ? 1e9 : at == 4 ? 1e12 : 1);
  if (unit.size() <= 1 && (unit.empty() || at > 0) && value >= 1 && value <= 1e18 && value == std::floor(value)) return value;
  throw InputError(
      concat(quote(text), " is not a count: write a whole number from 1 to 1e18, by itself or with K, M, B or T, such as 15T"));
}

/// An amount of money; the currency is a name, "" if none was given.
struct Price {
  double amount = 0;
  std::string currency = {};

  bool operator==(const Price&) const = default;
};

/// A price such as "2.5" or "2.5USD": with a currency's three letters (ISO 4217). @throws InputError
/// naming the text
inline Price parse_price(std::string_view text) {
  std::string_view currency = text;
  const auto amount = take_number<double>(currency);
  currency.remove_prefix(std::min(currency.find_first_not_of(' '), currency.size()));
  const bool letters = currency.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string_view::npos;
  const bool known = letters && (currency.size() == 3 || (currency.empty() && !text.ends_with(' ')));
  if (amount && *amount > 0 && *amount <= 1e9 && known) return {*amount, std::string{currency}};
  throw InputError(concat(quote(text),
                          " is not a price: write a number above 0 and at most 1e9, by itself or with the three capital "
                          "letters of a currency, such as 2.5USD"));
}

}  // namespace tawpipe
