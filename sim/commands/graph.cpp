// `tawpipe graph`: plain task graphs simulated, and schedules exported as such.
#include "graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/task_graph_json.hpp"
#include "tawpipe/simulate/task_graph_export.hpp"
#include "tawpipe/simulate/task_graph_text.hpp"
#include "tawpipe/timeline/timeline_csv.hpp"

namespace tawpipe::sim {

namespace {

TaskGraph read_graph(const std::string& file) {
  const std::string text = read_text(file, "task graph", 1 << 20);
  const std::string source = file == "-" ? std::string{"standard input"} : one_line(file);
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && text[first] == '{';
  return json ? task_graph_from_json(text, source) : parse_task_graph(text, source);
}

/// The contents of a graph and the load of its devices.
struct GraphSummary {
  std::size_t computes = 0;
  std::size_t messages[2] = {0, 0};  ///< inside nodes, between nodes
  double bytes[2] = {0, 0};
  double compute_s = 0;         ///< on all devices
  std::int32_t last_task = -1;  ///< the first of those that end last
};

GraphSummary summarize(const TaskGraph& graph, const Timeline& timeline) {
  GraphSummary summary;
  for (std::size_t t = 0; t < graph.tasks(); ++t) {
    if (summary.last_task < 0 || timeline.end[t] > timeline.end[static_cast<std::size_t>(summary.last_task)]) {
      summary.last_task = static_cast<std::int32_t>(t);
    }
    if (graph.is_compute(t)) {
      ++summary.computes;
      summary.compute_s += graph.amount(t);
      continue;
    }
    const std::int32_t in_node = graph.platform.devices_per_node;
    const int kind = graph.device(t) / in_node == graph.destination(t) / in_node ? 0 : 1;
    ++summary.messages[kind];
    summary.bytes[kind] += graph.amount(t);
  }
  return summary;
}

void write_times(const Timeline& timeline, OutputFile& file) {
  std::string out;
  for (std::size_t t = 0; t < timeline.start.size(); ++t) {
    detail::append_number(out, t);
    out += ' ';
    detail::append_seconds(out, timeline.start[t]);
    out += ' ';
    detail::append_seconds(out, timeline.end[t]);
    out += '\n';
    if (out.size() < std::size_t{64} << 10) continue;
    file(out);
    out.clear();
  }
  file(out);
}

}  // namespace

int run_graph_simulate(const GraphRequest& request) {
  check_outputs({{"--json", request.json}, {"--times", request.times}});
  const TaskGraph graph = read_graph(request.file);
  const auto begin = std::chrono::steady_clock::now();
  const Timeline timeline = simulate(graph);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const GraphSummary summary = summarize(graph, timeline);
  const TaskGraphPlatform& platform = graph.platform;
  if (!request.times.empty()) {
    OutputFile file{request.times};
    write_times(timeline, file);
    file.finish();
  }
  const double makespan = to_seconds(timeline.makespan());
  const double busy = makespan > 0 ? summary.compute_s / (makespan * platform.devices()) : 0;
  if (!request.json.empty()) {
    nlohmann::ordered_json json;
    json["graph"] = request.file;
    json["nodes"] = platform.nodes;
    json["devices"] = platform.devices();
    json["tasks"] = graph.tasks();
    json["edges"] = graph.edges();
    json["computations"] = summary.computes;
    json["intra_node_messages"] = summary.messages[0];
    json["inter_node_messages"] = summary.messages[1];
    json["intra_node_bytes"] = summary.bytes[0];
    json["inter_node_bytes"] = summary.bytes[1];
    json["makespan_s"] = makespan;
    json["last_task"] = summary.last_task;
    json["compute_s"] = summary.compute_s;
    json["busy_ratio"] = busy;
    json["simulation_s"] = took;
    write_output(request.json, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  if (any_standard_output({{"--json", request.json}, {"--times", request.times}})) return ok;
  std::string out;
  const auto line = [&](std::string_view label, const std::string& text) { out += fmt::format("{:<22}{}\n", label, text); };
  const auto count = [](std::size_t number) { return format_count(static_cast<std::int64_t>(number)); };
  const auto bytes = [](double number) { return format_traffic(number); };
  line("graph", fmt::format("{} tasks, {} dependencies", count(graph.tasks()), count(graph.edges())));
  line("platform", fmt::format("{} nodes of {} devices", platform.nodes, platform.devices_per_node));
  line("makespan",
       fmt::format("{}  ({:.12f} s; task {} ends last)", format_duration(timeline.makespan()), makespan, summary.last_task));
  line("computations",
       fmt::format("{}, the devices are busy for {} of the makespan", count(summary.computes), format_percent(busy)));
  line("inside nodes", fmt::format("{} messages, {}", count(summary.messages[0]), bytes(summary.bytes[0])));
  line("between nodes", fmt::format("{} messages, {}", count(summary.messages[1]), bytes(summary.bytes[1])));
  write_output("-", out);
  return ok;
}

int run_graph_export(Request request, const std::string& out) {
  if (!request.has("hold-sms")) request.set("hold-sms", "off");  // a plain graph cannot express it
  const ScheduleChoice choice = named_schedule(request);
  Problem problem = resolve(request, false);
  problem.schedules = {choice};
  const Prediction prediction = predict(problem);
  const ExportedTaskGraph exported =
      std::visit([&](const auto& cost) { return export_task_graph(prediction.schedule, problem.cluster, cost); }, problem.cost);
  OutputFile file{out};
  const auto write = [&](std::string_view text) { file(text); };
  if (out.ends_with(".json")) {
    write_task_graph_json(exported.graph, write);
  } else {
    write_task_graph(exported.graph, write);
  }
  file.finish();
  if (out == "-") return ok;
  write_output("-", fmt::format("{}: {} tasks, makespan {}\nthe schedule itself: {} tasks, makespan {}\n", out,
                                format_count(static_cast<std::int64_t>(exported.graph.tasks())),
                                format_duration(simulate(exported.graph).makespan()),
                                format_count(static_cast<std::int64_t>(prediction.schedule.tasks().size())),
                                format_duration(prediction.summary.makespan)));
  return ok;
}

}  // namespace tawpipe::sim
