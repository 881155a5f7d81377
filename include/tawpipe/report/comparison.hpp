// Several schedules on one problem as a table, best first.
// Not: the numbers for programs (summary_json.hpp).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The options for a reader: those given or chosen, and whether communication waits.
inline std::string notable_options(const Chosen& result) {
  std::string text;
  for (const auto& [key, value] : result.summary.options) {
    const bool blocking = key == "overlap" && value == "off";
    const bool on_demand = key == "prefetch";
    if (!result.choice.options.contains(key) && !blocking && !on_demand) continue;
    text += concat(text.empty() ? "" : " ", key, "=", value);
  }
  return text;
}

/// The schedule's name; if others have the same name, with the given or chosen options that
/// distinguish it: "tawpipe:stripe=on".
inline std::string name_among(const std::vector<Chosen>& results, std::size_t of) {
  const Chosen& one = results[of];
  std::string text = one.summary.schedule;
  for (const auto& chosen : one.choice.options) {
    const auto at = std::find_if(one.summary.options.begin(), one.summary.options.end(),
                                 [&](const auto& option) { return option.first == chosen.first; });
    if (at == one.summary.options.end()) continue;
    const bool differs = std::any_of(results.begin(), results.end(), [&](const Chosen& other) {
      const auto& options = other.summary.options;
      return other.summary.schedule == one.summary.schedule && std::find(options.begin(), options.end(), *at) == options.end();
    });
    if (differs) text += concat(":", at->first, "=", at->second);
  }
  return text;
}

}  // namespace detail

/// A number of tokens in the usual notation of the field: "23.3 B" is 23.3 billion.
inline std::string format_tokens(double tokens) {
  constexpr detail::UnitStep units[] = {{1, ""}, {1e3, "K"}, {1e6, "M"}, {1e9, "B"}, {1e12, "T"}};
  std::string text = detail::scaled(tokens, units, 3, false);
  return text.ends_with(' ') ? text.substr(0, text.size() - 1) : text;
}

/// TFLOP/s of a device, three digits.
inline std::string format_teraflops(const Summary& summary) {
  const double value = summary.flops_per_device.value() / 1e12;
  return fmt::format("{:.{}f}", value, detail::decimals_for(value, 3));
}

/// Those that fit come first, then the faster ones; equal ones keep their order.
inline std::vector<std::size_t> comparison_order(const std::vector<Chosen>& results) {
  std::vector<std::size_t> order(results.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    const Summary& a = results[i].summary;
    const Summary& b = results[j].summary;
    return a.fits() != b.fits() ? a.fits() : a.makespan < b.makespan;
  });
  return order;
}

/// A line for each result, in comparison_order(). @param recompute  shows what each recomputes
/// @pre not empty
inline std::string comparison_table(const std::vector<Chosen>& results, bool recompute, const TableStyle& style = {}) {
  const bool with_model = !results[0].summary.model.empty();
  double best = 0;
  for (const Chosen& one : results) {
    if (one.summary.fits()) best = std::max(best, 1.0 / to_seconds(std::max(one.summary.makespan, Duration{1})));
  }
  std::vector<TableColumn> columns{{"schedule"}, {"step time", Align::right}};
  if (with_model) {
    for (const char* const header : {"tokens/s/device", "TFLOP/s/device", "tokens/day"})
      columns.push_back({header, Align::right});
  }
  columns.push_back({"relative speed"});
  if (with_model) columns.push_back({"MFU", Align::right});
  columns.push_back({"bubble", Align::right});
  columns.push_back({"exposed", Align::right});
  columns.push_back({"egress of a node", Align::right});
  if (with_model) {
    columns.push_back({"memory", Align::right});
    columns.push_back({"microbatch", Align::right});
    if (recompute) columns.push_back({"recompute"});
  }
  columns.push_back({"options"});
  Table table{columns};
  for (const std::size_t i : comparison_order(results)) {
    const Summary& summary = results[i].summary;
    const double speed = 1.0 / to_seconds(std::max(summary.makespan, Duration{1}));
    std::vector<std::string> cells{detail::name_among(results, i), format_duration(summary.makespan)};
    if (with_model) {
      cells.push_back(format_tokens(summary.tokens_per_device_per_second));
      cells.push_back(format_teraflops(summary));
      cells.push_back(format_tokens(summary.tokens_per_day()));
    }
    cells.push_back(summary.fits() ? bar(best > 0 ? speed / best : 0, 14, style.glyphs) : std::string{"out of memory"});
    if (with_model) cells.push_back(format_percent(summary.mfu));
    cells.push_back(format_percent(summary.bubble.ratio));
    const Duration exposed = seconds(summary.communication.exposed_s);
    cells.push_back(summary.makespan > Duration{} ? format_percent(exposed / summary.makespan) : "0 %");
    cells.push_back(format_traffic(Bytes{summary.traffic.max_node_egress_bytes()}));
    if (with_model) {
      cells.push_back(format_memory(summary.fullest()));
      cells.push_back(std::to_string(summary.microbatch_size));
      if (recompute) cells.push_back(summary.recompute);
    }
    cells.push_back(detail::notable_options(results[i]));
    table.row(std::move(cells), summary.fits() ? Emphasis::none : Emphasis::dim);
  }
  return table.str(style);
}

}  // namespace tawpipe
