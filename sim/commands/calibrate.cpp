// `tawpipe calibrate`: the links of a cluster file from the output of nccl-tests, or a measured
// cost from timelines.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>

#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/analysis/calibrate.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/measured_json.hpp"
#include "tawpipe/report/nccl_tests_file.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/timeline/timeline_csv.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::sim {

namespace {

int calibrate_timelines(const CalibrateRequest& request) {
  if (request.timelines.empty()) throw InputError("--timeline is missing; give what tawpipe train --timeline wrote");
  if (request.timelines.size() != request.schedules.size()) {
    throw InputError(concat("there are ", request.timelines.size(), " --timeline and ", request.schedules.size(),
                            " --schedule-file; give each timeline its schedule, in the same order"));
  }
  if (request.cluster.empty()) throw InputError("--cluster is missing; give the cluster that the timelines were measured on");
  const Cluster cluster = resolve_cluster(request.cluster, request.device, request.inter_node);
  std::optional<OutputFile> file;
  if (!request.out.empty()) file.emplace(request.out);
  std::list<Schedule> schedules;  // runs refer to them
  std::list<Timeline> timelines;
  std::vector<MeasuredRun> runs;
  for (std::size_t i = 0; i < request.timelines.size(); ++i) {
    const std::string& schedule = request.schedules[i];
    const std::string& timeline = request.timelines[i];
    schedules.push_back(parse_schedule_json(read_text(schedule, "schedule file"), one_line(schedule)));
    timelines.push_back(parse_timeline_csv(read_text(timeline, "timeline"), schedules.back(), one_line(timeline)));
    runs.push_back({schedules.back(), timelines.back()});
  }
  Calibration found = calibrate(runs, cluster);
  found.cost.software = concat("tawpipe ", version);
  if (file) {
    (*file)(measured_json(found.cost));
    file->finish();
  }
  if (request.out == "-") return ok;
  write_output("-", calibration_table(found).str(terminal_style()) + (file ? "" : "\n" + measured_json(found.cost)));
  return ok;
}

/// @throws InputError  naming the file
FittedLink fitted(const NcclTestsRun& run, const std::string& path) {
  try {
    return fit_link(run);
  } catch (const InputError& error) {
    throw InputError(concat(quote(path), ": ", error.what()));
  }
}

}  // namespace

Table calibration_table(const Calibration& found) {
  Table table{{{"tasks"},
               {"measured", Align::right},
               {"used", Align::right},
               {"mean", Align::right},
               {"error of the fit", Align::right}}};
  for (const CalibrationClass& one : found.classes) {
    table.row({one.name, format_count(static_cast<std::int64_t>(one.tasks)), format_count(static_cast<std::int64_t>(one.used)),
               format_duration(seconds(one.mean)), format_percent(one.error)});
  }
  return table;
}

int run_calibrate(const CalibrateRequest& request) {
  if (!request.kineto.empty()) return calibrate_kineto(request);
  const bool timelines = !request.timelines.empty() || !request.schedules.empty() || !request.cluster.empty() ||
                         !request.inter_node.empty() || !request.out.empty();
  const bool links = !request.files.empty() || !request.json.empty() || request.ring || request.adapters > 0;
  if (timelines && links) {
    throw InputError(
        "outputs of nccl-tests go with --json, --ring and --adapters, timelines with --schedule-file, --cluster and --out; give "
        "one kind");
  }
  if (timelines) return calibrate_timelines(request);
  if (request.files.empty())
    throw InputError("there is nothing to calibrate from; give outputs of nccl-tests, --timeline, or --kineto");
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  struct Kind {
    const char* name;
    int runs = 0;
    double latency = 0;
    double bandwidth = 0;
    int adapters = 0;
  };
  Kind kinds[] = {{"intra_node"}, {"inter_node"}};
  Table table{{{"file"},
               {"program"},
               {"ranks", Align::right},
               {"hosts", Align::right},
               {"link"},
               {"latency", Align::right},
               {"bandwidth", Align::right},
               {"error of the fit", Align::right}}};
  bool assumed = false;
  for (const auto& path : request.files) {
    NcclTestsRun run = read_nccl_tests(read_text(path, "output of nccl-tests"), path);
    run.ring = run.ring || request.ring;
    if (request.adapters > 0) run.adapters = request.adapters;
    const FittedLink link = fitted(run, path);
    assumed = assumed || link.adapters_assumed;
    Kind& kind = kinds[run.hosts > 1 ? 1 : 0];
    // From several runs over one kind of link: the largest bandwidth (the others share it with more
    // traffic), the mean latency.
    kind.bandwidth = std::max(kind.bandwidth, link.bytes_per_second);
    kind.adapters = std::max(kind.adapters, link.adapters);
    kind.latency = (kind.latency * kind.runs + link.latency_s) / (kind.runs + 1);
    ++kind.runs;
    table.row({one_line(path), run.program, std::to_string(run.ranks), std::to_string(run.hosts),
               run.hosts > 1 ? concat("each of ", link.adapters, link.adapters > 1 ? " adapters" : " adapter") : kind.name,
               format_duration(seconds(link.latency_s)), format_bandwidth(BytesPerSecond{link.bytes_per_second}),
               format_percent(link.error)});
  }
  nlohmann::ordered_json json;
  for (const Kind& kind : kinds) {
    if (kind.runs == 0) continue;
    json[kind.name] = {{"bytes_per_second", kind.bandwidth}, {"latency_ps", seconds(kind.latency).value()}};
  }
  if (kinds[1].adapters > 0) json["adapters_per_node"] = kinds[1].adapters;
  if (file) {
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (request.json != "-") {
    std::string text = table.str(terminal_style());
    if (assumed) {
      text += fmt::format(
          "\n{} a node: assumed, as the output does not say; --adapters N says it, or NCCL_DEBUG=INFO lets NCCL say it.\n",
          kinds[1].adapters == 1 ? "1 adapter" : fmt::format("{} adapters", kinds[1].adapters));
    }
    write_output("-", text + "\nFor a cluster file (docs/topology.md):\n" + json.dump(2) + "\n");
  }
  return ok;
}

}  // namespace tawpipe::sim
