// What `tawpipe plan` prints: the best plans, their limits, and why the others are slower.
// Not: its JSON (planned.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/plan_frameworks.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::inline v0::answers {

namespace {

/// The best plan of each schedule, the fastest first, and of its own schedule the one that is chosen;
/// with a single schedule all of its plans.
std::vector<const Plan*> distinct_plans(const Planned& planned) {
  std::vector<const Plan*> all;
  std::vector<const Plan*> distinct;
  const Plan* const use = planned.result.plans.empty() ? nullptr : &planned.use();
  for (const Plan& plan : planned.result.plans) {
    all.push_back(&plan);
    const auto same = [&](const Plan* one) { return one->choice.schedule == plan.choice.schedule; };
    const bool stands_for_use = &plan != use && !distinct.empty() && plan.choice.schedule == use->choice.schedule;
    if (&plan == use || (!stands_for_use && std::none_of(distinct.begin(), distinct.end(), same))) distinct.push_back(&plan);
  }
  return distinct.size() + planned.result.losses.size() > 1 ? distinct : all;
}
/// Those that the text shows.
std::vector<const Plan*> shown_plans(const Planned& planned) {
  std::vector<const Plan*> shown = distinct_plans(planned);
  shown.resize(std::min(shown.size(), static_cast<std::size_t>(planned.question.top)));
  return shown;
}

/// The time of an iteration, marked where it is estimated.
std::string time_text(const Plan& plan) { return concat(plan.estimated ? "~" : "", format_duration(plan.summary.makespan)); }
std::string estimates_text(bool any) {
  return any ? "~: estimated from steps with fewer microbatches; tawpipe simulate runs all of them\n" : "";
}

/// A line for each reason that schedules are not among those shown.
std::string others_text(const Planned& planned, const Summary& use) {
  std::vector<std::pair<std::string, std::string>> lines;  // of a reason, the schedules
  const auto add = [&](const std::string& reason, const std::string& schedule) {
    const auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == reason; });
    at == lines.end() ? lines.emplace_back(reason, schedule), void() : void(at->second += ", " + schedule);
  };
  const Duration best = use.makespan;
  const std::vector<const Plan*> plans = distinct_plans(planned);
  for (std::size_t i = shown_plans(planned).size(); i < plans.size(); ++i) {
    const Summary& summary = plans[i]->summary;
    if (plans[i]->choice.schedule == planned.result.plans.front().choice.schedule) break;  // a single one
    add(concat(format_duration(summary.makespan), ", ", loses_by(use, summary)), plans[i]->choice.schedule);
  }
  for (const PlanLoss& loss : planned.result.losses) {
    std::string reason = "does not exist on this cluster";
    const double longer = loss.least ? *loss.least / best - 1 : 0;
    if (longer < -plan_tolerance) {
      reason = concat("at least ", format_duration(*loss.least), "; not all was looked at");
    } else if (loss.least) {
      reason = concat("at least ", format_duration(*loss.least), ", ", format_percent(std::max(0.0, longer)), " slower");
    } else if (loss.memory) {
      reason = concat("needs at least ", format_memory(*loss.memory));
    }
    add(reason, loss.schedule);
  }
  std::string text;
  for (const auto& [reason, schedules] : lines) text += concat(schedules, ": ", reason, "\n");
  return text.empty() ? text : "\n" + text;
}

/// What one change would buy, a line each; those that buy nothing share one.
std::string changes_text(const Planned& planned) {
  std::string text;
  std::string none;
  for (const Planned::Change& change : planned.changes) {
    const double less = 1 - change.makespan / planned.best().makespan;
    if (less >= 0.0005) {
      text += concat(change.what, ": -", format_percent(less), "\n");
    } else {
      none += concat(none.empty() ? "" : ", ", change.what);
    }
  }
  if (!none.empty()) text += concat("no gain: ", none, "\n");
  return text.empty() ? text : "\nwith the fastest plan's schedule and mesh, of its time\n" + text;
}

std::string plans_table(const Planned& planned, const Verdict& verdict, const TableStyle& style) {
  std::vector<TableColumn> columns{{"layout"},
                                   {"schedule"},
                                   {"step time", Align::right},
                                   {"80 %", Align::right},
                                   {"memory", Align::right},
                                   {"runs in"},
                                   {"MFU", Align::right},
                                   {"tokens/s/device", Align::right},
                                   {"microbatch", Align::right},
                                   {"recompute"},
                                   {"compute", Align::right},
                                   {"exposed", Align::right},
                                   {"waiting", Align::right},
                                   {"options"}};
  Table table{columns};
  for (const Plan* const one : shown_plans(planned)) {
    const Plan& plan = *one;
    const Shares shares = shares_of(plan.summary);
    const RunsWithError found = runs_with_error(planned, plan);
    table.row({layout_text(plan), plan.choice.schedule, time_text(plan), interval_text(plan.summary.makespan, found.error),
               format_memory(plan.summary.fullest()), found.runs.empty() ? "here only" : titles(found.runs, ", "),
               format_percent(plan.summary.mfu), format_tokens(plan.summary.tokens_per_device_per_second),
               std::to_string(plan.layout.microbatch_size), recompute_text(planned.request, plan), format_percent(shares.compute),
               format_percent(shares.exposed), format_percent(shares.waiting), options_text(plan)},
              one == &planned.result.plans[verdict.use] ? Emphasis::bold : Emphasis::none);
  }
  return table.str(style);
}

