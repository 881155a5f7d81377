// The interval of a prediction.
#include "tawpipe/answers/interval.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/answers/planned.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/measured_step.hpp"

namespace tawpipe::inline v0::answers {

namespace {

Duration times(Duration time, double factor) { return seconds(to_seconds(time) * factor); }

/// "3% less", "8% more".
std::string off_text(double factor) { return concat(format_percent(std::abs(factor - 1), 0), factor < 1 ? " less" : " more"); }

/// A text of --cost kernels with that speed in place of its own.
std::string cost_with_speed(const std::string& cost, double speed) {
  std::string text = "kernels:";
  const std::size_t colon = cost.find(':');
  for (const std::string_view one :
       split(colon == std::string::npos ? std::string_view{} : std::string_view{cost}.substr(colon + 1), ',')) {
    if (!one.empty() && !one.starts_with("speed=")) text += concat(one, ",");
  }
  return text + fmt::format("speed={:.4g}", speed);
}

}  // namespace

std::string interval_text(Duration time, const ExpectedError& error) {
  std::string low = format_duration(times(time, error.low()));
  const std::string high = format_duration(times(time, error.high()));
  const std::size_t unit = low.find(' ');
  if (unit != std::string::npos && low.find(' ', unit + 1) == std::string::npos && high.ends_with(low.substr(unit)) &&
      high.find(' ') + low.size() - unit == high.size())
    low.resize(unit);
  return concat(low, " to ", high);
}

std::string error_text(const ExpectedError& error) {
  if (error.rows == 0)
    return fmt::format("{}: software that was never measured took {} to {} (80 %)", error.text(), off_text(error.low()),
                       off_text(error.high()));
  return fmt::format("{} took {} to {} than predicted (80 %)", error.text(), off_text(error.low()), off_text(error.high()));
}

std::string probability_text(double probability) {
  if (probability > 0.99) return "yes";
  if (probability < 0.01) return "no";
  return format_percent(probability, 0);
}

std::string device_memory_text(const Summary& summary) {
  return fmt::format("{} allocated, {} reserved, {} as nvidia-smi shows; fits: {}", format_memory(summary.allocated()),
                     format_memory(summary.reserved()), format_memory(summary.used()),
                     probability_text(summary.fits_probability()));
}

MeasuredStep measured_step(const JobQuestion& request, const Problem& problem, Duration predicted) {
  MeasuredStep found;
  try {
    found.measured = parse_duration(request.step_time);
  } catch (const InputError& error) {
    throw InputError(concat("--step-time: ", error.what()));
  }
  found.speed = speed_of_step(problem, predicted, found.measured);
  found.cost = cost_with_speed(request.text("cost"), found.speed);
  return found;
}

std::string measured_step_text(const MeasuredStep& step, Duration predicted, const std::optional<RunsWithError>& error) {
  const double more = step.measured / predicted - 1;
  const double pairs = pair_error(error ? error->error.like : ErrorClass{});
  return fmt::format(
      "\nmeasured   {}, {} {} than predicted. For other layouts of this model, in this software on these devices:\n"
      "           --cost {} (80 % of public pairs: {} to {})\n",
      format_duration(step.measured), format_percent(std::abs(more)), more < 0 ? "less" : "more", step.cost,
      off_text(std::exp(-pairs)), off_text(std::exp(pairs)));
}

void add_measured_step(nlohmann::ordered_json& json, const MeasuredStep& step) {
  json["measured_step"] = {{"step_s", to_seconds(step.measured)}, {"speed", step.speed}, {"cost", step.cost}};
}

void add_interval(nlohmann::ordered_json& json, Duration time, const RunsWithError& found) {
  json["interval_s"] = {to_seconds(time) * found.error.low(), to_seconds(time) * found.error.high()};
  json["error_of"] = found.error.text();
  json["runs_in"] = nlohmann::ordered_json::array();
  for (const Framework one : found.runs) json["runs_in"].push_back(name(one));
}

std::string titles(const std::vector<Framework>& all, std::string_view between) {
  std::string text;
  for (const Framework one : all) text += concat(text.empty() ? "" : between, title(one));
  return text;
}

std::string step_text(Duration time, const std::optional<RunsWithError>& error) {
  const std::string text = concat(format_duration(time), " a step");
  if (!error) return text;
  return concat(text, " (80 %: ", interval_text(time, error->error), "), ",
                error->runs.empty() ? "which no framework runs" : concat("in ", titles(error->runs, " or ")));
}

std::string advice_text(const Summary& summary) {
  const Shares shares = shares_of(summary);
  const std::string limit = limit_of(summary);
  if (limit == "communication") {
    std::size_t most = 1;
    const std::vector<double>& lanes = summary.communication.lane_exposed_s;
    for (std::size_t lane = 1; lane < lanes.size(); ++lane) most = lanes[lane] > lanes[most] ? lane : most;
    return fmt::format(
        "Communication that nothing hides takes {} of it, most on lane {}: try larger microbatches, overlap, or a "
        "layout with fewer bytes between nodes (tawpipe plan).",
        format_percent(shares.exposed), most < summary.lanes.size() ? summary.lanes[most] : "communication");
  }
  if (limit == "waiting") {
    return fmt::format(
        "Devices are idle {} of it: try more microbatches, more chunks a device, or balanced stages "
        "(tawpipe plan).",
        format_percent(shares.waiting));
  }
  const bool again = !summary.recompute.empty() && summary.recompute != "none";
  return fmt::format("Computing takes {} of it: only {}faster GEMMs or more devices help.", format_percent(shares.compute),
                     again ? "less recomputation, " : "");
}

std::optional<RunsWithError> error_of_problem(const Problem& problem, const Summary& summary, const ScheduleChoice& choice,
                                              Recompute recompute) {
  if (!problem.model || std::holds_alternative<FixedCost>(problem.cost)) return std::nullopt;
  return runs_with_error(problem, choice, recompute, summary.microbatch_size);
}

nlohmann::ordered_json compared_json(const Problem& problem, const Chosen& one, const std::optional<double>& bound) {
  nlohmann::ordered_json json = to_json(one.summary);
  add_gap(json, one.summary.makespan, bound);
  const std::optional<RunsWithError> error =
      error_of_problem(chosen_problem(problem, one), one.summary, one.choice, one.recompute);
  if (error) add_interval(json, one.summary.makespan, *error);
  return json;
}

}  // namespace tawpipe::answers
