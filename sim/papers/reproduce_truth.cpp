// `tawpipe reproduce FILE...` and `reproduce vtrain`: published training runs and their
// predictions.
// Not: the mapping of their columns (truth.cpp), nor the figures of a source (truth_scores.hpp).
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "../terminal_text.hpp"
#include "commands/instruments.hpp"
#include "commands/output.hpp"
#include "papers/reproduce_chart.hpp"
#include "papers/truth_fit.hpp"
#include "papers/truth_scores.hpp"
#include "parallel.hpp"
#include "picture_file.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

/// The longest time of a rank from its first task to its last: a step where ranks do not wait for
/// each other between steps.
Duration longest_rank(const Prediction& prediction) {
  const Schedule& schedule = prediction.schedule;
  std::vector<TimePoint> first(static_cast<std::size_t>(schedule.ranks()));
  std::vector<TimePoint> last = first;
  std::vector<char> seen(first.size(), 0);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!is_work(task.op)) continue;
    const auto rank = static_cast<std::size_t>(task.rank);
    const TimePoint start = prediction.timeline.start[t];
    first[rank] = seen[rank] != 0 ? std::min(first[rank], start) : start;
    last[rank] = seen[rank] != 0 ? std::max(last[rank], prediction.timeline.end[t]) : prediction.timeline.end[t];
    seen[rank] = 1;
  }
  Duration longest{};
  for (std::size_t rank = 0; rank < first.size(); ++rank) longest = std::max(longest, last[rank] - first[rank]);
  return longest;
}

/// @param left_out  a figure that takes its unfitted value; null: none
TruthOutcome predict_row(const TruthRow& row, bool with_experts, const FittedFigure* left_out = nullptr) {
  TruthOutcome outcome;
  outcome.row = row;
  auto problem = truth_problem(row, with_experts);
  if (const auto* why = std::get_if<std::string>(&problem)) {
    outcome.why_not = *why;
    return outcome;
  }
  try {
    Problem& posed = std::get<Problem>(problem);
    KernelCost taken = std::get<KernelCost>(posed.cost);
    outcome.device = posed.cluster.device(Rank{0}).name;
    outcome.of = error_class(posed, software_of(row));
    outcome.generation = taken.curves(posed.cluster.device(Rank{0})).generation;
    if (left_out != nullptr && has_figure(outcome.generation, *left_out)) {
      for (const CurveField& field : curve_fields()) {
        if (left_out->field == every_curve) taken.changes.emplace_back(field.member, curves::ampere.*field.member);
        if (field.name == left_out->field) taken.changes.emplace_back(field.member, left_out->unfitted);
      }
    }
    posed.cost = std::move(taken);
    const Prediction prediction = predict(posed);
    outcome.measured_s = measured_seconds(row, posed);
    outcome.predicted_s = to_seconds(row.checks_after_update() ? longest_rank(prediction) : prediction.summary.makespan);
    const Summary& summary = prediction.summary;
    outcome.buffers_gib = static_cast<double>(summary.fullest().value()) / gib;
    outcome.allocated_gib = static_cast<double>(summary.allocated().value()) / gib;
    outcome.reserved_gib = static_cast<double>(summary.reserved().value()) / gib;
    outcome.used_gib = static_cast<double>(summary.used().value()) / gib;
    outcome.fits = summary.fits_probability();
    outcome.device_gib = static_cast<double>(summary.device_memory.front().value()) / gib;
  } catch (const Error& error) {
    outcome.why_not = error.what();
  }
  return outcome;
}

std::vector<TruthOutcome> predict_rows(const std::vector<TruthRow>& rows, bool with_experts) {
  std::vector<TruthOutcome> outcomes(rows.size());
  in_parallel(rows.size(), "predicting", [&](std::size_t i) { outcomes[i] = predict_row(rows[i], with_experts); });
  return outcomes;
}

/// The same without a fitted figure: rows on devices that have it are predicted again, the
/// others kept.
std::vector<TruthOutcome> predict_without(const FittedFigure& figure, std::vector<TruthOutcome> outcomes) {
  in_parallel(outcomes.size(), "predicting", [&](std::size_t i) {
    if (has_figure(outcomes[i].generation, figure)) outcomes[i] = predict_row(outcomes[i].row, true, &figure);
  });
  return outcomes;
}

