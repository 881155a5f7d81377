// `tawpipe sweep`: predictions over ranges of parameters, and where one schedule overtakes another.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "../parallel.hpp"
#include "../picture_file.hpp"
#include "../report_file.hpp"
#include "../terminal_text.hpp"
#include "entries.hpp"
#include "instruments.hpp"
#include "sweep_chart.hpp"
#include "sweep_problem.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/search/sweep_axis.hpp"

namespace tawpipe::sim {

namespace {

using Point = SweepPoint;

/// The values kept of one prediction.
struct SweepRow {
  double tokens = 0;
  double makespan_s = 0;
  double mfu = 0;
  double bubble = 0;
  double exposed_s = 0;
  double egress = 0;
  double memory = 0;
  std::int64_t microbatch = 0;
  bool fits = true;
  std::string refused;  ///< why the schedule cannot be built here
};

/// The value in base units, for files.
std::string raw_text(const SweepAxis& axis, double value) {
  return axis.kind == AxisKind::name ? axis.names[static_cast<std::size_t>(value)] : fmt::format("{:.9g}", value);
}

class Sweep {
 public:
  Sweep(const SweepRequest& request, std::vector<SweepAxis> axes, std::vector<ScheduleChoice> entries)
      : request_{request}, axes_{std::move(axes)}, entries_{std::move(entries)} {
    std::size_t count = 1;
    for (const SweepAxis& axis : axes_) {
      constexpr std::size_t most = 1'000'000;
      count *= axis.size();
      if (count > most) throw InputError("--vary asks for more than 1,000,000 points; choose fewer values");
    }
    for (std::size_t i = 0; i < count; ++i) {
      Point point(axes_.size());
      std::size_t rest = i;
      for (std::size_t a = axes_.size(); a-- > 0;) {
        const std::size_t place = rest % axes_[a].size();
        point[a] = axes_[a].kind == AxisKind::name ? static_cast<double>(place) : axes_[a].numbers[place];
        rest /= axes_[a].size();
      }
      points_.push_back(std::move(point));
    }
    for (const SweepAxis& axis : axes_) {
      if (axis.parameter.starts_with("option.")) require_option(axis.parameter.substr(7));
    }
    usual_ = possible_point();  // finds errors before the work
  }

  void run() {
    rows_.resize(points_.size() * entries_.size());
    in_parallel(
        rows_.size(), "sweeping",
        [&](std::size_t i) { rows_[i] = row_at(points_[i / entries_.size()], entries_[i % entries_.size()]); }, request_.threads);
    const bool none = std::all_of(rows_.begin(), rows_.end(), [](const SweepRow& row) { return !row.refused.empty(); });
    if (none) throw InputError(concat("no point of the sweep is possible; the first: ", rows_.front().refused));
    find_crossovers();
  }

  std::string table_text() const {
    std::vector<TableColumn> columns;
    for (const SweepAxis& axis : axes_)
      columns.push_back({axis.parameter, axis.kind == AxisKind::name ? Align::left : Align::right});
    const bool with_model = request_.base.has("model") || names_models();
    columns.insert(columns.end(), {{"schedule"},
                                   {with_model ? "tokens/s/device" : "makespan", Align::right},
                                   {"bubble", Align::right},
                                   {"exposed", Align::right},
                                   {"memory", Align::right},
                                   {"microbatch", Align::right}});
    Table table{columns};
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const SweepRow& row = rows_[i];
      const Point& point = points_[i / entries_.size()];
      std::vector<std::string> cells;
      for (std::size_t a = 0; a < axes_.size(); ++a) cells.push_back(value_text(axes_[a], point[a]));
      cells.push_back(entry_label(entries_[i % entries_.size()]));
      if (!row.refused.empty()) {
        cells.push_back("impossible");
      } else {
        cells.push_back(!row.fits    ? std::string{"out of memory"}
                        : with_model ? format_rounded(row.tokens)
                                     : format_duration(seconds(row.makespan_s)));
        cells.push_back(format_percent(row.bubble));
        cells.push_back(format_percent(row.makespan_s > 0 ? row.exposed_s / row.makespan_s : 0));
        cells.push_back(format_memory(row.memory));
        cells.push_back(std::to_string(row.microbatch));
      }
      table.row(std::move(cells), row.fits && row.refused.empty() ? Emphasis::none : Emphasis::dim);
      if ((i + 1) % entries_.size() == 0 && i + 1 < rows_.size() && entries_.size() > 1) table.rule();
    }
    return table.str(terminal_style());
  }

