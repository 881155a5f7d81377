// Plans that frameworks run, added to those of a search among all.
// Not: the plan as a framework's settings (plan_frameworks.hpp).
#pragma once

#include <string>
#include <vector>

#include "plan_answer.hpp"

namespace tawpipe::sim {

/// Adds what another search found: no schedule of a plan is among the losses.
void add_plans(PlanResult& result, std::vector<Plan> found);
/// The option "chunks" of a schedule; empty: it has none.
std::string chunks_of(const ScheduleChoice& choice);
/// Adds the fastest plans with the options that frameworks have for their schedules: of each schedule the
/// search keeps the fastest options, which are often nearly equal to those, and none that they can run.
void add_framework_options(const PlanRequest& request, PlanResult& result);
/// Adds the best plans that Megatron-LM runs where it does not run the best of all, from a search among
/// them alone: the search among all may have ended before it came to them.
void add_framework_plans(Planned& planned, const PlanWatch& watch);

}  // namespace tawpipe::sim