std::string searched_text(const PlanResult& result) {
  const PlanCounts& counts = result.counts;
  if (counts.layouts == 0) return "stopped: the best so far\n";
  std::string text = fmt::format(
      "searched {} layouts x schedules = {} candidates; {} cannot be, {} need too much memory, {} cannot be faster by a bound, "
      "{} simulated",
      format_count(counts.layouts), format_count(counts.candidates), format_count(counts.impossible), format_count(counts.memory),
      format_count(counts.time), format_count(counts.simulated));
  if (counts.left > 0) text += fmt::format(", {} left", format_count(counts.left));
  text += '\n';
  if (result.plans.empty()) return text;
  if (result.stopped) text += "stopped: the best so far\n";
  if (result.timed_out) text += "ended by --seconds: the best so far\n";
  if (result.proven_best) return text + "proven: nothing in the space is faster\n";
  return text + fmt::format("not proven: what was left or estimated may be up to {} faster; a larger --budget looks at more\n",
                            format_percent(result.gap()));
}

}  // namespace

std::string verdict_text(const Planned& planned, const Verdict& verdict, const Today* today) {
  const std::vector<Plan>& plans = planned.result.plans;
  const Plan& use = plans[verdict.use];
  const Duration time = use.summary.makespan;
  std::string text =
      concat("Use ", told_text(planned.request, use), ": ", time_text(use), " a step (80 %: ", interval_text(time, verdict.error),
             ")", verdict.runs.empty() ? "; no framework runs it" : concat(", in ", titles(verdict.runs, " or ")));
  if (today != nullptr) {
    const double less = 1 - time / today->plan.summary.makespan;
    const std::vector<std::string> changes = changes_from(*today, planned, use);
    text += less <= plan_tolerance ? std::string{"; nothing faster than today's run was found"}
                                   : concat(", ", format_percent(less), " less than today",
                                            changes.empty() ? "" : concat("; change ", join(changes, ", ")));
  }
  text += ".\n";
  std::vector<std::string> alike;
  std::vector<std::size_t> listed;  // one for each schedule and layout, whatever its chunks
  for (const std::size_t i : verdict.alike) {
    const std::string one = concat(plans[i].choice.schedule, " ", layout_text(plans[i]));
    const bool known = std::any_of(listed.begin(), listed.end(), [&](std::size_t other) {
      return plans[i].choice.schedule == plans[other].choice.schedule && plans[i].layout == plans[other].layout;
    });
    if (known || one == concat(use.choice.schedule, " ", layout_text(use)) ||
        std::find(alike.begin(), alike.end(), one) != alike.end())
      continue;
    listed.push_back(i);
    alike.push_back(one);
  }
  if (!alike.empty()) {
    const std::size_t more = alike.size() - std::min<std::size_t>(alike.size(), 4);
    alike.resize(alike.size() - more);
    const Summary& next = plans[verdict.alike.front()].summary;
    text += fmt::format("Within {}, which predictions do not tell apart: {}{}. {} would.\n", format_percent(verdict.apart),
                        join(alike, ", "), more > 0 ? fmt::format(" and {} more", more) : std::string{},
                        separating_measurement(use.summary, next));
  }
  if (verdict.beyond) {
    const Plan& beyond = plans[*verdict.beyond];
    const std::vector<Framework> runs = runs_with_error(planned, beyond).runs;
    text += fmt::format(
        "{} is faster and {}: {}, {} less, {} the {} error of comparing the two.\n", told_text(planned.request, beyond),
        runs.empty() ? "no framework runs it" : concat("runs in ", titles(runs, " or "), " with other kernels than predicted"),
        time_text(beyond), format_percent(1 - beyond.summary.makespan / time),
        verdict.beyond_is_told_apart() ? "more than" : "within", format_percent(verdict.beyond_error));
  }
  return text;
}

