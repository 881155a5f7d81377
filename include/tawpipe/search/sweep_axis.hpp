// The axis of a sweep: a parameter's name and its values, from text.
// Not: the effect of a parameter (the command `tawpipe sweep`).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/job_fields.hpp"

namespace tawpipe::inline v0 {

/// How a parameter's values are parsed.
enum class AxisKind : std::uint8_t { count, bandwidth, duration, fraction, name };

struct AxisInfo {
  std::string_view name;
  AxisKind kind;
  std::string_view meaning;
};

/// What can be varied besides the fields of a job (search/job_fields.hpp), and `option.KEY` for the schedules' options.
inline constexpr std::array<AxisInfo, 8> sweep_parameters{{
    {"inter-node", AxisKind::bandwidth, "each network link's bandwidth in one direction"},
    {"inter-node-latency", AxisKind::duration, "each network link's latency"},
    {"intra-node", AxisKind::bandwidth, "each link's bandwidth inside nodes"},
    {"intra-node-latency", AxisKind::duration, "each link's latency inside nodes"},
    {"nodes", AxisKind::count, "nodes of the cluster"},
    {"hidden", AxisKind::count, "hidden size of a model llama-LxH"},
    {"layers", AxisKind::count, "layers of a model llama-LxH"},
    {"utilization", AxisKind::fraction, "fraction of the matrix peak"},
}};

/// A parameter with its values. Numbers are in base units: bytes/s, seconds, counts.
struct SweepAxis {
  std::string parameter;
  const JobField* field = nullptr;  ///< that it sets; null: one of sweep_parameters, or an option
  AxisKind kind = AxisKind::name;
  bool logarithmic = false;
  std::vector<double> numbers = {};     ///< empty for names
  std::vector<std::string> names = {};  ///< of AxisKind::name

  std::size_t size() const { return kind == AxisKind::name ? names.size() : numbers.size(); }
  bool is_continuous() const { return kind != AxisKind::name && kind != AxisKind::count; }
};

namespace detail {

inline double axis_number(AxisKind kind, std::string_view text, std::string_view parameter) {
  if (kind == AxisKind::bandwidth) return parse_bandwidth(text).value();
  if (kind == AxisKind::duration) return to_seconds(parse_duration(text));
  const std::string what = concat("--vary ", parameter);
  if (kind == AxisKind::fraction) return parse_fraction(text, what);
  return static_cast<double>(parse_whole<std::int64_t>(plain_tokens(std::string{text}), what, 1, 1'000'000'000'000'000));
}

inline AxisKind axis_kind(const JobField& field) {
  if (field.kind == FieldKind::fraction) return AxisKind::fraction;
  const bool counts = field.kind == FieldKind::count || field.kind == FieldKind::tokens || field.type.starts_with("N|");
  return counts ? AxisKind::count : AxisKind::name;
}

/// The axis of a parameter's name, still without values.
inline SweepAxis named_axis(std::string parameter) {
  SweepAxis axis{.parameter = std::move(parameter)};
  if (axis.parameter.starts_with("option.") && axis.parameter.size() > 7) return axis;
  std::vector<std::string> names{"option.KEY"};
  for (const AxisInfo& info : sweep_parameters) {
    axis.kind = info.kind;
    if (info.name == axis.parameter) return axis;
    names.emplace_back(info.name);
  }
  for (const JobField& field : job_fields()) {
    if (!field.is(of_run)) names.emplace_back(field.name);
  }
  axis.field = find_job_field(axis.parameter);
  if (axis.field == nullptr || axis.field->is(of_run))
    throw InputError(concat("--vary: ", unknown_name("parameter", one_line(axis.parameter), names)));
  axis.parameter = axis.field->name;
  axis.kind = axis_kind(*axis.field);
  return axis;
}

}  // namespace detail

/// "inter-node=1Gbps:100Gbps:log:16" (from, to, log or linear, count), "hidden=1024,2048" or
/// "option.groups=nodes,flat"; names that have commas stand between semicolons. Counts of a range are rounded, and duplicates
/// dropped.
/// @throws InputError  for an unknown parameter, or invalid values.
inline SweepAxis parse_sweep_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    throw InputError(concat("--vary ", quote(text),
                            " is not of the form PARAMETER=VALUES, such as inter-node=1Gbps:100Gbps:log:16 or hidden=1024,2048"));
  }
  SweepAxis axis = detail::named_axis(std::string{text.substr(0, equals)});
  const std::string_view values = text.substr(equals + 1);
  if (axis.kind == AxisKind::name) {
    for (const std::string_view name : split(values, values.find(';') == std::string_view::npos ? ',' : ';'))
      axis.names.emplace_back(name);
    return axis;
  }
  const std::vector<std::string_view> range = split(values, ':');
  if (range.size() == 1) {
    for (const std::string_view value : split(values, ',')) {
      axis.numbers.push_back(detail::axis_number(axis.kind, value, axis.parameter));
    }
    return axis;
  }
  constexpr double most = 100'000;
  const bool shaped = range.size() == 4 && (range[2] == "log" || range[2] == "linear");
  const double count = shaped ? detail::axis_number(AxisKind::count, range[3], axis.parameter) : 0;
  if (!shaped || count < 2 || count > most) {
    throw InputError(concat("--vary ", axis.parameter, ": a range is FROM:TO:log:N or FROM:TO:linear:N with N from 2 to 100000"));
  }
  axis.logarithmic = range[2] == "log";
  const double from = detail::axis_number(axis.kind, range[0], axis.parameter);
  const double to = detail::axis_number(axis.kind, range[1], axis.parameter);
  if (axis.logarithmic && !(from > 0 && to > 0)) {
    throw InputError(concat("--vary ", axis.parameter, ": a logarithmic range must begin and end above 0; choose linear"));
  }
  for (int i = 0; i < static_cast<int>(count); ++i) {
    const double part = i / (count - 1);
    double value = axis.logarithmic ? from * std::pow(to / from, part) : from + (to - from) * part;
    if (i == 0) value = from;
    if (i + 1 == static_cast<int>(count)) value = to;
    if (axis.kind == AxisKind::count) value = std::round(value);
    if (axis.kind != AxisKind::count || axis.numbers.empty() || axis.numbers.back() != value) axis.numbers.push_back(value);
  }
  return axis;
}

/// The point between a and b where f changes its sign, by bisection (in the logarithm if requested)
/// until b / a is within 0.1 %, or the whole numbers between them are exhausted. Returns the end on
/// b's side.
/// @pre f(a) and f(b) differ in sign
/// Complexity: O(log) calls of f.
template <class Difference>
double bisect_crossover(double a, double b, bool logarithmic, bool whole, Difference&& f) {
  const bool sign = f(a) > 0;
  for (int i = 0; i < 60; ++i) {
    const double low = std::min(a, b);
    const double high = std::max(a, b);
    if (whole ? high - low <= 1 : high <= low * 1.001) break;
    double middle = logarithmic ? std::sqrt(a * b) : (a + b) / 2;
    if (whole) middle = std::clamp(std::floor(middle), low + 1, high - 1);
    if (middle <= low || middle >= high) break;
    ((f(middle) > 0) == sign ? a : b) = middle;
  }
  return b;
}

}  // namespace tawpipe
