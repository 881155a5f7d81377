// Text to numbers: the one place that converts, so that all users accept the same input and report
// errors alike.
// Not: numbers with units (core/parse_units.hpp).
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// Takes the number that `text` begins with, as JSON writes it: no sign '+', no space before it, no
/// infinity.
/// @return nothing, and `text` as it was, if there is none or it does not fit.
template <class Number>
std::optional<Number> take_number(std::string_view& text) {
  Number value{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{}) return std::nullopt;
  if constexpr (std::floating_point<Number>) {
    constexpr auto most = std::numeric_limits<Number>::max();
    if (!(value >= -most && value <= most)) return std::nullopt;  // infinite, or not a number
  }
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

/// The number that fills `text`; nothing if it is not a number or does not fit.
template <class Number>
std::optional<Number> to_number(std::string_view text) {
  const auto value = take_number<Number>(text);
  return text.empty() ? value : std::nullopt;
}

/// A whole number from `least` to `most`.
/// @param what  names it in messages, such as "--microbatch"
/// @throws InputError  that says what was given and what would be right.
template <std::integral Number>
Number parse_whole(std::string_view text, std::string_view what, Number least, Number most = std::numeric_limits<Number>::max()) {
  const auto value = to_number<Number>(text);
  if (value && *value >= least && *value <= most) return *value;
  throw InputError(one_line(concat(what, " must be a whole number from ", least, " to ", most, ", not ", quote(text))));
}

/// A number above 0. @throws InputError  as parse_whole().
inline double parse_positive(std::string_view text, std::string_view what) {
  const auto value = to_number<double>(text);
  if (value && *value > 0 && *value < std::numeric_limits<double>::infinity()) return *value;
  throw InputError(one_line(concat(what, " must be a number above 0, not ", quote(text))));
}

/// A fraction above 0 and at most 1. @throws InputError  as parse_whole().
inline double parse_fraction(std::string_view text, std::string_view what) {
  const auto value = to_number<double>(text);
  if (value && *value > 0 && *value <= 1) return *value;
  throw InputError(one_line(concat(what, " must be a fraction above 0 and at most 1, such as 0.45, not ", quote(text))));
}

}  // namespace tawpipe