  /// Which schedule is the fastest, as the first sentence of the answer.
  std::string verdict_text() const {
    const bool with_model = rows_.front().tokens > 0 || problem_at(points_[usual_]).model.has_value();
    const auto speed = [&](const SweepRow& row) {
      return with_model ? concat(format_rounded(row.tokens), " tokens/s a device")
                        : concat(format_duration(seconds(row.makespan_s)), " a step");
    };
    std::vector<std::vector<std::size_t>> won(entries_.size());  // the points where each is the fastest
    for (std::size_t p = 0; p < points_.size(); ++p) {
      std::optional<std::size_t> best;
      for (std::size_t e = 0; e < entries_.size(); ++e) {
        const SweepRow& row = rows_[p * entries_.size() + e];
        const bool runs = row.fits && row.refused.empty();
        if (runs && (!best || row.makespan_s < rows_[p * entries_.size() + *best].makespan_s)) best = e;
      }
      if (best) won[*best].push_back(p);
    }
    std::string text;
    for (std::size_t e = 0; e < entries_.size(); ++e) {
      if (won[e].empty()) continue;
      const auto row_of = [&](std::size_t point) -> const SweepRow& { return rows_[point * entries_.size() + e]; };
      const auto [least, most] = std::minmax_element(won[e].begin(), won[e].end(), [&](std::size_t a, std::size_t b) {
        return with_model ? row_of(a).tokens < row_of(b).tokens : row_of(a).makespan_s > row_of(b).makespan_s;
      });
      text += concat(text.empty() ? entries_.size() > 1 ? "Fastest: " : "Fits: " : "; ", entry_label(entries_[e]), " at ",
                     won[e].size(), " of ", points_.size(), points_.size() == 1 ? " point, " : " points, ", speed(row_of(*least)),
                     won[e].size() > 1 ? concat(" to ", speed(row_of(*most))) : "");
    }
    return text.empty() ? "Nothing fits at any point.\n" : text + ".\n";
  }

  std::string crossovers_text() const {
    std::string text;
    for (const std::string& line : crossovers_) text += line + "\n";
    return text;
  }

  std::string csv() const {
    std::string text;
    for (const SweepAxis& axis : axes_) text += axis.parameter + ",";
    text +=
        "schedule,tokens_per_device_per_second,makespan_s,mfu,bubble_ratio,exposed_s,max_node_egress_bytes,peak_memory_bytes,"
        "microbatch,out_of_memory,possible\n";
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const SweepRow& row = rows_[i];
      for (std::size_t a = 0; a < axes_.size(); ++a) text += raw_text(axes_[a], points_[i / entries_.size()][a]) + ",";
      text += fmt::format("{},{:.9g},{:.12g},{:.9g},{:.9g},{:.9g},{:.0f},{:.0f},{},{},{}\n",
                          entry_label(entries_[i % entries_.size()]), row.tokens, row.makespan_s, row.mfu, row.bubble,
                          row.exposed_s, row.egress, row.memory, row.microbatch, row.fits ? 0 : 1, row.refused.empty() ? 1 : 0);
    }
    return text;
  }

  const std::vector<SweepAxis>& axes() const { return axes_; }
  /// The problem of the first point.
  std::string problem_text() const { return describe(problem_at(points_[usual_])); }

  nlohmann::ordered_json json() const {
    nlohmann::ordered_json json;
    json["points"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const SweepRow& row = rows_[i];
      nlohmann::ordered_json point;
      for (std::size_t a = 0; a < axes_.size(); ++a) {
        const double value = points_[i / entries_.size()][a];
        if (axes_[a].kind == AxisKind::name) {
          point[axes_[a].parameter] = axes_[a].names[static_cast<std::size_t>(value)];
        } else {
          point[axes_[a].parameter] = value;
        }
      }
      point["schedule"] = entry_label(entries_[i % entries_.size()]);
      point["tokens_per_device_per_second"] = row.tokens;
      point["makespan_s"] = row.makespan_s;
      point["mfu"] = row.mfu;
      point["bubble_ratio"] = row.bubble;
      point["exposed_s"] = row.exposed_s;
      point["max_node_egress_bytes"] = row.egress;
      point["peak_memory_bytes"] = row.memory;
      point["microbatch"] = row.microbatch;
      point["out_of_memory"] = !row.fits;
      if (!row.refused.empty()) point["impossible"] = row.refused;
      json["points"].push_back(std::move(point));
    }
    json["crossovers"] = crossovers_;
    json["usable_memory"] = problem_at(points_[usual_]).usable_memory;  // the same at all points
    add_notes(json, problem_at(points_[usual_]));
    return json;
  }

