// The page of `tawpipe plan`: its plans, and the timelines of the best few.
// Not: the contents of the page (tawpipe/report/).
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../request.hpp"
#include "plan_page.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/frameworks/written_job.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

namespace {

/// Timelines on one page, and the tasks of one: more are slow to look at.
constexpr std::size_t max_drawn = 3;
constexpr double max_plan_tasks = 60'000;

std::string label_of(const Plan& plan) { return concat(plan.choice.schedule, " ", layout_text(plan)); }

/// What of a plan is drawn, for a sentence; "" if all of it is. @param drawn  microbatches
std::string drawn_part(const Summary& summary, std::int64_t drawn, std::int64_t all) {
  std::string text;
  if (drawn < all)
    text = fmt::format("Drawn: a step of {} microbatches in place of {}. ", format_count(drawn), format_count(all));
  if (summary.folding.factor > 1) {
    text +=
        fmt::format("Drawn: {} of {} devices, each for {} that do the same at the same time; without what moves between nodes.",
                    format_count(summary.folding.ranks), format_count(summary.ranks), format_count(summary.folding.factor));
  }
  return text;
}

/// The plan's problem with as many microbatches as a page draws, whole rounds of its pipeline; none if that is too many.
std::optional<Problem> drawn_problem(const Planned& planned, const Plan& plan) {
  Problem problem = problem_of(planned.request, plan.layout, plan.choice);
  const Folding& folding = plan.summary.folding;
  const double tasks = static_cast<double>(folding.factor > 1 ? folding.tasks : plan.summary.tasks);
  if (tasks <= max_plan_tasks) return problem;
  const std::int64_t each = plan.layout.microbatch_size * plan.layout.mesh.data;
  const std::int64_t round = plan.layout.mesh.pipeline;
  const auto room = static_cast<std::int64_t>(max_plan_tasks / tasks * static_cast<double>(plan.summary.microbatches));
  problem.global_batch = room / round * round * each;
  return problem.global_batch > 0 ? std::optional{std::move(problem)} : std::nullopt;
}

/// The settings of each framework that runs what to use.
std::vector<std::pair<std::string, std::string>> settings_of_use(const Planned& planned) {
  std::vector<std::pair<std::string, std::string>> all;
  const Plan& use = planned.use();
  for (const Framework framework : planned.verdict().runs) {
    const std::string told = concat("tawpipe plan: ", told_text(planned.request, use));
    all.emplace_back(title(framework), write_job(framework, written_job(planned.request, use.layout, use.choice), {told}));
  }
  return all;
}

}  // namespace

void write_plan_page(ReportFile& file, const std::vector<Planned>& all, nlohmann::ordered_json answer, std::string verdict,
                     bool draws) {
  const Planned& first = all.front();
  Problem asked = first.request.problem;
  ReportPage page{
      .command = "plan",
      .title = concat("Plans for ", asked.model->name, " on ", all.size() > 1 ? "more and more of " : "", asked.cluster.name()),
      .problem = describe_question(asked),
      .answer = std::move(answer),
      .verdict = std::move(verdict)};
  if (all.size() == 1 && !first.result.plans.empty()) page.settings = settings_of_use(first);
  std::vector<Problem> problems;
  std::vector<Prediction> predictions;
  problems.reserve(max_drawn);
  predictions.reserve(max_drawn);
  const auto draw = [&](const Planned& planned, const Plan& plan) {
    if (predictions.size() == max_drawn) return;
    std::optional<Problem> problem = drawn_problem(planned, plan);
    if (!problem) {
      page.notes.push_back(
          fmt::format("{} is not drawn: a round of its pipeline has too many tasks for this page.", label_of(plan)));
      return;
    }
    problems.push_back(*std::move(problem));
    try {
      predictions.push_back(predict(problems.back()));
    } catch (const InputError& error) {  // of a schedule whose microbatches are not as many as wanted
      page.notes.push_back(concat(label_of(plan), " is not drawn: ", error.what()));
      problems.pop_back();
      return;
    }
    const Summary& summary = predictions.back().summary;
    page.entries.push_back(ReportEntry::of(label_of(plan), predictions.back(), problems.back()));
    page.entries.back().note = drawn_part(summary, summary.microbatches, plan.summary.microbatches);
  };
  if (!draws) page.notes.emplace_back("The search was stopped: no timeline is drawn; the plans' commands with --report do.");
  for (const Planned& planned : all) {
    if (!draws) break;
    const std::size_t shown = std::min(planned.result.plans.size(), static_cast<std::size_t>(planned.question.top));
    const std::size_t use = shown > 0 && all.size() == 1 ? planned.verdict().use : 0;
    if (use > 0) draw(planned, planned.result.plans[use]);
    for (std::size_t i = 0; i < std::min(shown, max_drawn); ++i) {
      if (i != use || use == 0) draw(planned, planned.result.plans[i]);
    }
  }
  file.write(page);
}

}  // namespace tawpipe::sim
