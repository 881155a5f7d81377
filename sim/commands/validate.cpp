// `tawpipe validate`: proves one schedule, with all findings at once.
#include "tawpipe/analysis/validate.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "../request.hpp"
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

}  // namespace

int run_validate(const Request& request) {
  if (request.schedule.empty()) throw InputError("--schedule is missing; give a name (tawpipe list schedules)");
  schedule_info(request.schedule);
  const Problem problem = resolve(request, false);
  const Prediction prediction = predict_best(problem, request.schedule, parse_options(request.options));
  std::vector<Bytes> peaks;
  if (problem.model) {
    for (const auto& peak : prediction.summary.peak_memory) peaks.push_back(peak.total);
  }
  // Without a model sizes mean nothing, so memory is not held against the devices.
  const ValidateOptions options{.peaks = peaks};
  const Diagnostics found =
      problem.model ? validate(prediction.schedule, problem.cluster, options) : validate(prediction.schedule, options);
  if (!request.json.empty()) {
    nlohmann::ordered_json json;
    json["schedule"] = request.schedule;
    json["tasks"] = prediction.summary.tasks;
    json["valid"] = found.ok();
    json["errors"] = found.errors();
    json["warnings"] = found.warnings();
    json["findings"] = findings_json(found);
    write_output(request.json, json.dump(2) + "\n");
  }
  if (request.json != "-") {
    write_output("-", describe(problem) + "\n" +
                          fmt::format("{}: {} tasks on {} ranks\n", request.schedule, format_count(prediction.summary.tasks),
                                      prediction.summary.ranks) +
                          found.text());
  }
  return found.ok() ? ok : findings;
}

}  // namespace tawpipe::sim
