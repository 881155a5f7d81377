// `tawpipe compare`: several schedules on one problem, best first.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "../parallel.hpp"
#include "../request.hpp"
#include "entries.hpp"
#include "output.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::sim {

namespace {

/// Runs the entries on all cores. Results keep the entries' order.
std::vector<Summary> run_all(const Problem& problem, const std::vector<ScheduleChoice>& all) {
  std::vector<Summary> results(all.size());
  const Predictor predictor{problem, shipped()};
  in_parallel(all.size(), "simulating", [&](std::size_t i) { results[i] = predictor.best(all[i]).summary; });
  return results;
}

bool fits(const Summary& summary) { return summary.out_of_memory.empty(); }

Bytes fullest(const Summary& summary) {
  Bytes most;
  for (const auto& peak : summary.peak_memory) most = std::max(most, peak.total);
  return most;
}

/// The options as a reader needs them: those with another value in another line, or given.
std::string notable_options(const Summary& summary, const ScheduleChoice& entry) {
  std::string text;
  for (const auto& [key, value] : summary.options) {
    const bool blocking = key == "overlap" && value == "off";
    const bool on_demand = key == "prefetch";
    if (entry.options.contains(key) || blocking || on_demand) text += concat(text.empty() ? "" : " ", key, "=", value);
  }
  return text;
}

std::string table_text(const std::vector<Summary>& results, const std::vector<ScheduleChoice>& all,
                       const std::vector<std::size_t>& order) {
  const bool with_model = !results[0].model.empty();
  double best = 0;
  for (const auto& summary : results) {
    if (fits(summary)) best = std::max(best, 1.0 / to_seconds(std::max(summary.makespan, Duration{1})));
  }
  std::vector<TableColumn> columns{{"schedule"}};
  if (with_model) {
    columns.push_back({"tokens/s/device", Align::right});
  } else {
    columns.push_back({"makespan", Align::right});
  }
  columns.push_back({"relative speed"});
  if (with_model) columns.push_back({"MFU", Align::right});
  columns.push_back({"bubble", Align::right});
  columns.push_back({"exposed", Align::right});
  columns.push_back({"out of a node", Align::right});
  if (with_model) {
    columns.push_back({"memory", Align::right});
    columns.push_back({"microbatch", Align::right});
  }
  columns.push_back({"options"});
  Table table{columns};
  const TableStyle style = terminal_style();
  for (const std::size_t i : order) {
    const Summary& summary = results[i];
    const double speed = 1.0 / to_seconds(std::max(summary.makespan, Duration{1}));
    std::vector<std::string> cells{summary.schedule};
    cells.push_back(with_model ? format_count(static_cast<std::int64_t>(summary.tokens_per_device_per_second + 0.5))
                               : format_duration(summary.makespan));
    cells.push_back(fits(summary) ? bar(best > 0 ? speed / best : 0, 20, style.glyphs) : std::string{"out of memory"});
    if (with_model) cells.push_back(format_percent(summary.mfu));
    cells.push_back(format_percent(summary.bubble.ratio));
    const Duration exposed = seconds(summary.communication.exposed_s);
    cells.push_back(summary.makespan > Duration{} ? format_percent(exposed / summary.makespan) : "0 %");
    cells.push_back(format_traffic(Bytes{summary.traffic.max_node_egress_bytes()}));
    if (with_model) {
      cells.push_back(format_memory(fullest(summary)));
      cells.push_back(std::to_string(summary.microbatch_size));
    }
    cells.push_back(notable_options(summary, all[i]));
    table.row(std::move(cells), fits(summary) ? Emphasis::none : Emphasis::dim);
  }
  return table.str(style);
}

}  // namespace

int run_compare(const Request& request, const std::vector<std::string>& schedules, bool overlapped) {
  const std::vector<ScheduleChoice> all = parse_entries(schedules, parse_options(request.options), overlapped);
  Problem problem = resolve(request, true);
  problem.fold = Fold::automatic;
  std::optional<OutputFile> file;  // opened first, so that a path that cannot be written is found before the work
  if (!request.json.empty()) file.emplace(request.json);
  const std::vector<Summary> results = run_all(problem, all);
  std::vector<std::size_t> order(results.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (fits(results[a]) != fits(results[b])) return fits(results[a]);
    return results[a].makespan < results[b].makespan;
  });
  const bool any_fits = fits(results[order[0]]);
  if (file) {
    nlohmann::ordered_json json;
    json["cluster"] = problem.cluster.name();
    json["model"] = problem.model ? nlohmann::ordered_json(problem.model->name) : nlohmann::ordered_json{};
    json["cost"] = describe(problem.cost);
    json["results"] = nlohmann::ordered_json::array();
    for (const std::size_t i : order) json["results"].push_back(to_json(results[i]));
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (request.json != "-") {
    write_output("-", describe(problem) + "\n" + table_text(results, all, order));
    if (!overlapped) {
      write_output("-",
                   "\nRivals run as their usual baselines do; --overlapped lets their communication overlap computation too.\n");
    }
  }
  if (!any_fits) {
    const bool full = problem.recompute == Recompute::full;
    std::fputs(fmt::format("tawpipe: no schedule fits {}the devices' memory; try more devices{}{}\n",
                           problem.usable_memory < 1 ? format_percent(problem.usable_memory, 0) + " of " : std::string{},
                           full ? "" : ", --recompute full", problem.usable_memory < 1 ? ", a larger --usable-memory" : "")
                   .c_str(),
               stderr);
  }
  return any_fits ? ok : findings;
}

}  // namespace tawpipe::sim
