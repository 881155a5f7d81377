// Arguments and entry points of `tawpipe plan` and `tawpipe bound`.
// Not: its flags (../search_flags.cpp) nor the search (search/plan.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../request.hpp"
#include "tawpipe/search/fwd.hpp"

namespace tawpipe::sim {

struct PlanFlags {
  Request base;                        ///< what it does not say, or says as "any", is searched
  int pipeline = 0;                    ///< --pipeline-parallel; 0: any
  std::int64_t tokens = 0;             ///< --tokens: the global batch in tokens
  std::vector<std::string> schedules;  ///< --schedules; none: planned_schedules()
  std::string devices;                 ///< --devices FROM..TO
  std::vector<std::string> what_if;    ///< --what-if: changes of the cluster, or "catalogue"
  std::string today;                   ///< --today FILE, a framework's settings
  std::vector<std::string> args;       ///< --args: of that script
  std::vector<std::string> env;        ///< --env NAME=VALUE: of that script
  bool strict = false;                 ///< --strict: unknown names in it are errors
  std::int64_t vocab_size = 0;         ///< --vocab-size, where it names a tokenizer only
  std::string step_time;               ///< --step-time: measured, of what --today runs
  std::string emit;                    ///< --emit, a framework
  int top = 5;                         ///< --top: number of plans shown
  std::int64_t budget = 0;             ///< --budget; 0: the search's own
  int seconds = 0;                     ///< --seconds, by the clock; 0: no limit
  unsigned threads = 0;                ///< --threads; 0: all cores
};

/// The global batch of --tokens or --global-batch. @throws InputError  naming the nearest whole
/// numbers of sequences
std::int64_t batch_of_tokens(const PlanFlags& flags);

/// The flags with a usual value in place of each that the search chooses.
Request usual_request(const PlanFlags& flags);

/// A lower bound on the time of any schedule for the problem of the flags. @throws InputError  for
/// anything missing or impossible.
int run_bound(const PlanFlags& flags);

/// The fastest way to train that the flags leave open. @throws InputError  for anything missing or
/// impossible.
int run_plan(const PlanFlags& flags);

}  // namespace tawpipe::sim
