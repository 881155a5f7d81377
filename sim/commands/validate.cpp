// `tawpipe validate`: proves one schedule, with all findings at once.
#include "tawpipe/verify/validate.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../request.hpp"
#include "../terminal_text.hpp"
#include "exchange.hpp"
#include "fitting_search.hpp"
#include "output.hpp"
#include "tawpipe/report/findings_json.hpp"
#include "tawpipe/report/formatters.hpp"
#include "validate_order.hpp"

namespace tawpipe::sim {

namespace {

/// The kinds of steps inside stages that ranks share, by name: validate() takes them as they are.
std::vector<std::string> not_proven(const Schedule& schedule) {
  std::array<bool, body_step_kinds> found{};
  for (const SharedStage& stage : schedule.parts().bodies) {
    for (const StageBody* body : {&stage.forward, &stage.backward, &stage.backward_input, &stage.backward_weight}) {
      for (const BodyStep& step : *body) found[static_cast<std::size_t>(step.kind)] = schedule.parts().mesh.shared() > 1;
    }
  }
  std::vector<std::string> names;
  for (std::size_t kind = 0; kind < found.size(); ++kind) {
    if (found[kind]) names.emplace_back(name(static_cast<BodyStep::Kind>(kind)));
  }
  return names;
}

nlohmann::ordered_json report_json(const Schedule& schedule, const Diagnostics& found) {
  nlohmann::ordered_json json;
  json["schedule"] = schedule.name();
  json["tasks"] = schedule.tasks().size();
  json["valid"] = found.ok();
  json["errors"] = found.errors();
  json["warnings"] = found.warnings();
  json["not_proven"] = not_proven(schedule);
  json["findings"] = to_json(found);
  return json;
}

/// The findings for a predicted schedule. Without a model sizes are meaningless, so memory is not
/// checked against the devices.
/// With a line of progress for a large schedule. @param peaks  of memory, to hold against the
/// cluster's; none: only the schedule itself is checked
Diagnostics validate(const Schedule& schedule, const Cluster& cluster, const std::vector<Bytes>& peaks) {
  std::optional<Progress<>> progress;
  const auto show = [&](int check, int checks) {
    constexpr std::size_t many = 100'000;
    if (schedule.tasks().size() < many) return;
    if (!progress) progress.emplace(progress_line("validating", checks));
    progress->advance(check - progress->done());
  };
  const ValidateWatch watch{show};
  const ValidateOptions options{.peaks = peaks, .watch = &watch};
  return peaks.empty() ? tawpipe::validate(schedule, options) : tawpipe::validate(schedule, cluster, options);
}

}  // namespace

int run_validate(const Request& request, const OrderRequest& how) {
  std::optional<FileProblem> given;
  std::optional<OrderReport> order;
  std::vector<ScheduleChoice> schedules;
  std::optional<OutputFile> file;  // opened first, so that an unwritable path is detected before the work
  const auto open = [&] {
    if (!request.json.empty()) file.emplace(request.json);
  };
  const auto write_json = [&](const nlohmann::ordered_json& json) {
    if (!file) return;
    (*file)(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    file->finish();
  };
  if (request.schedule_file.empty()) {
    schedules = {named_schedule(request, " or --schedule-file")};
  } else {
    ScheduleFile read = read_schedule_file(request.schedule_file, request.comm_groups);
    if (has_order(read)) {
      open();
      order = prove_order(read, how);
      const bool alone = read.calls || read.trace || (!request.has("cluster") && !request.has("model"));
      if (alone || !order->right) {
        write_json(order->json);
        if (request.json != "-") print(concat(one_line(request.schedule_file), ": ", order->text));
        return order->right ? ok : findings;
      }
    }
    given = load_schedule_file(request, std::move(read));
  }
  Problem problem = given ? std::move(given->problem) : resolve(request, false);
  problem.schedules = std::move(schedules);
  if (!file) open();
  std::optional<Prediction> prediction;
  if (!given) prediction = with_simulation_line("simulating", [&] { return predict(problem); });
  const Schedule& schedule = given ? given->schedule : prediction->schedule;
  std::vector<Bytes> peaks;
  if (prediction && problem.model) {
    for (const PeakMemory& peak : prediction->summary.peak_memory) peaks.push_back(peak.total);
  }
  const Diagnostics found = validate(schedule, problem.cluster, peaks);
  nlohmann::ordered_json json = report_json(schedule, found);
  if (order) json.update(order->json);
  write_json(json);
  if (request.json != "-") {
    const std::string& title = given ? request.schedule_file : request.schedule;
    const std::vector<std::string> unproven = not_proven(schedule);
    print(describe(problem, &schedule.workload()) + "\n" +
          fmt::format("{}: {} tasks on {} ranks\n", one_line(title),
                      format_count(static_cast<std::int64_t>(schedule.tasks().size())), schedule.ranks()) +
          found.text() +
          (unproven.empty() ? ""
                            : fmt::format("not proven: steps inside stages that ranks share: {}\n", fmt::join(unproven, ", "))) +
          (order ? concat("its order: ", order->text) : ""));
  }
  return found.ok() ? ok : findings;
}

}  // namespace tawpipe::sim
