// Draws predictions against measurements.
#include "papers/reproduce_chart.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "tawpipe/core/text.hpp"
#include "tawpipe/report/chart.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

Drawing reproduce_chart(const nlohmann::ordered_json& answer) {
  Chart chart{.title = "Predicted against measured", .x = {}, .y = {}, .series = {}, .diagonal = true};
  const auto add = [&](const std::string& series, double measured, double predicted) {
    if (measured <= 0 || predicted <= 0) return;
    auto found =
        std::find_if(chart.series.begin(), chart.series.end(), [&](const ChartSeries& one) { return one.name == series; });
    if (found == chart.series.end())
      found = chart.series.insert(chart.series.end(), {.name = series, .points = {}, .joined = false});
    found->points.emplace_back(measured, predicted);
  };
  const bool cells = answer.contains("cells");  // throughputs of the TawPipe paper; else step times
  if (cells) {
    for (const auto& cell : answer.at("cells")) {
      if (!cell.contains("measured_tokens") || cell.at("predicted_out_of_memory").get<bool>()) continue;
      add(cell.at("schedule").get<std::string>(), cell.at("measured_tokens").get<double>(),
          cell.at("predicted_tokens").get<double>());
    }
  } else {
    for (const auto& source : answer.at("sources")) {
      for (const auto& row : source.at("predictions")) {
        if (!row.contains("why_not"))
          add(source.at("source").get<std::string>(), row.at("measured_s").get<double>(), row.at("predicted_s").get<double>());
      }
    }
  }
  std::string (*tell)(double) = [](double value) { return format_duration(seconds(value), 2); };
  if (cells) tell = [](double value) { return format_rounded(value); };
  const std::string what = cells ? "tokens/s a device" : "time of a step";
  chart.x = {.name = concat("measured ", what), .tell = tell, .logarithmic = true, .names = {}};
  chart.y = {.name = concat("predicted ", what), .tell = tell, .logarithmic = true, .names = {}};
  return tawpipe::draw(chart);
}

}  // namespace tawpipe::sim
