// Schedules as --schedules names them: "tawpipe", "1f1b:overlap=on", "all".
// Not: their simulation.
#pragma once

#include <string>
#include <vector>

#include "../request.hpp"

namespace tawpipe::sim {

/// @param for_all  options for each schedule that has them
/// @param automatic  missing options are chosen
/// @throws InputError  for an unknown name, or an option that none of the schedules has.
std::vector<ScheduleChoice> parse_entries(const std::vector<std::string>& schedules, const ScheduleOptions& for_all,
                                          bool automatic);

/// The same of `schedules`; or where these are none, of those that are compared by default.
std::vector<ScheduleChoice> compared_entries(const Request& request, const std::vector<std::string>& schedules, bool automatic);

/// [entry] the problem that it is compared on. Where baselines are, entries that name a schedule of
/// the TawPipe paper without options get those with which `tawpipe reproduce tawpipe` runs it, and
/// its microbatches where these are open.
std::vector<Problem> compared_problems(const Problem& problem, std::vector<ScheduleChoice>& entries, bool baselines);

/// "tawpipe:buffers=3", as given.
std::string entry_label(const ScheduleChoice& entry);

}  // namespace tawpipe::sim
