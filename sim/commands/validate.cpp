// `tawpipe validate`: proves one schedule, with all findings at once.
#include "tawpipe/analysis/validate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "../request.hpp"
#include "exchange.hpp"
#include "output.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

namespace {

nlohmann::ordered_json findings_json(const Diagnostics& diagnostics) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& finding : diagnostics.findings()) {
    nlohmann::ordered_json one;
    one["severity"] = name(finding.severity);
    one["code"] = finding.code;
    one["task"] = finding.task == none<TaskId> ? nlohmann::ordered_json{} : nlohmann::ordered_json(number(finding.task));
    one["rank"] = finding.rank == none<Rank> ? nlohmann::ordered_json{} : nlohmann::ordered_json(number(finding.rank));
    one["message"] = finding.message;
    one["help"] = finding.help;
    all.push_back(std::move(one));
  }
  return all;
}

/// Prints the findings about what is called `title`, and gives the exit code.
int report(const Request& request, const Problem& problem, const std::string& title, const Schedule& schedule,
           const Diagnostics& found) {
  if (!request.json.empty()) {
    nlohmann::ordered_json json;
    json["schedule"] = schedule.name();
    json["tasks"] = schedule.tasks().size();
    json["valid"] = found.ok();
    json["errors"] = found.errors();
    json["warnings"] = found.warnings();
    json["findings"] = findings_json(found);
    write_output(request.json, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  if (request.json != "-") {
    write_output("-", describe(problem) + "\n" +
                          fmt::format("{}: {} tasks on {} ranks\n", one_line(title),
                                      format_count(static_cast<std::int64_t>(schedule.tasks().size())), schedule.ranks()) +
                          found.text());
  }
  return found.ok() ? ok : findings;
}

}  // namespace

int run_validate(const Request& request) {
  if (request.schedule.empty() && request.schedule_file.empty()) {
    throw InputError("--schedule is missing; give a name (tawpipe list schedules) or --schedule-file");
  }
  if (!request.schedule_file.empty()) {
    FileProblem file = load_schedule_file(request);
    const Diagnostics found = validate(file.schedule);
    return report(request, file.problem, request.schedule_file, file.schedule, found);
  }
  const ScheduleOptions options = parse_options(request.options);
  schedule_info(request.schedule);  // an unknown name is found before anything is computed
  const Problem problem = resolve(request, false);
  const Prediction prediction = predict_best(problem, request.schedule, options);
  std::vector<Bytes> peaks;
  if (problem.model) {
    for (const auto& peak : prediction.summary.peak_memory) peaks.push_back(peak.total);
  }
  // Without a model sizes mean nothing, so memory is not held against the devices.
  const Diagnostics found = problem.model ? validate(prediction.schedule, problem.cluster, ValidateOptions{.peaks = peaks})
                                          : validate(prediction.schedule);
  return report(request, problem, request.schedule, prediction.schedule, found);
}

}  // namespace tawpipe::sim
