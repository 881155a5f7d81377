// `tawpipe what-if`: traces replayed, and how long their steps would take under other
// circumstances.
#include "what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../picture_file.hpp"
#include "../report_file.hpp"
#include "../request.hpp"
#include "../terminal_text.hpp"
#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/replay/straggler_csv.hpp"
#include "tawpipe/replay/what_if.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/gantt.hpp"
#include "tawpipe/report/kineto_run.hpp"
#include "tawpipe/report/measured_json.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::sim {

namespace {

bool is_straggler_trace(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' && text[first] != '[' && !text.starts_with("\x1f\x8b");
}

TracedRun read_traces(const WhatIfRequest& request) {
  KinetoRunReader reader{request.partial};
  for (const std::string& path : request.traces) {
    const std::string text = read_text(path, "trace", 8 << 10);
    if (text.starts_with("PAR1")) {
      throw InputError(concat(one_line(path),
                              ": Parquet; write it as CSV first: python3 -c \"import pandas; pandas.read_parquet('",
                              one_line(path), "').to_csv('trace.csv', index=False)\""));
    }
    if (!is_straggler_trace(text)) {
      reader.add(text, one_line(path));
      continue;
    }
    if (request.traces.size() > 1) {
      throw InputError(
          concat(one_line(path), " is not a trace of PyTorch's profiler; of straggler traces, which hold all ranks, give one"));
    }
    return read_straggler_csv(text, one_line(path));
  }
  return reader.take();
}

/// The ranks selected by `who`: a rank's number, stage:K, dp:K, worst:N, worst:P%.
std::vector<char> ranks_meant(const TracedRun& run, std::string_view who) {
  const auto unknown = [&](std::string_view why) { return InputError(one_line(concat("--without-straggler ", who, ": ", why))); };
  const auto colon = who.find(':');
  const std::string_view kind = colon == std::string_view::npos ? std::string_view{} : who.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? who : who.substr(colon + 1);
  if (kind == "worst") {
    const bool share = value.ends_with('%');
    if (share) value.remove_suffix(1);
    const auto number = to_number<double>(value);
    const double most = share ? 100 : static_cast<double>(run.ranks.size());
    if (!number || !(*number > 0 && *number <= most))
      throw unknown("give a number of ranks or a percentage of them, as worst:1%");
    const double count = share ? *number / 100 * static_cast<double>(run.ranks.size()) : *number;
    return worst_ranks(run, static_cast<std::size_t>(std::ceil(count - 1e-9)));
  }
  std::int32_t last = -1;
  for (const TracedRank& rank : run.ranks) last = std::max(last, rank.stage);
  const auto wanted = kind == "stage" && value == "last" ? std::optional{last} : to_number<std::int32_t>(value);
  if (!wanted || (colon != std::string_view::npos && kind != "stage" && kind != "dp")) {
    throw unknown("give a rank, stage:K, stage:last, dp:K, worst:N, worst:P% or all");
  }
  std::vector<char> meant(run.ranks.size(), 0);
  for (std::size_t r = 0; r < meant.size(); ++r) {
    const TracedRank& rank = run.ranks[r];
    meant[r] = (kind == "stage" ? rank.stage : kind == "dp" ? rank.replica : rank.number) == *wanted ? 1 : 0;
  }
  if (*wanted < 0 || std::count(meant.begin(), meant.end(), 1) == 0) {
    throw unknown(last < 0 && !kind.empty() ? "the traces do not say which rank holds what" : "the traces have no such rank");
  }
  return meant;
}

WhatIf without(const TracedRun& run, const std::string& who) {
  if (who == "all") return {.name = "all ranks share the work evenly", .typical = WhatIf::Typical::shared};
  WhatIf question{.name = {}, .typical = WhatIf::Typical::peers, .ranks = ranks_meant(run, who)};
  if (who.starts_with("stage:")) {
    // A stage has no peers that do the same: its part of the work is spread over all, as in
    // ByteDance's metric.
    question.typical = WhatIf::Typical::shared;
    question.name = concat(who == "stage:last" ? std::string{"the last stage"} : concat("stage ", who.substr(6)),
                           " takes what stages take on average");
    return question;
  }
  std::string named;
  int count = 0;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    if (question.ranks[r] == 0) continue;
    if (++count <= 3) named += concat(named.empty() ? "" : ", ", run.ranks[r].label);
  }
  if (count > 3) named += concat(" and ", count - 3, " more");
  question.name = concat(named, count > 1 ? " are" : " is", " as fast as the peers");
  return question;
}

bool has(const TracedRun& run, const TimeScale& scale) {
  return std::any_of(run.steps.begin(), run.steps.end(), [&](const TracedStep& step) {
    return std::any_of(step.events.begin(), step.events.end(), [&](const TracedEvent& event) { return scale.takes(event); });
  });
}

constexpr Op passes[] = {Op::forward, Op::backward, Op::update};

/// The kinds of --scale that the traces have, "compute, forward, communication".
std::string kinds_in(const TracedRun& run) {
  std::string kinds = has(run, {.computations = true}) ? "compute" : "";
  const auto add = [&](std::string_view kind, const TimeScale& scale) {
    if (has(run, scale)) kinds += concat(kinds.empty() ? "" : ", ", kind);
  };
  for (const Op op : passes) add(name(op), {.op = op});
  for (int k = 1; k < trace_kinds; ++k) add(name(static_cast<TraceKind>(k)), {.kind = static_cast<TraceKind>(k)});
  return kinds;
}

/// KIND=FACTOR.
WhatIf scaled(const TracedRun& run, const std::string& text) {
  const auto equals = text.rfind('=');
  const std::string kind = text.substr(0, equals);
  const auto factor =
      equals == std::string::npos ? std::optional<double>{} : to_number<double>(std::string_view{text}.substr(equals + 1));
  if (!factor || !(*factor >= 0 && *factor <= 1e6) || kind.empty()) {
    throw InputError(
        one_line(concat("--scale ", text, " must be a kind of operation and what its times are multiplied by, as matmul=0.5")));
  }
  TimeScale scale{.factor = *factor};
  const auto pass = std::find_if(std::begin(passes), std::end(passes), [&](Op op) { return name(op) == kind; });
  int trace_kind = 1;
  while (trace_kind < trace_kinds && name(static_cast<TraceKind>(trace_kind)) != kind) ++trace_kind;
  if (kind.size() > 2 && kind.front() == '/' && kind.back() == '/') {
    try {
      const std::regex expression{kind.substr(1, kind.size() - 2)};
      for (const std::string& name : run.names) scale.names.push_back(std::regex_search(name, expression) ? 1 : 0);
    } catch (const std::regex_error&) {
      throw InputError(one_line(concat("--scale ", kind, ": no regular expression (ECMAScript's)")));
    }
    if (std::count(scale.names.begin(), scale.names.end(), 1) == 0) {
      throw InputError(one_line(concat("--scale ", kind, ": no operation of the traces has such a name")));
    }
  } else if (kind == "compute") {
    scale.computations = true;
  } else if (pass != std::end(passes)) {
    scale.op = *pass;
  } else if (trace_kind < trace_kinds) {
    scale.kind = static_cast<TraceKind>(trace_kind);
  } else {
    std::vector<std::string> known{"compute"};
    for (const Op op : passes) known.emplace_back(name(op));
    known.emplace_back("/EXPRESSION/");
    for (int k = 1; k < trace_kinds; ++k) known.emplace_back(name(static_cast<TraceKind>(k)));
    throw InputError(one_line(concat("--scale: ", unknown_name("kind", kind, known))));
  }
  // Between events there is always some time of the host's.
  if (scale.kind != TraceKind::host && !has(run, scale))
    throw InputError(one_line(concat("--scale ", text, ": the traces have no such work; they have ", kinds_in(run))));
  const std::string how = *factor == 0 ? std::string{"takes no time"} : fmt::format("takes {} times as long", *factor);
  return {.name = concat(one_line(kind), " ", how), .scales = {scale}};
}

/// The questions of the flags; by default those that show where the time goes.
std::vector<WhatIf> questions(const WhatIfRequest& request, const TracedRun& run) {
  std::vector<WhatIf> all;
  for (const std::string& who : request.stragglers) all.push_back(without(run, who));
  for (const std::string& text : request.scales) all.push_back(scaled(run, text));
  if (request.bandwidth > 0) {
    all.push_back({.name = fmt::format("the network has {} times the bandwidth", request.bandwidth),
                   .scales = {{.kind = TraceKind::communication, .factor = 1 / request.bandwidth}}});
  }
  if (request.no_gaps) all.push_back({.name = "the host takes no time", .scales = {{.kind = TraceKind::host, .factor = 0}}});
  if (!all.empty()) {
    if (!request.together) return all;
    WhatIf joined;
    for (WhatIf& one : all) {
      if (one.typical != WhatIf::Typical::none && joined.typical != WhatIf::Typical::none) {
        throw InputError("--together takes one --without-straggler; worst:N means several ranks");
      }
      if (one.typical != WhatIf::Typical::none) std::tie(joined.typical, joined.ranks) = std::pair{one.typical, one.ranks};
      joined.scales.insert(joined.scales.end(), one.scales.begin(), one.scales.end());
      joined.name += concat(joined.name.empty() ? "" : ", ", one.name);
    }
    return {joined};
  }
  if (run.ranks.size() > 1) {
    all.push_back(without(run, "all"));
    all.push_back(without(run, "worst:1"));
  }
  std::int32_t last = 0;
  for (const TracedRank& rank : run.ranks) last = std::max(last, rank.stage);
  if (last > 0) all.push_back(without(run, "stage:last"));
  constexpr std::size_t most_causes = 3;
  for (const HostCause& cause : host_causes(run)) {
    if (all.size() >= most_causes + 3) break;
    TimeScale scale{.names = std::vector<char>(run.names.size(), 0), .factor = 0};
    scale.names[static_cast<std::size_t>(cause.name)] = 1;
    const auto rank =
        static_cast<std::size_t>(std::max_element(cause.seconds.begin(), cause.seconds.end()) - cause.seconds.begin());
    all.push_back(
        {.name = concat(one_line(run.names[static_cast<std::size_t>(cause.name)]), " takes no time (", run.ranks[rank].label,
                        ": ", format_duration(seconds(cause.seconds[rank] / run.iterations())), " a step)"),
         .scales = {scale}});
  }
  all.push_back({.name = "the host takes no time", .scales = {{.kind = TraceKind::host, .factor = 0}}});
  all.push_back({.name = "communication takes no time", .scales = {{.kind = TraceKind::communication, .factor = 0}}});
  for (const TraceKind kind : {TraceKind::matmul, TraceKind::attention, TraceKind::copy, TraceKind::compute}) {
    if (has(run, {.kind = kind})) {
      const bool only = kind == TraceKind::compute && all.back().scales.front().kind == TraceKind::communication;
      all.push_back({.name = concat(kind == TraceKind::compute ? only ? "computation" : "other computation" : name(kind),
                                    " takes half as long"),
                     .scales = {{.kind = kind, .factor = 0.5}}});
    }
  }
  return all;
}

struct Answered {
  TracedRun run;
  Duration replayed{};  ///< all steps
  std::vector<WhatIf> questions{};
  std::vector<WhatIfAnswer> answers{};  ///< in the order of the questions