std::string result_text(const Planned& planned, const TableStyle& style, const Today* today) {
  const PlanResult& result = planned.result;
  const std::string question = describe_question(planned.request.problem) + "\n";
  if (result.plans.empty()) return question + searched_text(result);
  const Verdict verdict = planned.verdict();
  const Plan& use = result.plans[verdict.use];
  std::string text = verdict_text(planned, verdict, today) + "\n" + question;
  const std::vector<const Plan*> others = shown_plans(planned);
  text += plans_table(planned, verdict, style) + "\n";
  text += estimates_text(std::any_of(others.begin(), others.end(), [](const Plan* plan) { return plan->estimated; }));
  const Shares shares = shares_of(use.summary);
  text += fmt::format("speed  {} tokens a day, {} a device; limited by {} ({} computing, {} exposed, {} waiting)\n",
                      format_tokens(use.summary.tokens_per_day()), format_flops_rate(use.summary.flops_per_device),
                      limit_of(use.summary), format_percent(shares.compute), format_percent(shares.exposed),
                      format_percent(shares.waiting));
  text += fmt::format("memory {} full{}\n", format_percent(memory_share(use.summary), 0),
                      use.summary.beside ? concat("; ", device_memory_text(use.summary)) : std::string{});
  text += fmt::format("error  {}\n", error_text(verdict.error));
  text += fmt::format("bound  no schedule takes less than {}; this takes {}\n", format_duration(seconds(planned.bound_s)),
                      format_more(to_seconds(use.summary.makespan) / planned.bound_s));
  for (const Planned::Format& format : planned.formats) {
    if (format.products == planned.question.job.text("gemm-format")) continue;
    text += fmt::format("GEMMs in {}: {}\n", format.products,
                        format.makespan ? concat(format_percent(*format.makespan / planned.best().makespan - 1), " slower")
                                        : std::string{"nothing fits"});
  }
  if (const Price price = price_of(planned.question.job); price.amount > 0)
    text += fmt::format("price  {} a billion tokens\n", money_text(price_of_tokens(price.amount, use.summary), price.currency));
  text += "\n";
  for (const Plan* const other : others) {
    if (other != &use)
      text += fmt::format("{} {}: {}\n", other->choice.schedule, layout_text(*other), loses_by(use.summary, other->summary));
  }
  Bytes shown = use.summary.fullest();
  for (const std::size_t i : result.pareto()) {
    const Plan& plan = result.plans[i];
    if (plan.summary.fullest() / shown > 0.95) continue;  // not worth a line
    shown = plan.summary.fullest();
    text += fmt::format("less memory: {} by {}, {}\n", format_memory(plan.summary.fullest()), told_text(planned.request, plan),
                        loses_by(use.summary, plan.summary));
  }
  text += run_text(planned);
  return text + others_text(planned, use.summary) + changes_text(planned) + "\n" + searched_text(result) + "\n" +
         command_of(planned.question, planned.request, use) + "\n";
}

std::string devices_table(const std::vector<Planned>& all, const TableStyle& style) {
  const Price price = price_of(all.front().question.job);
  const bool priced = price.amount > 0;
  std::vector<TableColumn> columns{{"devices", Align::right},         {"step time", Align::right}, {"tokens/day", Align::right},
                                   {"tokens/s/device", Align::right}, {"worth", Align::right},     {"memory", Align::right}};
  if (priced) columns.push_back({"price/Gtoken", Align::right});
  if (wants_run(all.front().question.job))
    columns.insert(columns.end(), {{"run", Align::right}, {"goodput", Align::right}, {"cost", Align::right}});
  columns.insert(columns.end(), {{"schedule"}, {"layout"}, {"recompute"}, {"options"}});
  Table table{columns};
  double first = 0;
  for (const Planned& one : all) {
    std::vector<std::string> cells{format_count(one.request.problem.cluster.ranks())};
    if (one.result.plans.empty()) {
      cells.push_back("out of memory");
      table.row(std::move(cells), Emphasis::dim);
      continue;
    }
    const Plan& plan = one.result.plans.front();
    const double speed = plan.summary.tokens_per_device_per_second;
    if (first <= 0) first = speed;
    cells.insert(cells.end(), {time_text(plan), format_tokens(plan.summary.tokens_per_day()), format_tokens(speed),
                               format_percent(speed / first, 0), format_memory(plan.summary.fullest())});
    if (priced) cells.push_back(fmt::format("{:.2f}", price_of_tokens(price.amount, plan.summary)));
    for (std::string& cell : run_cells(one)) cells.push_back(std::move(cell));
    cells.insert(cells.end(), {plan.choice.schedule, layout_text(plan), recompute_text(one.request, plan), options_text(plan)});
    table.row(std::move(cells));
  }
  const bool estimated = std::any_of(
      all.begin(), all.end(), [](const Planned& one) { return !one.result.plans.empty() && one.result.plans.front().estimated; });
  return table.str(style) + "\nworth: of what a device does in the first line, what each does here\n" + estimates_text(estimated);
}

}  // namespace tawpipe::answers
