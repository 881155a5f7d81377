// How to train? A job of which the search chooses what is left open, and what else is to be known of it.
// Not: the request of the search itself (search/plan_space.hpp), nor the answer (answers/plan_answer.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/answers/job_question.hpp"

namespace tawpipe::inline v0::answers {

/// What is asked of plan. Each member is as the command's flag of the same name (docs/plan.md).
struct PlanQuestion {
  JobQuestion job = {};                     ///< what it does not say, or says as "any", is searched
  int pipeline = 0;                         ///< the schedule's own devices; 0: any
  std::int64_t tokens = 0;                  ///< the global batch in tokens; 0: as the job says
  std::vector<std::string> schedules = {};  ///< to choose from; none: planned_schedules()
  std::string devices = {};                 ///< FROM..TO: the best for each number of devices, by doubling
  std::vector<std::string> what_if = {};    ///< changes of the cluster, or "catalogue"
  std::string today = {};                   ///< a file of a framework's settings
  std::vector<std::string> args = {};       ///< of that script
  std::vector<std::string> env = {};        ///< NAME=VALUE, of that script
  bool strict = false;                      ///< unknown names in that file are errors
  std::int64_t vocab_size = 0;              ///< where that file names a tokenizer only
  std::string step_time = {};               ///< measured, of what that file runs
  std::string emit = {};                    ///< a framework
  int top = 5;                              ///< plans in JSON and text
  std::int64_t budget = 0;                  ///< 0: the search's own
  int seconds = 0;                          ///< by the clock; 0: no limit
  unsigned threads = 0;                     ///< 0: all cores
};

/// The global batch of `tokens` or of the job. @throws InputError  naming the nearest whole
/// numbers of sequences
std::int64_t batch_of_tokens(const PlanQuestion& question);

/// The job with a usual value in place of each that the search chooses.
JobQuestion usual_job(const PlanQuestion& question);

}  // namespace tawpipe::answers
