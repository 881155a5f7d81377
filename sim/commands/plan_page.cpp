// The page of `tawpipe plan`: its plans, and the timelines of the best few.
// Not: the contents of the page (tawpipe/report/).
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "plan_report.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

namespace {

/// Timelines on one page, and the tasks of one: more are slow to look at.
constexpr std::size_t max_drawn = 3;
constexpr std::int64_t max_plan_tasks = 150'000;

std::string label_of(const Plan& plan) { return concat(plan.choice.schedule, " ", layout_text(plan)); }

/// The drawn part of a plan, for a sentence; "" if all of it is.
std::string drawn_part(const Summary& summary) {
  if (summary.folding.factor <= 1) return {};
  return fmt::format("Drawn: {} of {} devices, each for {} that do the same at the same time; without what moves between nodes.",
                     format_count(summary.folding.ranks), format_count(summary.ranks), format_count(summary.folding.factor));
}

}  // namespace

void write_plan_page(ReportFile& file, const std::vector<Planned>& all, nlohmann::ordered_json answer, bool draws) {
  const Planned& first = all.front();
  Problem asked = first.request.problem;
  ReportPage page{
      .command = "plan",
      .title = concat("Plans for ", asked.model->name, " on ", all.size() > 1 ? "more and more of " : "", asked.cluster.name()),
      .problem = describe_question(asked),
      .answer = std::move(answer)};
  std::vector<Problem> problems;
  std::vector<Prediction> predictions;
  problems.reserve(max_drawn);
  predictions.reserve(max_drawn);
  const auto draw = [&](const Planned& planned, const Plan& plan) {
    const Folding& folding = plan.summary.folding;
    const std::int64_t tasks = folding.factor > 1 ? folding.tasks : plan.summary.tasks;
    if (tasks > max_plan_tasks) {
      page.notes.push_back(
          fmt::format("{} is not drawn: its {} tasks are too many for this page; its command with --trace has them.",
                      label_of(plan), format_count(tasks)));
      return;
    }
    if (predictions.size() == max_drawn) return;
    problems.push_back(problem_of(planned.request, plan.layout, plan.choice));
    predictions.push_back(predict(problems.back()));
    page.entries.push_back(ReportEntry::of(label_of(plan), predictions.back(), problems.back()));
    page.entries.back().note = drawn_part(predictions.back().summary);
  };
  if (!draws) page.notes.emplace_back("The search was stopped: no timeline is drawn; the plans' commands with --report do.");
  for (const Planned& planned : all) {
    if (!draws) break;
    const std::size_t shown = std::min(planned.result.plans.size(), static_cast<std::size_t>(planned.flags.top));
    for (std::size_t i = 0; i < std::min(shown, max_drawn); ++i) draw(planned, planned.result.plans[i]);
  }
  file.write(page);
}

}  // namespace tawpipe::sim