 private:
  /// @throws InputError  unless one of the schedules has the option.
  void require_option(const std::string& key) const {
    std::vector<std::string> known;
    for (const ScheduleChoice& entry : entries_) {
      for (const OptionInfo& info : shipped().info(entry.schedule).options) known.emplace_back(info.name);
    }
    if (std::find(known.begin(), known.end(), key) != known.end()) return;
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    throw InputError(concat("--vary: ", unknown_name("option of these schedules", one_line(key), known)));
  }
  /// The first possible point, among the first ones and the last. @throws InputError  of the first
  /// point, if there is none
  std::size_t possible_point() const {
    std::optional<std::string> why;
    for (std::size_t i = 0; i < std::min<std::size_t>(points_.size(), 65); ++i) {
      const std::size_t point = i < 64 ? i : points_.size() - 1;
      try {
        problem_at(points_[point]);
        return point;
      } catch (const InputError& error) {
        if (!why) why = error.what();
      }
    }
    throw InputError(*why);
  }
  Problem problem_at(const Point& point) const { return swept_problem(request_.base, axes_, point); }
  bool names_models() const {
    return std::any_of(axes_.begin(), axes_.end(), [](const SweepAxis& axis) { return axis.parameter == "model"; });
  }

  SweepRow row_at(const Point& point, const ScheduleChoice& entry) const {
    SweepRow row;
    try {
      ScheduleOptions options = entry.options;
      for (std::size_t a = 0; a < axes_.size(); ++a) {
        if (!axes_[a].parameter.starts_with("option.")) continue;
        const std::string key = axes_[a].parameter.substr(7);
        const auto& known = shipped().info(entry.schedule).options;
        const bool has = std::any_of(known.begin(), known.end(), [&](const OptionInfo& info) { return info.name == key; });
        if (has) options[key] = value_text(axes_[a], point[a]);
      }
      Problem problem = problem_at(point);
      problem.schedules = {{entry.schedule, std::move(options)}};
      const Summary summary = predict(problem).summary;
      row.tokens = summary.tokens_per_device_per_second;
      row.makespan_s = to_seconds(summary.makespan);
      row.mfu = summary.mfu;
      row.bubble = summary.bubble.ratio;
      row.exposed_s = summary.communication.exposed_s;
      row.egress = static_cast<double>(summary.traffic.max_node_egress_bytes());
      row.memory = static_cast<double>(summary.fullest().value());
      row.microbatch = summary.microbatch_size;
      row.fits = summary.fits();
    } catch (const InputError& error) {
      row.refused = error.what();
    }
    return row;
  }

  /// Negative where the first is faster. The work at one point is the same, so times compare like
  /// speeds.
  double lead(const Point& point, const ScheduleChoice& first, const ScheduleChoice& second) const {
    return row_at(point, first).makespan_s - row_at(point, second).makespan_s;
  }