  double per_step(Duration total) const { return to_seconds(total) / run.iterations(); }
  std::size_t tasks() const {
    std::size_t count = 0;
    for (const TracedStep& step : run.steps) count += step.schedule.tasks().size();
    return count;
  }
  double error() const { return run.traced() > Duration{} ? replayed / run.traced() - 1 : 0; }
};

nlohmann::ordered_json to_json(const WhatIfRequest& request, const Answered& all) {
  nlohmann::ordered_json json;
  json["traces"] = nlohmann::ordered_json::array();
  for (const std::string& trace : request.traces) json["traces"].push_back(one_line(trace));
  std::size_t events = 0;
  for (const TracedStep& step : all.run.steps) events += step.events.size();
  json["ranks"] = all.run.ranks.size();
  json["steps"] = all.run.iterations();
  json["events"] = events;
  json["tasks"] = all.tasks();
  json["traced_step_s"] = all.per_step(all.run.traced());
  json["replayed_step_s"] = all.per_step(all.replayed);
  json["replay_error"] = all.error();
  json["answers"] = nlohmann::ordered_json::array();
  for (const WhatIfAnswer& answer : all.answers) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const Duration step : answer.steps) steps.push_back(to_seconds(step));
    json["answers"].push_back({{"question", answer.name},
                               {"step_s", all.per_step(answer.total)},
                               {"saved_s", all.per_step(all.replayed) - all.per_step(answer.total)},
                               {"saved", 1 - answer.total / std::max(all.replayed, Duration{1})},
                               {"traced_parts_s", std::move(steps)}});
  }
  const std::vector<double> excess = excess_of_ranks(all.run);
  json["rank_excess_s"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < excess.size(); ++r) {
    json["rank_excess_s"].push_back(
        {{"rank", all.run.ranks[r].number}, {"label", all.run.ranks[r].label}, {"step_s", excess[r] / all.run.iterations()}});
  }
  json["host_causes"] = nlohmann::ordered_json::array();
  for (const HostCause& cause : host_causes(all.run)) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const double rank : cause.seconds) steps.push_back(rank / all.run.iterations());
    json["host_causes"].push_back(
        {{"cause", all.run.names[static_cast<std::size_t>(cause.name)]}, {"rank_step_s", std::move(steps)}});
  }
  json["notes"] = all.run.notes;
  return json;
}

