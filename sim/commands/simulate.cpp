// `tawpipe simulate`: one schedule, predicted.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "../mesh_request.hpp"
#include "../picture_file.hpp"
#include "../report_file.hpp"
#include "../request.hpp"
#include "../terminal_text.hpp"
#include "advice.hpp"
#include "exchange.hpp"
#include "fitting_search.hpp"
#include "output.hpp"
#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/report/chrome_trace.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/gantt.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/known_times.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/timeline/timeline_csv.hpp"
#include "tawpipe/verify/validate.hpp"

namespace tawpipe::sim {

namespace {

std::string options_text(const Summary& summary) {
  std::string text;
  for (const auto& [key, value] : summary.options) text += concat(text.empty() ? "" : " ", key, "=", value);
  return text;
}

/// The fullest rank's memory, by kind.
std::string memory_text(const Summary& summary) {
  std::size_t fullest = 0;
  for (std::size_t r = 1; r < summary.peak_memory.size(); ++r) {
    if (summary.peak_memory[r].total > summary.peak_memory[fullest].total) fullest = r;
  }
  const PeakMemory& peak = summary.peak_memory[fullest];
  std::string kinds;
  for (int kind = 0; kind < buffer_kinds; ++kind) {
    const Bytes bytes = peak.by_kind[static_cast<std::size_t>(kind)];
    if (bytes > Bytes{})
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", name(static_cast<BufferKind>(kind)), format_memory(bytes));
  }
  return fmt::format("{} of {} on rank {} ({})", format_memory(peak.total), format_memory(summary.device_memory[fullest]),
                     fullest, kinds);
}

/// The node whose ranks keep the most in host memory. @pre there is one
std::size_t fullest_host(const Summary& summary) {
  return static_cast<std::size_t>(std::max_element(summary.host_need.begin(), summary.host_need.end()) -
                                  summary.host_need.begin());
}
std::string assumed_host(const Summary& summary) {
  return summary.host_memory_assumed ? " (assumed: twice its devices' memory, at the next power of two)" : "";
}

bool gathers_whole_stages(const Problem& problem) {
  const Mesh mesh = problem.mesh.over(problem.cluster.ranks());
  return problem.sharding > StateSharding::optimizer && mesh.pipeline > 1 && mesh.data * mesh.token_ranks() > 1;
}

/// @param chosen  its recomputation was not given
/// @param whole_stages  a pipeline gathers what its replicas share
std::string summary_text(const Summary& summary, bool composed, bool chosen, bool whole_stages) {
  std::string out;
  const auto line = [&](std::string_view label, const std::string& text) { out += fmt::format("{:<22}{}\n", label, text); };
  line("schedule", concat(summary.schedule, "  ", options_text(summary)));
  std::string microbatches = format_count(summary.microbatches);
  if (summary.microbatch_size > 0) microbatches += fmt::format(" of {} sequences", format_count(summary.microbatch_size));
  line("microbatches", microbatches);
  if (chosen) line("recomputation", summary.recompute);
  if (summary.empty_stages > 0) {
    line("stages", fmt::format("{}, of which {} have no layer: their devices only pass on (--layers-per-stage, or fewer stages)",
                               format_count(summary.stages), format_count(summary.empty_stages)));
  }
  line("step time", fmt::format("{}  ({} tasks)", format_duration(summary.makespan), format_count(summary.tasks)));
  if (!summary.model.empty()) {
    line("throughput", fmt::format("{} tokens/s and {} TFLOP/s a device, MFU {}; {} tokens a day",
                                   format_tokens(summary.tokens_per_device_per_second), format_teraflops(summary),
                                   format_percent(summary.mfu), format_tokens(summary.tokens_per_day())));
  }
  line("bubble", fmt::format("{} of the devices' time", format_percent(summary.bubble.ratio)));
  line("communication",
       fmt::format("{} busy, {} exposed, mean of a device", format_duration(seconds(summary.communication.busy_s)),
                   format_duration(seconds(summary.communication.exposed_s))));
  for (std::size_t lane = 1; lane < summary.lanes.size(); ++lane) {
    line(concat("  ", summary.lanes[lane]),
         fmt::format("{} busy, {} exposed", format_duration(seconds(summary.communication.lane_busy_s[lane])),
                     format_duration(seconds(summary.communication.lane_exposed_s[lane]))));
  }
  if (summary.held) {
    line("SM contention", fmt::format("computations take {} longer, {} of it due to waiting communications, mean of a device",
                                      format_duration(seconds(HeldTime::mean(summary.held->slowed_s))),
                                      format_duration(seconds(HeldTime::mean(summary.held->waiting_s)))));
  }
  line("between nodes", fmt::format("{}, egress of a node at most {}", format_traffic(Bytes{summary.traffic.inter_node_bytes}),
                                    format_traffic(Bytes{summary.traffic.max_node_egress_bytes()})));
  line("inside nodes", format_traffic(Bytes{summary.traffic.intra_node_bytes}));
  if (!summary.model.empty()) line("peak memory", memory_text(summary));
  if (summary.beside) line("device memory", device_memory_text(summary));
  if (whole_stages)
    line("", "shared states are gathered, and gradients summed, by whole stages, as in the frameworks' pipelines");
  Bytes host;
  for (const PeakMemory& peak : summary.peak_memory) host = std::max(host, peak.host);
  if (host > Bytes{}) {
    const std::size_t node = fullest_host(summary);
    const Bytes memory = summary.host_memory[node];
    line("host memory",
         fmt::format(
             "at most {} of a rank, {} of a node{}; {} to it and {} from it", format_memory(host),
             format_memory(summary.host_need[node]),
             memory > Bytes{} ? fmt::format(" that has {}{}", format_memory(memory), assumed_host(summary)) : std::string{},
             format_traffic(Bytes{summary.traffic.host_bytes[0]}), format_traffic(Bytes{summary.traffic.host_bytes[1]})));
  }
  std::string path;
  for (int op = 0; op < ops; ++op) {
    const Duration time = summary.critical_path[static_cast<std::size_t>(op)];
    if (time <= Duration{}) continue;
    path += fmt::format("{}{} {}", path.empty() ? "" : ", ", name(static_cast<Op>(op)), format_percent(time / summary.makespan));
  }
  line("critical path", path);
  const Folding& folding = summary.folding;
  if (folding.factor > 1) {
    line("simulated", fmt::format("{} of {} devices, each for {} that do the same ({} tasks)", format_count(folding.ranks),
                                  format_count(summary.ranks), format_count(folding.factor), format_count(folding.tasks)));
  } else if (composed && !folding.refusal.empty()) {
    line("simulated", "in full: " + folding.refusal);
  }
  return out;
}

/// The outputs, of which one may be standard output.
struct Outputs {
  std::optional<OutputFile> timeline;
  std::optional<OutputFile> trace;
  std::optional<OutputFile> json;
};

/// Reports a schedule from a file that can run but is invalid. @return its errors; none if it is
/// too large to check in addition
std::optional<std::size_t> complain_of_findings(const std::string& path, const Schedule& schedule) {
  const double clocks =
      static_cast<double>(schedule.tasks().size()) * schedule.ranks() * static_cast<double>(schedule.lanes().size());
  if (clocks > 2e9) return std::nullopt;  // seconds
  const Diagnostics found = tawpipe::validate(schedule, ValidateOptions{.keep = 1});
  if (found.ok()) return 0;
  const auto first = std::find_if(found.findings().begin(), found.findings().end(),
                                  [](const Finding& finding) { return finding.severity == Severity::error; });
  std::fputs(fmt::format("tawpipe: {} is not valid ({}): {}: {}; tawpipe validate shows all findings\n", one_line(path),
                         found.summary(), first->code, first->message)
                 .c_str(),
             stderr);
  return found.errors();
}

/// The fullest device, and a layout that fits, or what else may help.
/// @param searched  for one: recomputation, smaller microbatches and host memory do not help then
void complain_of_memory(const Summary& summary, const std::optional<std::string>& fitting, bool searched) {
  const bool partly = summary.usable_memory < 1;
  const std::string part = partly ? format_percent(summary.usable_memory, 0) + " of " : std::string{};
  if (summary.out_of_memory.empty()) {
    const std::size_t node = fullest_host(summary);
    std::fputs(
        fmt::format("tawpipe: out of host memory on {} of {} nodes: what is offloaded on node {} needs {}, and its host has "
                    "{}{}{}; {}\n",
                    summary.out_of_host_memory.size(), summary.nodes, node, format_memory(summary.host_need[node]), part,
                    format_memory(summary.host_memory[node]), assumed_host(summary),
                    fitting.value_or("offload less, or say in the cluster's file what \"host_memory\" there is"))
            .c_str(),
        stderr);
    return;
  }
  const auto rank = index(*std::max_element(summary.out_of_memory.begin(), summary.out_of_memory.end(), [&](Rank a, Rank b) {
    return summary.peak_memory[index(a)].total < summary.peak_memory[index(b)].total;
  }));
  std::string advice = summary.microbatch_size > 1 && !searched ? "try a smaller --microbatch, more devices" : "try more devices";
  if (summary.recompute != "full" && !searched) advice += ", --recompute full";
  if (summary.traffic.host_bytes[0] + summary.traffic.host_bytes[1] == 0 && !searched) advice += ", --offload";
  if (partly) advice += ", a larger --usable-memory";
  const Bytes buffers = summary.peak_memory[rank].total;
  const Bytes need = summary.beside && !partly ? summary.beside->needed(buffers) : buffers;
  std::fputs(fmt::format("tawpipe: out of memory on {} of {} devices: rank {} needs {} and has {}{}; {}\n",
                         summary.out_of_memory.size(), summary.ranks, rank, format_memory(need), part,
                         format_memory(summary.device_memory[rank]), fitting.value_or(advice))
                 .c_str(),
             stderr);
}

}  // namespace

int run_simulate(const Request& given) {
  Request request = given;
  if (request.fold.empty()) request.fold = "auto";
  const bool every_task = !request.timeline.empty() || !request.trace.empty() || !request.report.empty() ||
                          !request.gantt.empty() || !request.schedule_file.empty();
  if (every_task && request.fold == "on") {
    throw InputError(
        "--fold on simulates some of the tasks; --timeline, --trace, --report, --gantt and --schedule-file need all: leave one "
        "out");
  }
  if (every_task && request.fold == "auto") request.fold = "off";
  std::vector<ScheduleChoice> schedules;
  if (request.schedule_file.empty()) schedules = {named_schedule(request, ", --schedule-file or --graph")};
  const std::initializer_list<OutputFlag> paths{{"--json", request.json},
                                                {"--timeline", request.timeline},
                                                {"--trace", request.trace},
                                                {"--report", request.report},
                                                {"--gantt", request.gantt}};
  check_outputs(paths);
  std::optional<FileProblem> file;
  std::optional<std::size_t> findings_in_file;
  if (!request.schedule_file.empty()) {
    file = load_schedule_file(request);
    require_runnable(file->schedule);
    if (file->times.empty()) findings_in_file = complain_of_findings(request.schedule_file, file->schedule);
  }
  Problem problem = file ? std::move(file->problem) : resolve(request, false);
  if (!file) refuse_idle_sharding(problem.sharding, problem.mesh);
  problem.schedules = std::move(schedules);
  Outputs outputs;
  if (!request.timeline.empty()) outputs.timeline.emplace(request.timeline);
  if (!request.trace.empty()) outputs.trace.emplace(request.trace);
  ReportFile report{request.report};
  PictureFile gantt{"--gantt", request.gantt};
  if (!request.json.empty()) outputs.json.emplace(request.json);
  FittingSearch fitting{problem};
  const Prediction prediction = with_simulation_line("simulating", [&] {
    if (file && file->times.empty()) return predict(problem, std::move(file->schedule));
    if (file) return predict(problem, std::move(file->schedule), file->times);
    // Both at once, within the limit of one (--limit).
    const auto begin = [&](const Schedule& schedule) {
      if (2 * static_cast<double>(schedule.tasks().size()) <= problem.max_tasks) fitting.begin();
    };
    const HopelessSchedule hopeless{begin};
    return predict(problem, &hopeless);
  });
  const Summary& summary = prediction.summary;
  const std::optional<double> bound = file ? std::nullopt : bound_of(problem);  // a file may have different work
  const std::optional<RunsWithError> error =
      file ? std::nullopt : error_of_problem(problem, summary, problem.schedules.front(), problem.recompute);
  std::optional<MeasuredStep> measured;
  if (!request.step_time.empty()) measured = measured_step(request, problem, summary.makespan);
  if (outputs.timeline) {
    write_timeline_csv(prediction.schedule, prediction.timeline, [&](std::string_view text) { (*outputs.timeline)(text); });
  }
  if (outputs.trace) {
    write_chrome_trace(prediction.schedule, prediction.timeline, [&](std::string_view text) { (*outputs.trace)(text); },
                       {.cluster = &problem.cluster, .held = summary.held ? &*summary.held : nullptr});
  }
  if (gantt) gantt.write(tawpipe::gantt(prediction.schedule, prediction.timeline, {.cluster = &problem.cluster}));
  const std::string verdict =
      concat("With ", summary.schedule, " expect ", step_text(summary.makespan, error), ". ", advice_text(summary), "\n\n");
  if (outputs.json || report) {
    auto json = to_json(summary);
    add_cost(json, problem);
    add_gap(json, summary.makespan, bound);
    if (wants_run(request)) json["run"] = run_json(answer_run(request, problem, summary));
    if (error) add_interval(json, summary.makespan, *error);
    if (measured) add_measured_step(json, *measured);
    if (findings_in_file) json["valid"] = *findings_in_file == 0;
    if (outputs.json) (*outputs.json)(json.dump(2) + "\n");
    if (report) {
      report.write({.command = "simulate",
                    .title = concat(summary.schedule, " on ", summary.cluster),
                    .problem = describe(problem, &prediction.schedule.workload()),
                    .answer = std::move(json),
                    .verdict = verdict,
                    .entries = {ReportEntry::of(summary.schedule, prediction, problem)}});
    }
  }
  for (auto* output : {&outputs.timeline, &outputs.trace, &outputs.json}) {
    if (*output) (*output)->finish();
  }
  if (!any_standard_output(paths))
    print(verdict + describe(problem, &prediction.schedule.workload()) + "\n" +
          summary_text(summary, !problem.mesh.is_plain(), problem.recomputes.size() > 1, gathers_whole_stages(problem)) +
          (wants_run(request) ? "\n" + run_text(answer_run(request, problem, summary)) : std::string{}) +
          (bound ? gap_text(summary, *bound) : std::string{}) +
          (measured ? measured_step_text(*measured, summary.makespan, error) : std::string{}));
  if (prediction.fits()) return ok;
  const std::optional<FittingLayout> found = file ? std::nullopt : fitting.wait();
  complain_of_memory(summary, found ? std::optional{fitting_text(request, problem, *found)} : std::nullopt,
                     !file && problem.model.has_value());
  return findings;
}

}  // namespace tawpipe::sim
