// Searches that follow a search among all: with something in host memory, and for what frameworks run.
// Not: the plan as a framework's settings (plan_frameworks.hpp).
#pragma once

#include <string>
#include <vector>

#include "tawpipe/answers/plan_answer.hpp"
#include "tawpipe/search/layout_bound.hpp"

namespace tawpipe::inline v0::answers {

/// The request with something of all candidates in host memory, and what is left of the time.
PlanRequest with_offload_for_all(const Planned& planned, PlanRequest request, const Offload& offload);
/// One search, and where its best plan has something in host memory another one for what is faster with
/// that for all.
/// @param times  of layouts, which searches for the same plan share  @param what  its name, for `watch`
PlanResult search_with_host(const Planned& planned, const PlanRequest& request, LayoutTimes& times, std::string_view what,
                            const PlanWatch& watch);
/// Adds what another search found: no schedule of a plan is among the losses.
void add_plans(PlanResult& result, std::vector<Plan> found);
/// The option "chunks" of a schedule; empty: it has none.
std::string chunks_of(const ScheduleChoice& choice);
/// Adds the fastest plans with the options that frameworks have for their schedules: of each schedule the
/// search keeps the fastest options, which are often nearly equal to those, and none that they can run.
void add_framework_options(const PlanRequest& request, PlanResult& result);
/// Adds the best plans that Megatron-LM runs where it does not run the best of all, from a search among
/// them alone: the search among all may have ended before it came to them.
void add_framework_plans(Planned& planned, LayoutTimes& times, const PlanWatch& watch);

}  // namespace tawpipe::answers
