// Draws sweeps.
#include "sweep_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tawpipe/report/chart.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

namespace {

/// Values of a kind of axis as text. @return null for names
std::string (*tell_of(AxisKind kind))(double) {
  switch (kind) {
    case AxisKind::bandwidth:
      return [](double value) { return format_bandwidth_bits(BytesPerSecond{value}, 4); };
    case AxisKind::duration:
      return [](double value) { return format_duration(seconds(value), 4); };
    case AxisKind::count:
      return [](double value) { return format_count(static_cast<std::int64_t>(value)); };
    case AxisKind::fraction:
      return [](double value) { return fmt::format("{:.4g}", value); };
    case AxisKind::name:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

std::string value_text(const SweepAxis& axis, double value) {
  return axis.kind == AxisKind::name ? axis.names[static_cast<std::size_t>(value)] : tell_of(axis.kind)(value);
}

Drawing sweep_chart(const std::vector<SweepAxis>& axes, const nlohmann::ordered_json& answer) {
  const auto longest =
      std::max_element(axes.begin(), axes.end(), [](const SweepAxis& a, const SweepAxis& b) { return a.size() < b.size(); });
  const SweepAxis& along = *longest;
  const bool names = along.kind == AxisKind::name;
  const auto place = [](const SweepAxis& axis, const nlohmann::ordered_json& point) {
    const auto& value = point.at(axis.parameter);
    if (axis.kind != AxisKind::name) return value.get<double>();
    return static_cast<double>(std::find(axis.names.begin(), axis.names.end(), value.get<std::string>()) - axis.names.begin());
  };
  bool tokens = false;
  for (const auto& point : answer.at("points")) tokens = tokens || point.at("tokens_per_device_per_second").get<double>() > 0;
  Chart chart{
      .title = concat(tokens ? "Throughput" : "Time of an iteration", " by ", along.parameter), .x = {}, .y = {}, .series = {}};
  chart.x = {.name = along.parameter,
             .tell = tell_of(along.kind),
             .unit = along.kind == AxisKind::bandwidth ? 0.125 : 1,
             .names = along.names};
  if (!names) {
    const auto [low, high] = std::minmax_element(along.numbers.begin(), along.numbers.end());
    chart.x.logarithmic = *low > 0 && *high / *low > 15;
  }
  chart.y.name = tokens ? "tokens/s a device" : "time of an iteration";
  chart.y.from_zero = true;
  if (tokens) {
    chart.y.tell = [](double value) { return format_rounded(value); };
  } else {
    chart.y.tell = [](double value) { return format_duration(seconds(value)); };
  }
  for (const auto& point : answer.at("points")) {
    if (point.contains("impossible") || point.at("out_of_memory").get<bool>()) continue;
    std::string name = point.at("schedule").get<std::string>();
    for (const SweepAxis& axis : axes) {
      if (&axis != &along && axis.size() > 1) name += concat(", ", axis.parameter, " ", value_text(axis, place(axis, point)));
    }
    auto found = std::find_if(chart.series.begin(), chart.series.end(), [&](const ChartSeries& one) { return one.name == name; });
    if (found == chart.series.end())
      found = chart.series.insert(chart.series.end(), {.name = name, .points = {}, .joined = !names});
    found->points.emplace_back(place(along, point),
                               point.at(tokens ? "tokens_per_device_per_second" : "makespan_s").get<double>());
  }
  return tawpipe::draw(chart);
}

}  // namespace tawpipe::sim
