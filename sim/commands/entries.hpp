// What `compare` compares: schedules and their problems.
// Not: a schedule with its options as text (tawpipe/answers/schedule_entries.hpp).
#pragma once

#include <string>
#include <vector>

#include "../request.hpp"
#include "tawpipe/answers/schedule_entries.hpp"

namespace tawpipe::sim {

/// parse_entries() of `schedules`; or where these are none, of those that are compared by default.
std::vector<ScheduleChoice> compared_entries(const JobQuestion& request, const std::vector<std::string>& schedules,
                                             bool automatic);

/// [entry] the problem that it is compared on. Where baselines are, entries that name a schedule of
/// the TawPipe paper without options get those with which `tawpipe reproduce tawpipe` runs it, and
/// its microbatches where these are open.
std::vector<Problem> compared_problems(const Problem& problem, std::vector<ScheduleChoice>& entries, bool baselines);

}  // namespace tawpipe::sim
