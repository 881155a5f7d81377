// `tawpipe plan`: how to train, the fastest way first, with the command that simulates it.
#include "plan.hpp"
#include "../interrupt.hpp"
#include "../terminal_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "nodes.hpp"
#include "output.hpp"
#include "plan_answer.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/report/progress.hpp"

namespace tawpipe::sim {

namespace {

using Json = nlohmann::ordered_json;

/// The progress of each search, and Ctrl-C, which ends it.
class PlanDisplay {
 public:
  bool operator()(const PlanProgress& now, std::string_view what) {
    if (what != what_) {
      what_ = what;
      progress_.emplace(progress_line(what_, now.whole));
    }
    if (now.best != nullptr) progress_->note(concat("best ", format_duration(now.best->summary.makespan, 4)));
    progress_->advance(now.done - progress_->done());
    return interrupted == 0;
  }
  /// Clears the line, before anything is printed.
  void end() { progress_.reset(); }

 private:
  std::string what_;
  std::optional<Progress<>> progress_;
};

/// Numbers of devices by doubling, from the first of --devices FROM..TO to the last.
std::vector<int> devices_of(const PlanFlags& flags, int node) {
  const auto dots = flags.devices.find("..");
  const auto number = [&](const std::string& text) { return parse_whole<int>(text, "--devices", 1); };
  const int from = number(flags.devices.substr(0, dots));
  const int to = dots == std::string::npos ? from : number(flags.devices.substr(dots + 2));
  if (to < from || from % node != 0) {
    throw InputError(concat("--devices ", quote(flags.devices), " must be FROM..TO, multiples of the ", node,
                            " devices of a node, such as ", node, "..", 8 * node));
  }
  std::vector<int> counts;
  for (std::int64_t count = from; count <= to; count *= 2) counts.push_back(static_cast<int>(count));
  return counts;
}

/// The plans of all searches that no other beats in devices, time and memory.
Json front_of(const Json& searches) {
  Json all = Json::array();
  for (const Json& one : searches) {
    for (const Json& plan : one["pareto"]) all.push_back(plan);
  }
  const auto beats = [](const Json& a, const Json& b) {
    bool better = false;
    for (const char* key : {"devices", "makespan_s", "memory_bytes"}) {
      if (a[key] > b[key]) return false;
      better = better || a[key] < b[key];
    }
    return better;
  };
  Json front = Json::array();
  for (const Json& plan : all) {
    if (std::none_of(all.begin(), all.end(), [&](const Json& other) { return beats(other, plan); })) front.push_back(plan);
  }
  return front;
}

/// --devices: the best for each number of devices.
int run_devices(const PlanFlags& flags, std::optional<OutputFile>& file, ReportFile& report, PlanDisplay& display) {
  const Cluster cluster = resolve_plan(flags).problem.cluster;
  std::vector<Planned> all;
  for (const int devices : devices_of(flags, cluster.devices_in(NodeId{0}))) {
    PlanFlags one = flags;
    one.base.cluster = with_nodes(flags.base.cluster, devices / cluster.devices_in(NodeId{0}));
    one.top = 1;
    all.push_back(search_plans(one, concat("planning ", devices), std::ref(display)));
    if (all.back().result.stopped) break;
  }
  display.end();
  bool any = false;
  for (const Planned& one : all) any = any || !one.result.plans.empty();
  if (file || report) {
    Json json;
    json["by_devices"] = Json::array();
    for (const Planned& one : all) json["by_devices"].push_back(result_json(one));
    json["pareto"] = front_of(json["by_devices"]);
    if (file) {
      (*file)(json.dump(2) + "\n");
      file->finish();
    }
    if (report) write_plan_page(report, all, std::move(json));
  }
  if (!any_standard_output({{"--json", flags.base.json}, {"--report", flags.base.report}})) {
    print(devices_table(all, terminal_style()));
  }
  if (all.back().result.stopped) std::fputs("tawpipe: the search was stopped; what is shown is the best so far\n", stderr);
  return any ? ok : findings;
}

}  // namespace

int run_plan(const PlanFlags& flags) {
  if (!flags.devices.empty() && !(flags.today.empty() && flags.emit.empty())) {
    throw InputError("--today and --emit are of one number of devices; leave out --devices");
  }
  const std::initializer_list<OutputFlag> paths{{"--json", flags.base.json}, {"--report", flags.base.report}};
  check_outputs(paths);
  std::optional<OutputFile> file;
  if (!flags.base.json.empty()) file.emplace(flags.base.json);
  ReportFile report{flags.base.report};
  const InterruptEndsSearch interrupt;
  PlanDisplay display;
  if (!flags.devices.empty()) return run_devices(flags, file, report, display);
  const PlanAnswer answer = answer_plan(flags, std::ref(display));
  display.end();
  if (file) {
    (*file)(answer.json().dump(2) + "\n");
    file->finish();
  }
  if (report) write_plan_page(report, {answer.planned}, answer.json());
  if (!any_standard_output(paths)) {
    const std::string text = answer.text(terminal_style());
    answer.emitted ? write_output("-", text) : print(text);  // settings are for another program
  }
  if (answer.complaint().empty()) {
    if (answer.emitted && answer.stopped())
      std::fputs("tawpipe: the search was stopped; the settings are of the best so far\n", stderr);
    return ok;
  }
  std::fputs(fmt::format("tawpipe: {}\n", answer.complaint()).c_str(), stderr);
  return findings;
}

}  // namespace tawpipe::sim