  /// Along the first numeric axis, if any: each place where the faster of two schedules changes.
  void find_crossovers() {
    const auto along = static_cast<std::size_t>(
        std::find_if(axes_.begin(), axes_.end(), [](const SweepAxis& axis) { return axis.numbers.size() > 1; }) - axes_.begin());
    if (along == axes_.size() || entries_.size() < 2) return;
    std::size_t stride = 1;
    for (std::size_t a = along + 1; a < axes_.size(); ++a) stride *= axes_[a].size();
    struct LeadChange {
      std::size_t point;
      std::size_t first;
      std::size_t second;
    };
    std::vector<LeadChange> changes;
    const auto makespan = [&](std::size_t point, std::size_t entry) -> const SweepRow& {
      return rows_[point * entries_.size() + entry];
    };
    for (std::size_t p = 0; p + stride < points_.size(); ++p) {
      if (p / stride % axes_[along].size() + 1 == axes_[along].size()) continue;
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        for (std::size_t j = i + 1; j < entries_.size(); ++j) {
          const SweepRow* rows[] = {&makespan(p, i), &makespan(p, j), &makespan(p + stride, i), &makespan(p + stride, j)};
          if (std::any_of(rows, rows + 4, [](const SweepRow* row) { return !row->refused.empty() || !row->fits; })) continue;
          const double before = rows[0]->makespan_s - rows[1]->makespan_s;
          const double after = rows[2]->makespan_s - rows[3]->makespan_s;
          if ((before < 0 && after > 0) || (before > 0 && after < 0)) changes.push_back({p, i, j});
        }
      }
    }
    crossovers_.resize(changes.size());
    in_parallel(
        changes.size(), "crossovers",
        [&](std::size_t c) {
          const std::size_t p = changes[c].point;
          const std::size_t i = changes[c].first;
          const std::size_t j = changes[c].second;
          Point point = points_[p];
          const SweepAxis& axis = axes_[along];
          const double at = bisect_crossover(points_[p][along], points_[p + stride][along], axis.logarithmic,
                                             !axis.is_continuous(), [&](double value) {
                                               point[along] = value;
                                               return lead(point, entries_[i], entries_[j]);
                                             });
          const bool first_before = makespan(p, i).makespan_s < makespan(p, j).makespan_s;
          const bool rising = points_[p][along] < points_[p + stride][along];
          // The one that is faster on the low side of the crossing overtakes below it.
          const ScheduleChoice& below = entries_[first_before == rising ? i : j];
          const ScheduleChoice& above = entries_[first_before == rising ? j : i];
          std::string line = fmt::format("{} overtakes {} below {} {}", entry_label(below), entry_label(above), axis.parameter,
                                         value_text(axis, at));
          std::string where;
          for (std::size_t a = 0; a < axes_.size(); ++a) {
            if (a == along || axes_[a].size() < 2) continue;
            where += fmt::format("{}{} {}", where.empty() ? " (" : ", ", axes_[a].parameter, value_text(axes_[a], points_[p][a]));
          }
          crossovers_[c] = line + (where.empty() ? "" : where + ")");
        },
        request_.threads);
  }

  const SweepRequest& request_;
  std::vector<SweepAxis> axes_;
  std::vector<ScheduleChoice> entries_;
  std::size_t usual_ = 0;  ///< a possible point
  std::vector<Point> points_;
  std::vector<SweepRow> rows_;  ///< [point * entries + entry]
  std::vector<std::string> crossovers_;
};

}  // namespace

int run_sweep(const SweepRequest& request) {
  if (request.vary.empty())
    throw InputError("--vary is missing; give a parameter and its values, such as sequence=4096,8192,16384");
  std::vector<SweepAxis> axes;
  for (const auto& text : request.vary) {
    axes.push_back(parse_sweep_axis(text));
    for (std::size_t a = 0; a + 1 < axes.size(); ++a) {
      if (axes[a].parameter == axes.back().parameter) throw InputError(concat("--vary ", axes[a].parameter, " is given twice"));
    }
  }
  Sweep sweep{request, std::move(axes), parse_entries(request.schedules, parse_options(request.base.options), false)};
  const std::initializer_list<OutputFlag> paths{
      {"--json", request.base.json}, {"--csv", request.csv}, {"--report", request.base.report}, {"--chart", request.chart}};
  check_outputs(paths);
  std::optional<OutputFile> json;
  std::optional<OutputFile> csv;
  if (!request.base.json.empty()) json.emplace(request.base.json);
  if (!request.csv.empty()) csv.emplace(request.csv);
  ReportFile report{request.base.report};
  PictureFile chart{"--chart", request.chart};
  sweep.run();
  if (json) {
    (*json)(sweep.json().dump(2) + "\n");
    json->finish();
  }
  if (csv) {
    (*csv)(sweep.csv());
    csv->finish();
  }
  if (chart) chart.write(sweep_chart(sweep.axes(), sweep.json()));
  if (report) {
    report.write({.command = "sweep",
                  .title = concat("Over ", join(request.vary, ", ")),
                  .problem = sweep.problem_text(),
                  .answer = sweep.json()});
  }
  if (!any_standard_output(paths)) {
    const std::string crossovers = sweep.crossovers_text();
    print(sweep.verdict_text() + "\n" + sweep.table_text() + (crossovers.empty() ? "" : "\n" + crossovers));
  }
  return ok;
}

}  // namespace tawpipe::sim