using Groups = std::vector<std::pair<std::string, std::vector<const TruthOutcome*>>>;

void add_to(Groups& groups, const std::string& name, const TruthOutcome& outcome) {
  auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == name; });
  if (found == groups.end()) found = groups.insert(groups.end(), {name, {}});
  found->second.push_back(&outcome);
}

/// By source, in the order in which they first appear.
Groups by_source(const std::vector<TruthOutcome>& outcomes) {
  Groups sources;
  for (const TruthOutcome& outcome : outcomes) add_to(sources, outcome.row.source, outcome);
  return sources;
}

/// A source's predicted rows by device; none if all are on one.
Groups by_device(const std::vector<const TruthOutcome*>& outcomes) {
  Groups devices;
  for (const TruthOutcome* outcome : outcomes) {
    if (outcome->why_not.empty()) add_to(devices, outcome->device, *outcome);
  }
  return devices.size() > 1 ? devices : Groups{};
}

nlohmann::ordered_json json_of(const TruthOutcome& outcome) {
  nlohmann::ordered_json json{{"row", outcome.row.row}};
  if (!outcome.why_not.empty()) {
    json["why_not"] = outcome.why_not;
    return json;
  }
  json["measured_s"] = outcome.measured_s;
  json["predicted_s"] = outcome.predicted_s;
  const ExpectedError error = expected_error(outcome.of);
  json["interval_s"] = {outcome.predicted_s * error.low(), outcome.predicted_s * error.high()};
  json["software"] = name(outcome.of.software);
  json["mixture"] = outcome.of.mixture;
  json["bits"] = outcome.of.bits;
  json["generation"] = outcome.of.generation;
  const TruthRow& row = outcome.row;
  json["job"] = fmt::format("{} {} layers {} wide on {} {}, {} x {}, {}", row.model, row.layers, row.hidden, row.gpus,
                            row.hardware, row.global_batch, row.sequence, row.precision);
  json["layout"] = fmt::format("tp{} cp{} ep{} pp{} vp{} mbs{} {} {} {}", row.tp, row.cp, row.ep, row.pp, row.vp, row.micro_batch,
                               row.zero, row.recompute, row.schedule);
  if (row.allocated_gib > 0) json["measured_allocated_gib"] = row.allocated_gib;
  if (row.reserved_gib > 0) json["measured_reserved_gib"] = row.reserved_gib;
  if (row.ran_out) json["ran_out_of_memory"] = true;
  json["predicted_buffers_gib"] = outcome.buffers_gib;
  json["predicted_allocated_gib"] = outcome.allocated_gib;
  json["predicted_reserved_gib"] = outcome.reserved_gib;
  json["predicted_device_gib"] = outcome.used_gib;
  json["device_gib"] = outcome.device_gib;
  json["fits"] = outcome.fits;
  json["out_of_memory"] = outcome.fits < 0.5;
  return json;
}

/// @param key  of the name: "source" or "device"
nlohmann::ordered_json json_of(const TruthScore& score, const char* key = "source") {
  return {{key, score.source},
          {"rows", score.rows},
          {"expressible", score.expressible},
          {"mean_error", score.mean_error},
          {"median_error", score.median_error},
          {"max_error", score.max_error},
          {"rows_of_64_devices", score.large_rows},
          {"mean_error_of_64_devices", score.large_mean_error},
          {"bias", score.bias},
          {"rank_correlation", score.rank_correlation},
          {"pairs", score.pairs},
          {"pairs_right", score.pairs_right},
          {"jobs", score.jobs},
          {"jobs_right", score.jobs_right},
          {"memory_rows", score.memory_rows},
          {"memory_mean_error", score.memory_mean_error},
          {"reserved_rows", score.reserved_rows},
          {"reserved_mean_error", score.reserved_mean_error},
          {"verdicts", score.verdicts},
          {"false_out_of_memory", score.false_out_of_memory},
          {"false_fits", score.false_fits}};
}

/// Of all sources together.
TruthScore score_of_all(const std::vector<TruthOutcome>& outcomes) {
  std::vector<const TruthOutcome*> rows;
  for (const TruthOutcome& outcome : outcomes) rows.push_back(&outcome);
  return truth_score("all", rows);
}