std::string text_of(const Answered& all, const std::string& next) {
  const auto time = [&](Duration total) { return format_duration(seconds(all.per_step(total))); };
  std::string text =
      fmt::format("traced    {} a step: {} {}, {} {}, {} tasks\n", time(all.run.traced()), all.run.iterations(),
                  all.run.iterations() == 1 ? "step" : "steps", all.run.ranks.size(),
                  all.run.ranks.size() == 1 ? "rank" : "ranks", format_count(static_cast<std::int64_t>(all.tasks())));
  text += fmt::format("replayed  {}: {:+.2f} %\n\n", time(all.replayed), 100 * all.error());
  Table table{{{"what if"}, {"a step", Align::right}, {"saved", Align::right}, {"", Align::right}}};
  for (const WhatIfAnswer& answer : all.answers) {
    const Duration saved = all.replayed - answer.total;
    table.row({answer.name, time(answer.total), saved < Duration{} ? "-" + time(Duration{} - saved) : time(saved),
               fmt::format("{:.1f} %", 100 * (1 - answer.total / std::max(all.replayed, Duration{1})))});
  }
  text += table.str(terminal_style());
  for (const std::string& note : all.run.notes) text += "\n" + note;
  if (!all.run.notes.empty()) text += "\n";
  if (std::abs(all.error()) > 0.01) text += "\nThe replay is more than 1 % off, and the answers are no better than that.\n";
  return text + next;
}

