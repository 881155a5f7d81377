// `tawpipe improve`: a faster task graph than any schedule of the catalogue, by local search.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../interrupt.hpp"
#include "../parallel.hpp"
#include "../terminal_text.hpp"
#include "entries.hpp"
#include "instruments.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/improve.hpp"
#include "tawpipe/search/nearby_options.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/verify/validate.hpp"

namespace tawpipe::sim {

namespace {

/// Schedules of more tasks are timed a few times a second at best.
constexpr std::size_t max_improved_tasks = 1'000'000;

struct Start {
  ScheduleChoice choice;
  Prediction prediction;
};

/// The best of the schedules that the flags name, with all devices. @throws InputError  if none
/// fits
Start catalogue_best(Problem& problem, const std::vector<ScheduleChoice>& all) {
  std::vector<Chosen> found(all.size());
  in_parallel(all.size(), "simulating", [&](std::size_t i) { found[i] = choose(problem, all[i]); });
  const Chosen& best = found[comparison_order(found)[0]];
  if (!best.summary.fits()) {
    throw InputError("no schedule fits the devices' memory, so there is nothing to improve; tawpipe compare says what would fit");
  }
  problem = chosen_problem(problem, best);
  problem.fold = Fold::off;
  Start start{problem.schedules[0], predict(problem)};
  if (const std::size_t tasks = start.prediction.schedule.tasks().size(); tasks > max_improved_tasks) {
    throw InputError(concat("the schedule has ", tasks, " tasks, and one of at most ", max_improved_tasks,
                            " is improved; take fewer microbatches (--global-batch) or devices: a pattern repeats"));
  }
  return start;
}

/// Options next to those of the start, as long as one is faster.
std::vector<ImproveStep> improve_options(Problem& problem, Start& start) {
  std::vector<ImproveStep> steps;
  while (interrupted == 0) {
    const std::vector<ScheduleChoice> near = nearby_choices(start.choice, start.prediction.schedule, shipped());
    std::vector<std::optional<Prediction>> found(near.size());
    in_parallel(near.size(), "options", [&](std::size_t i) {
      Problem one = problem;
      one.schedules = {near[i]};
      try {
        found[i] = predict(one);
      } catch (const InputError&) {  // options that exclude each other, or an impossible size
      }
    });
    std::size_t best = near.size();
    Duration least = start.prediction.summary.makespan;
    for (std::size_t i = 0; i < near.size(); ++i) {
      if (!found[i] || !found[i]->fits() || found[i]->summary.makespan >= least) continue;
      best = i;
      least = found[i]->summary.makespan;
    }
    if (best == near.size()) break;
    start = {near[best], *std::move(found[best])};
    problem.schedules = {start.choice};
    steps.push_back({concat("options ", entry_label(start.choice)), 1, least});
  }
  return steps;
}

Improvement improve_tasks(const Problem& problem, const Schedule& start, std::int64_t budget) {
  ImproveOptions options;
  if (budget > 0) options.budget = budget;
  for (int r = 0; r < start.ranks(); ++r) options.places.push_back(number(problem.cluster.node_of(Rank{r})));
  Progress progress{progress_line("improving", options.budget)};
  return improve(
      start, options,
      [&](const Schedule& one) {
        return std::visit([&](const auto& cost) { return simulate(one, problem.cluster, cost); }, problem.cost);
      },
      [&](const Schedule& one, const Timeline& timeline) {
        return fits_memory(peak_memory(one, timeline), problem.cluster, problem.usable_memory) && validate(one).ok();
      },
      [&](const ImproveProgress& now) {
        progress.advance(std::min(now.timed, options.budget) - progress.done());
        return interrupted == 0;
      });
}

}  // namespace

int run_improve(const ImproveRequest& request) {
  const Request& base = request.base;
  std::vector<std::string> named;
  if (!base.schedule.empty()) named.push_back(base.schedule);
  const std::vector<ScheduleChoice> all = compared_entries(base, named, true);
  Problem problem = resolve(base, true, nullptr, "auto");
  problem.fold = Fold::automatic;
  if (!problem.noise.is_none()) throw InputError("a search needs the same times each time; leave the noise out");
  check_outputs({{"--json", base.json}, {"--out", request.out}});
  std::optional<OutputFile> json_file, out;
  if (!base.json.empty()) json_file.emplace(base.json);
  if (!request.out.empty()) out.emplace(request.out);
  const InterruptEndsSearch interrupt;
  Start start = catalogue_best(problem, all);
  const Duration before = start.prediction.summary.makespan;
  const std::string first = entry_label(start.choice);
  std::vector<ImproveStep> steps = improve_options(problem, start);
  Improvement found = improve_tasks(problem, start.prediction.schedule, request.budget);
  steps.insert(steps.end(), found.steps.begin(), found.steps.end());
  const Prediction last = predict(problem, std::move(found.schedule));
  const Duration after = last.summary.makespan;
  const double gain = 1 - to_seconds(after) / to_seconds(before);
  const std::optional<double> bound = bound_of(problem);
  if (out) {
    write_schedule_json(last.schedule, [&](std::string_view text) { (*out)(text); });
    out->finish();
  }
  if (json_file) {
    nlohmann::ordered_json json;
    json["cluster"] = problem.cluster.name();
    add_notes(json, problem);
    json["start"] = first;
    json["start_s"] = to_seconds(before);
    json["makespan_s"] = to_seconds(after);
    json["gain"] = gain;
    add_gap(json, after, bound);
    json["tried"] = found.tried;
    json["finished"] = found.finished;
    json["steps"] = nlohmann::ordered_json::array();
    for (const ImproveStep& step : steps) {
      json["steps"].push_back({{"what", step.what}, {"count", step.count}, {"makespan_s", to_seconds(step.makespan)}});
    }
    (*json_file)(json.dump(2) + "\n");
    json_file->finish();
  }
  if (base.json == "-" || is_standard_output(request.out)) return ok;
  Table table{{{"change"}, {"times", Align::right}, {"makespan", Align::right}, {"faster by", Align::right}}};
  table.row({first, "", format_duration(before, 5), ""});
  for (const ImproveStep& step : steps) {
    table.row({step.what, std::to_string(step.count), format_duration(step.makespan, 5),
               format_percent(1 - to_seconds(step.makespan) / to_seconds(before), 2)});
  }
  std::string text = describe(problem) + "\n" + table.str(terminal_style());
  text += fmt::format("{} changes to the tasks were tried, each that is kept is valid and fits; {}.\n", found.tried,
                      found.finished     ? "no other is faster"
                      : interrupted != 0 ? (interrupted == SIGINT ? "Ctrl-C ended the search" : "SIGTERM ended the search")
                                         : "the budget ended the search (--budget)");
  if (bound) text += "\n" + gap_text(last.summary, *bound);
  print(text);
  return ok;
}

}  // namespace tawpipe::sim
