// `tawpipe plan`: how to train, the fastest way first, with the command that simulates it.
#include "plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "entries.hpp"
#include "nodes.hpp"
#include "output.hpp"
#include "parallel.hpp"
#include "plan_frameworks.hpp"
#include "plan_report.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/progress.hpp"
#include "tawpipe/search/bound.hpp"
#include "tawpipe/search/plan.hpp"

namespace tawpipe::sim {

namespace {

using Json = nlohmann::ordered_json;

volatile std::sig_atomic_t interrupted = 0;

/// While it lives, Ctrl-C ends the search and not the command; a second one ends the command.
class InterruptEndsSearch {
 public:
  InterruptEndsSearch() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &before_);
  }
  InterruptEndsSearch(const InterruptEndsSearch&) = delete;
  InterruptEndsSearch& operator=(const InterruptEndsSearch&) = delete;
  ~InterruptEndsSearch() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

PlanRequest resolve_plan(const PlanFlags& flags) {
  Request fixed = flags.base;
  fixed.global_batch = batch_of_tokens(flags);
  if (fixed.recompute == "any") fixed.recompute = "full";
  if (fixed.layout == "any") fixed.layout = "tcsd";
  if (fixed.microbatch == "auto") fixed.microbatch.clear();
  fixed.mesh = {};
  PlanRequest request{.problem = resolve(fixed, true)};
  request.microbatch_sizes = std::exchange(request.problem.microbatch_sizes, {});
  if (flags.base.usable_memory <= 0) request.problem.usable_memory = usable_memory_share;  // also for a given microbatch
  const Mesh& mesh = flags.base.mesh;
  request.axes = {mesh.tensor, mesh.context, 0, flags.pipeline, mesh.data};
  if (flags.base.recompute != "any") request.recompute = {parse_recompute(flags.base.recompute)};
  if (flags.base.layout != "any") request.orders = {parse_mesh_order(flags.base.layout)};
  if (!flags.schedules.empty() || !flags.base.options.empty()) {
    std::vector<std::string> names = flags.schedules;
    if (names.empty()) names = {"all"};
    request.schedules = parse_entries(names, parse_options(flags.base.options), true);
  }
  if (flags.budget > 0) request.budget = flags.budget;
  return request;
}

Planned search(const PlanFlags& flags, PlanRequest request, const std::string& label) {
  Planned planned{flags, std::move(request), {}};
  planned.bound_s = training_bound(planned.request.problem).seconds;
  const std::size_t threads = flags.threads > 0 ? flags.threads : all_threads();
  const auto parallel = [&](std::size_t count, auto&& run) { on_threads(threads, count, run); };
  std::optional<Progress<>> progress;
  planned.result = plan(planned.request, shipped(), parallel, [&](const PlanProgress& now) {
    if (!progress) progress.emplace(ProgressOptions{.label = label, .total = now.groups, .enabled = progress_is_shown()});
    progress->advance(now.done - progress->done());
    return interrupted == 0;
  });
  return planned;
}

/// The best plan that the framework can run: the best of all, or of a search among what it can.
Emitted emit(Framework framework, const Planned& planned) {
  std::vector<std::string> cannot = cannot_run_best(framework, planned);
  if (cannot.empty()) return {framework, {}, planned};
  Emitted emitted{framework, std::move(cannot),
                  search(planned.flags, request_for(framework, planned), concat("planning for ", title(framework)))};
  if (!emitted.planned.result.plans.empty()) return emitted;
  throw InputError(concat("--emit: nothing that ", title(framework),
                          " can run fits the devices' memory; the best plan is none because ", emitted.cannot.front()));
}

/// Numbers of devices by doubling, from the first of --devices FROM..TO to the last.
std::vector<int> devices_of(const PlanFlags& flags, int node) {
  const auto dots = flags.devices.find("..");
  const auto number = [&](const std::string& text) { return parse_whole<int>(text, "--devices", 1); };
  const int from = number(flags.devices.substr(0, dots));
  const int to = dots == std::string::npos ? from : number(flags.devices.substr(dots + 2));
  if (to < from || from % node != 0) {
    throw InputError(concat("--devices ", quote(one_line(flags.devices)), " must be FROM..TO, multiples of the ", node,
                            " devices of a node, such as ", node, "..", 8 * node));
  }
  std::vector<int> counts;
  for (std::int64_t count = from; count <= to; count *= 2) counts.push_back(static_cast<int>(count));
  return counts;
}

/// --devices: the best for each number of them.
int run_devices(const PlanFlags& flags, std::optional<OutputFile>& file, ReportFile& report) {
  const Cluster cluster = resolve_plan(flags).problem.cluster;
  std::vector<Planned> all;
  for (const int devices : devices_of(flags, cluster.devices_in(NodeId{0}))) {
    PlanFlags one = flags;
    one.base.cluster = with_nodes(flags.base.cluster, devices / cluster.devices_in(NodeId{0}));
    one.top = 1;
    all.push_back(search(one, resolve_plan(one), concat("planning ", devices)));
    if (all.back().result.stopped) break;
  }
  bool any = false;
  for (const Planned& one : all) any = any || !one.result.plans.empty();
  if (file || report) {
    Json json;
    json["by_devices"] = Json::array();
    json["pareto"] = Json::array();
    const Summary* least = nullptr;  // of those with fewer devices, the fastest
    for (const Planned& one : all) {
      json["by_devices"].push_back(result_json(one));
      if (one.result.plans.empty() || (least != nullptr && one.best().makespan >= least->makespan)) continue;
      least = &one.best();
      for (const auto& entry : json["by_devices"].back()["pareto"]) json["pareto"].push_back(entry);
    }
    if (file) {
      (*file)(json.dump(2) + "\n");
      file->finish();
    }
    if (report) write_plan_page(report, all, std::move(json));
  }
  if (!any_standard_output({{"--json", flags.base.json}, {"--report", flags.base.report}})) {
    write_output("-", devices_table(all));
  }
  return any ? ok : findings;
}

}  // namespace