/// A cluster for the ranks on a page, where links and memory do not matter.
Cluster standing(std::size_t ranks) {
  using namespace tawpipe::literals;
  return ClusterBuilder{}
      .name("the traced ranks")
      .device({.name = "device", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .nodes(static_cast<int>(ranks))
      .devices_per_node(1)
      .intra_node({.bandwidth = 1_GBps, .latency = {}})
      .inter_node({.bandwidth = 1_GBps, .latency = {}})
      .build();
}

void write_pages(const Answered& all, const nlohmann::ordered_json& json, ReportFile& report, PictureFile& gantt) {
  const Cluster cluster = standing(all.run.ranks.size());
  const TracedStep& step = all.run.steps.front();
  if (gantt) {
    const std::string title = concat("step ", one_line(step.name), " as traced");
    gantt.write(tawpipe::gantt(step.schedule, replay(step), {.cluster = &cluster, .title = title}));
  }
  if (!report) return;
  std::vector<std::pair<std::string, Timeline>> timelines{{"as traced", replay(step)}};
  const std::size_t tasks = step.schedule.tasks().size();
  for (std::size_t q = 0; q < all.questions.size() && (timelines.size() + 1) * tasks <= max_report_tasks; ++q) {
    timelines.emplace_back(all.questions[q].name, replay(step, event_times(all.run, all.questions[q]).front()));
  }
  std::vector<Summary> summaries;
  for (const auto& [label, timeline] : timelines) summaries.push_back(summarize(step.schedule, cluster, timeline));
  ReportPage page{.command = "what-if",
                  .title = concat("What if: step ", one_line(step.name), " of ", all.run.ranks.size(), " ranks"),
                  .problem = fmt::format("{} a step as traced, {:+.2f} % in the replay",
                                         format_duration(seconds(all.per_step(all.run.traced()))), 100 * all.error()),
                  .answer = json,
                  .notes = all.run.notes};
  for (std::size_t i = 0; i < timelines.size(); ++i) {
    page.entries.push_back({.label = timelines[i].first,
                            .schedule = &step.schedule,
                            .timeline = &timelines[i].second,
                            .summary = &summaries[i],
                            .cluster = &cluster,
                            .limits_memory = false});
  }
  report.write(page);
}

}  // namespace

int run_what_if(const WhatIfRequest& request) {
  const std::initializer_list<OutputFlag> paths{
      {"--json", request.json}, {"--report", request.report}, {"--gantt", request.gantt}, {"--out", request.out}};
  check_outputs(paths);
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  std::optional<OutputFile> out;
  if (!request.out.empty()) out.emplace(request.out);
  ReportFile report{request.report};
  PictureFile gantt{"--gantt", request.gantt};
  Answered all{.run = read_traces(request)};
  all.replayed = ask(all.run, {}).total;
  all.questions = questions(request, all.run);
  for (const WhatIf& question : all.questions) all.answers.push_back(ask(all.run, question));
  if (request.stragglers.empty() && request.scales.empty() && !request.no_gaps && request.bandwidth <= 0) {
    std::stable_sort(all.answers.begin(), all.answers.end(), [](const auto& a, const auto& b) { return a.total < b.total; });
  }
  const auto json = to_json(request, all);
  if (file) {
    (*file)(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    file->finish();
  }
  std::string next;
  if (out) {
    (*out)(measured_json(traced_times(request, all.run)));
    out->finish();
    next = concat("\nAnother schedule, cut or cluster: tawpipe compare --cost measured:", one_line(request.out),
                  " --cluster CLUSTER --model MODEL --global-batch N\n");
  }
  write_pages(all, json, report, gantt);
  if (!any_standard_output(paths)) print(text_of(all, next));
  return ok;
}

}  // namespace tawpipe::sim