nlohmann::ordered_json json_of(const std::vector<TruthOutcome>& outcomes, nlohmann::ordered_json left_out) {
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const auto& [source, rows] : by_source(outcomes)) {
    nlohmann::ordered_json json = json_of(truth_score(source, rows));
    for (const auto& [device, part] : by_device(rows)) json["devices"].push_back(json_of(truth_score(device, part), "device"));
    json["predictions"] = nlohmann::ordered_json::array();
    for (const TruthOutcome* outcome : rows) json["predictions"].push_back(json_of(*outcome));
    sources.push_back(std::move(json));
  }
  nlohmann::ordered_json json{{"sources", std::move(sources)}, {"all", json_of(score_of_all(outcomes))}};
  if (!left_out.empty()) json["left_out"] = std::move(left_out);
  return json;
}

std::string score_text(const std::vector<TruthOutcome>& outcomes) {
  Table table{{{"source"},
               {"rows", Align::right},
               {"expressible", Align::right},
               {"mean", Align::right},
               {"median", Align::right},
               {"largest", Align::right},
               {"64 devices", Align::right},
               {"bias", Align::right},
               {"rank", Align::right},
               {"pairs right", Align::right},
               {"jobs right", Align::right},
               {"allocated", Align::right},
               {"reserved", Align::right},
               {"verdicts right", Align::right}}};
  std::vector<TruthScore> scores;
  for (const auto& [source, rows] : by_source(outcomes)) {
    scores.push_back(truth_score(source, rows));
    for (const auto& [device, part] : by_device(rows)) {
      scores.push_back(truth_score(device, part));
      scores.back().source = "  " + device;
    }
  }
  const TruthScore all = score_of_all(outcomes);
  if (scores.size() > 1) scores.push_back(all);
  for (const TruthScore& score : scores) {
    const bool timed = score.max_error > 0;
    table.row({score.source, std::to_string(score.rows), std::to_string(score.expressible),
               timed ? format_percent(score.mean_error) : "", timed ? format_percent(score.median_error) : "",
               timed ? format_percent(score.max_error) : "", score.large_rows > 0 ? format_percent(score.large_mean_error) : "",
               timed ? fmt::format("{:+.1f}%", 100 * score.bias) : "",
               timed && score.expressible > 2 ? fmt::format("{:.2f}", score.rank_correlation) : "",
               score.pairs > 0 ? fmt::format("{} of {}", score.pairs_right, score.pairs) : "",
               score.jobs > 0 ? fmt::format("{} of {}", score.jobs_right, score.jobs) : "",
               score.memory_rows > 0 ? format_percent(score.memory_mean_error) : "",
               score.reserved_rows > 0 ? format_percent(score.reserved_mean_error) : "",
               score.verdicts == 0
                   ? ""
                   : fmt::format("{} of {}", score.verdicts - score.false_out_of_memory - score.false_fits, score.verdicts)});
  }
  const std::string choices =
      all.jobs == 0
          ? std::string{}
          : fmt::format(
                "\nOf {} jobs with several layouts, the fastest measured is within 3 % of the best predicted in {} ({}); "
                "of {} pairs of layouts {} are in order ({}).\n",
                all.jobs, all.jobs_right, format_percent(static_cast<double>(all.jobs_right) / all.jobs), all.pairs,
                all.pairs_right, format_percent(static_cast<double>(all.pairs_right) / std::max(1, all.pairs)));
  return "Predicted step times against measured ones, as fractions of the measured;\n"
         "\"64 devices\": the mean of the rows of 64 or more; below a source, its rows by device\n\n" +
         table.str(terminal_style()) + choices;
}

/// The rows that cannot be expressed, by reason.
std::string why_not_text(const std::vector<TruthOutcome>& outcomes) {
  std::map<std::pair<std::string, std::string>, int> reasons;
  for (const TruthOutcome& outcome : outcomes) {
    if (!outcome.why_not.empty()) ++reasons[{outcome.row.source, outcome.why_not}];
  }
  if (reasons.empty()) return "";
  Table table{{{"source"}, {"rows", Align::right}, {"why they are not predicted"}}};
  for (const auto& [reason, count] : reasons) table.row({reason.first, std::to_string(count), reason.second});
  return "\nNot expressible\n\n" + table.str(terminal_style());
}

