// Searches that follow a search among all: with something in host memory, and for what frameworks run.
#include "plan_runnable.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/answers/threads.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0::answers {

PlanRequest with_offload_for_all(const Planned& planned, PlanRequest request, const Offload& offload) {
  request.seconds = planned.seconds_left();
  request.offload.clear();
  request.problem.offload = offload;
  return request;
}

PlanResult search_with_host(const Planned& planned, const PlanRequest& request, LayoutTimes& times, std::string_view what,
                            const PlanWatch& watch) {
  const std::size_t threads = planned.question.threads > 0 ? planned.question.threads : all_threads();
  const auto parallel = [&](std::size_t count, auto&& run) { on_threads(threads, count, run); };
  const auto search = [&](const PlanRequest& asked, std::string_view name) {
    return plan(
        asked, shipped(), parallel, [&](const PlanProgress& now) { return watch(now, planned, name); }, &times);
  };
  PlanResult result = search(request, what);
  if (result.stopped || result.timed_out || result.plans.empty() || !result.plans.front().layout.offload) return result;
  const Offload offload = *result.plans.front().layout.offload;
  PlanRequest asked = with_offload_for_all(planned, request, offload);
  asked.faster_than = result.plans.front().summary.makespan;
  PlanResult found = search(asked, concat(what, " with ", name(offload), " in host memory"));
  for (Plan& plan : found.plans) plan.layout.offload = offload;
  add_plans(result, std::move(found.plans));
  for (std::int64_t PlanCounts::*count : {&PlanCounts::candidates, &PlanCounts::impossible, &PlanCounts::memory,
                                          &PlanCounts::time, &PlanCounts::simulated, &PlanCounts::left})
    result.counts.*count += found.counts.*count;
  result.bound = std::min({result.bound, found.bound, result.plans.front().summary.makespan});
  result.proven_best = result.proven_best && found.proven_best;
  result.stopped = found.stopped;
  result.timed_out = found.timed_out;
  return result;
}

void add_plans(PlanResult& result, std::vector<Plan> found) {
  std::move(found.begin(), found.end(), std::back_inserter(result.plans));
  sort_plans(result.plans);
  std::erase_if(result.losses, [&](const PlanLoss& loss) {
    return std::any_of(result.plans.begin(), result.plans.end(),
                       [&](const Plan& plan) { return plan.choice.schedule == loss.schedule; });
  });
}

std::string chunks_of(const ScheduleChoice& choice) {
  const auto found = choice.options.find("chunks");
  return found == choice.options.end() ? std::string{} : found->second;
}

void add_framework_options(const PlanRequest& request, PlanResult& result) {
  constexpr std::size_t looked_at = 12;
  constexpr std::size_t added = 6;
  std::vector<Plan> found;
  for (std::size_t i = 0; i < std::min(looked_at, result.plans.size()) && found.size() < added; ++i) {
    Plan& plan = result.plans[i];
    const auto runs = [&](const ScheduleChoice& choice) {
      return runs_as_predicted(problem_of(request, plan.layout, choice), plan.layout, choice);
    };
    if (plan.estimated || !runs(plan.choice).empty()) continue;
    for (int f = 0; f < frameworks; ++f) {
      const std::vector<ScheduleChoice> choices = framework_schedules(static_cast<Framework>(f));
      const auto choice = std::find_if(choices.begin(), choices.end(), [&](const ScheduleChoice& one) {
        return one.schedule == plan.choice.schedule && chunks_of(one) == chunks_of(plan.choice) && !runs(one).empty();
      });
      if (choice == choices.end()) continue;
      Plan one{.layout = plan.layout, .choice = *choice, .bound = plan.bound, .summary = {}};
      one.summary = predict(problem_of(request, plan.layout, *choice), shipped()).summary;
      if (one.summary.makespan == plan.summary.makespan) {
        plan = std::move(one);
      } else if (one.summary.fits()) {
        found.push_back(std::move(one));
      }
      break;
    }
  }
  if (!found.empty()) add_plans(result, std::move(found));
}

void add_framework_plans(Planned& planned, LayoutTimes& times, const PlanWatch& watch) {
  PlanResult& result = planned.result;
  const auto runs_in_megatron = [&](const Plan& plan) {
    const std::vector<Framework> runs =
        runs_as_predicted(problem_of(planned.request, plan.layout, plan.choice), plan.layout, plan.choice);
    return std::find(runs.begin(), runs.end(), Framework::megatron) != runs.end();
  };
  if (!planned.question.schedules.empty() || result.plans.empty() || runs_in_megatron(result.plans.front())) return;
  PlanRequest asked = for_framework(Framework::megatron, planned.request);
  asked.problem = planned.request.problem;
  asked.seconds = planned.seconds_left();
  PlanResult found =
      search_with_host(planned, asked, times, "planning for Megatron-LM", [&](PlanProgress now, const Planned& of, auto name) {
        now.best = nullptr;  // the best of all is known
        return watch(now, of, name);
      });
  std::erase_if(found.plans, [&](const Plan& plan) {
    return std::any_of(result.plans.begin(), result.plans.end(), [&](const Plan& one) {
      return one.layout == plan.layout && one.choice.schedule == plan.choice.schedule &&
             one.choice.options == plan.choice.options;
    });
  });
  add_plans(result, std::move(found.plans));
  result.bound = std::min(result.bound, result.plans.front().summary.makespan);
  result.stopped = result.stopped || found.stopped;
  result.timed_out = result.timed_out || found.timed_out;
}

}  // namespace tawpipe::answers
