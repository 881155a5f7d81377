// Entry points of `tawpipe plan` and `tawpipe bound`.
// Not: their flags (../search_flags.cpp) nor their answers (tawpipe/answers/).
#pragma once

#include <string>

#include "tawpipe/answers/plan_question.hpp"

namespace tawpipe::sim {

using namespace answers;

/// A question, and where the answer goes.
struct PlanFlags : PlanQuestion {
  std::string json;    ///< a file, or "-" for standard output
  std::string report;  ///< a file
};

/// A lower bound on the time of any schedule for the problem of the flags. @throws InputError  for
/// anything missing or impossible.
int run_bound(const PlanFlags& flags);

/// The fastest way to train that the flags leave open. @throws InputError  for anything missing or
/// impossible.
int run_plan(const PlanFlags& flags);

}  // namespace tawpipe::sim
