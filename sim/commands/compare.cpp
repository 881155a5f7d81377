// `tawpipe compare`: several schedules on one problem, best first.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "../mesh_request.hpp"
#include "../parallel.hpp"
#include "../report_file.hpp"
#include "../request.hpp"
#include "../terminal_text.hpp"
#include "advice.hpp"
#include "entries.hpp"
#include "fitting_search.hpp"
#include "output.hpp"
#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/answers/interval.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/choose.hpp"

namespace tawpipe::sim {

namespace {

/// Runs the entries on all cores. Results keep the entries' order.
std::vector<Chosen> run_all(const std::vector<Problem>& problems, const std::vector<ScheduleChoice>& all) {
  std::vector<Chosen> results(all.size());
  in_parallel(all.size(), "simulating", [&](std::size_t i) { results[i] = choose(problems[i], all[i]); });
  return results;
}

/// The first and the runner-up, in a sentence.
std::string verdict_text(const Problem& problem, const std::vector<Chosen>& results, const std::vector<std::size_t>& order) {
  const Chosen& first = results[order[0]];
  const auto error_of = [&](const Chosen& one) {
    return error_of_problem(chosen_problem(problem, one), one.summary, one.choice, one.recompute);
  };
  const std::optional<RunsWithError> error = error_of(first);
  std::string text = concat(first.summary.fits() ? "Use " : "Nothing fits; nearest is ", detail::name_among(results, order[0]),
                            ": ", step_text(first.summary.makespan, error));
  if (order.size() > 1 && results[order[1]].summary.fits()) {
    const Chosen& next = results[order[1]];
    const double more = next.summary.makespan / first.summary.makespan - 1;
    text += concat("; ", detail::name_among(results, order[1]), " takes ", format_more(1 + more));
    const std::optional<RunsWithError> other = error_of(next);
    const bool one_stack = error && other && error->as_predicted == other->as_predicted && !error->as_predicted.empty();
    const double apart = one_stack        ? pair_error(error->error.like)
                         : error && other ? difference_error(error->error, other->error)
                                          : 0.0;
    if (std::log1p(more) < apart) text += ", which predictions do not tell apart";
  }
  return text + ".\n\n";
}

/// The page of all results, best first; each is simulated again, with all of its devices.
void write_report(ReportFile& file, Problem problem, const std::vector<Chosen>& results, nlohmann::ordered_json answer,
                  std::string verdict) {
  std::vector<Prediction> predictions;
  predictions.reserve(results.size());
  ReportPage page{
      .command = "compare",
      .title = concat(results.size(), results.size() == 1 ? " schedule on " : " schedules on ", problem.cluster.name()),
      .problem = describe(problem),
      .answer = std::move(answer),
      .verdict = std::move(verdict)};
  problem.fold = Fold::off;
  for (const std::size_t i : comparison_order(results)) {
    predictions.push_back(predict(chosen_problem(problem, results[i])));
    page.entries.push_back(ReportEntry::of(entry_label(results[i].choice), predictions.back(), problem));
  }
  file.write(page);
}

}  // namespace

int run_compare(const Request& request, const std::vector<std::string>& schedules, bool baselines) {
  std::vector<ScheduleChoice> all = compared_entries(request, schedules, !baselines);
  Problem problem = resolve(request, true, nullptr, baselines ? "full" : "auto");
  refuse_idle_sharding(problem.sharding, problem.mesh);
  problem.fold = Fold::automatic;
  std::optional<OutputFile> file;  // opened first, so that an unwritable path is detected before the work
  if (!request.json.empty()) file.emplace(request.json);
  check_outputs({{"--json", request.json}, {"--report", request.report}});
  ReportFile report{request.report};
  const std::vector<Chosen> results = run_all(compared_problems(problem, all, baselines), all);
  const std::vector<std::size_t> order = comparison_order(results);
  const Summary& first = results[order[0]].summary;
  const bool any_fits = first.fits();
  problem.schedules = all;
  const std::optional<FittingLayout> fitting = any_fits ? std::nullopt : FittingSearch{problem}.wait();
  const std::optional<double> bound = bound_of(problem);
  if (file || report) {
    nlohmann::ordered_json json;
    json["cluster"] = problem.cluster.name();
    json["model"] = problem.model ? nlohmann::ordered_json(problem.model->name) : nlohmann::ordered_json{};
    add_cost(json, problem);
    json["results"] = nlohmann::ordered_json::array();
    for (const std::size_t i : order) json["results"].push_back(compared_json(problem, results[i], bound));
    if (fitting) {
      const Problem& fits = fitting->problem;
      json["fits"] = {{"tensor", fits.mesh.tensor},
                      {"context", fits.mesh.context},
                      {"data", fits.mesh.data},
                      {"expert_parallel", fits.mesh.whole_experts ? fits.mesh.expert_parts() : 1},
                      {"recompute", std::string{name(fits.recompute)}},
                      {"offload", name(fits.offload)},
                      {"shard_states", name(fits.sharding)},
                      {"microbatch", fitting->summary.microbatch_size},
                      {"loss_chunk", fits.model ? fits.model->loss_chunk : 0},
                      {"schedule", fitting->summary.schedule},
                      {"command", changed_command(request.arguments, changes_for(problem, *fitting))}};
    }
    if (file) {
      (*file)(json.dump(2) + "\n");
      file->finish();
    }
    if (report) write_report(report, problem, results, std::move(json), verdict_text(problem, results, order));
  }
  if (request.json != "-" && !is_standard_output(request.report)) {
    print(verdict_text(problem, results, order) + describe(problem) + "\n" +
          comparison_table(results, problem.recomputes.size() > 1, terminal_style()));
    for (const std::size_t i : order) {
      const Summary& summary = results[i].summary;
      if (summary.empty_stages == 0) continue;
      print(fmt::format("{}: {} of {} stages have no layer; their devices only pass on\n", summary.schedule, summary.empty_stages,
                        summary.stages));
    }
    if (bound && any_fits) print("\n" + gap_text(first, *bound));
    print(baselines ? "\nEach with standard options, or those of reproduce tawpipe; without --baselines each at its best.\n"
                    : "\nEach at its best: the options, microbatch and recomputation with which it is fastest and fits.\n");
  }
  if (!any_fits) {
    const std::string limit = problem.usable_memory < 1 ? format_percent(problem.usable_memory, 0) + " of " : std::string{};
    const std::string advice = fitting
                                   ? fitting_text(request, problem, *fitting)
                                   : concat("try more devices", problem.usable_memory < 1 ? ", a larger --usable-memory" : "");
    const std::string_view whose = first.out_of_memory.empty() ? "hosts'" : "devices'";
    std::fputs(fmt::format("tawpipe: no schedule fits {}the {} memory; {}\n", limit, whose, advice).c_str(), stderr);
  }
  return any_fits ? ok : findings;
}

}  // namespace tawpipe::sim