std::string worst_text(const std::vector<TruthOutcome>& outcomes) {
  std::vector<const TruthOutcome*> worst;
  for (const TruthOutcome& outcome : outcomes) {
    if (outcome.is_timed()) worst.push_back(&outcome);
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const TruthOutcome* a, const TruthOutcome* b) { return std::abs(a->error()) > std::abs(b->error()); });
  if (worst.size() > 10) worst.resize(10);
  Table table{{{"source"}, {"row"}, {"measured", Align::right}, {"predicted", Align::right}, {"error", Align::right}}};
  for (const TruthOutcome* outcome : worst) {
    table.row({outcome->row.source, outcome->row.row, fmt::format("{:.3g} s", outcome->measured_s),
               fmt::format("{:.3g} s", outcome->predicted_s), fmt::format("{:+.1f}%", 100 * outcome->error())});
  }
  return "\nThe largest errors\n\n" + table.str(terminal_style());
}

/// The same with one fitted figure left out, for each.
struct LeftOut {
  const FittedFigure* figure;
  std::vector<TruthOutcome> outcomes;
};

std::string left_out_text(const std::vector<TruthOutcome>& outcomes, const std::vector<LeftOut>& others) {
  if (others.empty()) return "";
  std::vector<TableColumn> columns{{"figure"}};
  std::vector<std::vector<std::string>> lines{{"all as they are"}};
  for (const LeftOut& other : others) {
    const std::string value = other.figure->field == every_curve ? "A100's" : fmt::format("{}", other.figure->unfitted);
    lines.push_back({fmt::format("{} {}={}", other.figure->generation, other.figure->field, value)});
  }
  const auto add = [&](std::size_t line, const std::string& source, const Groups& groups, std::size_t s) {
    lines[line].push_back(format_percent(truth_score(source, groups[s].second).mean_error));
  };
  const Groups sources = by_source(outcomes);
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const std::string& source = sources[s].first;
    if (!(truth_score(source, sources[s].second).max_error > 0)) continue;
    columns.push_back({source, Align::right});
    add(0, source, sources, s);
    for (std::size_t i = 0; i < others.size(); ++i) add(i + 1, source, by_source(others[i].outcomes), s);
  }
  Table table{columns};
  for (std::vector<std::string>& line : lines) table.row(std::move(line));
  return "\nMean error with one fitted or assumed figure left out: as public measurements of kernels give it\n\n" +
         table.str(terminal_style());
}

nlohmann::ordered_json left_out_json(const std::vector<LeftOut>& others) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LeftOut& other : others) {
    nlohmann::ordered_json sources = nlohmann::ordered_json::array();
    for (const auto& [source, rows] : by_source(other.outcomes)) {
      const TruthScore score = truth_score(source, rows);
      sources.push_back({{"source", source}, {"mean_error", score.mean_error}, {"bias", score.bias}});
    }
    list.push_back({{"generation", other.figure->generation},
                    {"figure", other.figure->field},
                    {"unfitted", other.figure->unfitted},
                    {"fitted_to", other.figure->rows},
                    {"sources", std::move(sources)}});
  }
  return list;
}

int report(const std::vector<TruthRow>& rows, const ReproduceRequest& request) {
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);  // before anything is computed
  PictureFile chart{"--chart", request.chart};
  const std::vector<TruthOutcome> outcomes = predict_rows(rows, request.experts);
  std::vector<LeftOut> others;
  if (request.left_out) {
    for (const FittedFigure& figure : fitted_figures()) others.push_back({&figure, predict_without(figure, outcomes)});
  }
  if (file) {
    (*file)(json_of(outcomes, left_out_json(others)).dump(2) + "\n");
    file->finish();
  }
  if (chart) chart.write(reproduce_chart(json_of(outcomes, {})));
  if (request.json != "-") {
    print(score_text(outcomes) + left_out_text(outcomes, others) + why_not_text(outcomes) + worst_text(outcomes));
  }
  return ok;
}

}  // namespace

int run_reproduce_truth(const ReproduceRequest& request) {
  std::vector<TruthRow> rows;
  for (const std::string& file : request.files) {
    std::vector<TruthRow> more = read_truth_rows(file);
    std::move(more.begin(), more.end(), std::back_inserter(rows));
  }
  return report(rows, request);
}

int run_reproduce_vtrain(const ReproduceRequest& request) {
  if (request.data.empty()) throw InputError("--data is missing; give vTrain's measurements as CSV (docs/accuracy.md)");
  return report(read_vtrain_rows(request.data), request);
}

}  // namespace tawpipe::sim