std::int64_t batch_of_tokens(const PlanFlags& flags) {
  if (flags.tokens == 0) return flags.base.global_batch;
  if (flags.base.global_batch > 0) throw InputError("--tokens and --global-batch say the same in two ways; give one of them");
  const std::int64_t sequence = std::max<std::int64_t>(1, flags.base.sequence);
  if (flags.tokens % sequence == 0) return flags.tokens / sequence;
  const std::int64_t below = flags.tokens / sequence * sequence;
  throw InputError(concat("--tokens ", flags.tokens, " are not whole sequences of ", sequence, " tokens; the nearest are ",
                          below > 0 ? concat(below, " and ") : std::string{}, below + sequence));
}

int run_plan(const PlanFlags& given) {
  PlanFlags flags = given;
  std::optional<TodayFile> today_file;
  std::optional<Framework> framework;
  if (!flags.devices.empty() && !(flags.today.empty() && flags.emit.empty())) {
    throw InputError("--today and --emit are of one number of devices; leave out --devices");
  }
  const std::initializer_list<OutputFlag> paths{{"--json", flags.base.json}, {"--report", flags.base.report}};
  check_outputs(paths);
  if (!flags.today.empty()) framework = (today_file = read_today(flags))->framework;
  if (!flags.emit.empty()) framework = parse_framework(flags.emit);
  if (framework) take_best_switches(*framework, flags);
  std::optional<OutputFile> file;
  if (!flags.base.json.empty()) file.emplace(flags.base.json);
  ReportFile report{flags.base.report};
  const InterruptEndsSearch interrupt;
  if (!flags.devices.empty()) return run_devices(flags, file, report);
  const std::vector<Planned> all{search(flags, resolve_plan(flags), "planning")};
  const Planned& planned = all.front();
  std::optional<Today> today;
  if (today_file) today = simulate_today(planned, *std::move(today_file));
  std::optional<Emitted> emitted;
  if (!flags.emit.empty() && !planned.result.plans.empty()) emitted = emit(*framework, planned);
  if (file || report) {
    Json json = result_json(planned);
    if (today) json["today"] = today_json(*today, planned);
    if (emitted) json["emitted"] = emitted_json(*emitted, planned);
    if (file) {
      (*file)(json.dump(2) + "\n");
      file->finish();
    }
    if (report) write_plan_page(report, all, std::move(json));
  }
  if (!any_standard_output(paths)) {
    std::string text = emitted ? emitted_text(*emitted, planned) : result_text(planned);
    if (today && !emitted) text += "\n" + today_text(*today, planned);
    write_output("-", text);
  }
  if (!planned.result.plans.empty()) return ok;
  std::string nearest;
  if (!planned.result.closest.empty()) {
    nearest = concat("; the nearest needs ", format_memory(planned.result.closest[0].summary.fullest()), " a device");
  }
  std::fputs(fmt::format("tawpipe: nothing in the space fits the devices' memory{}; try more devices{}\n", nearest,
                         planned.request.problem.usable_memory < 1 ? ", a larger --usable-memory" : "")
                 .c_str(),
             stderr);
  return findings;
}

}  // namespace tawpipe::sim
