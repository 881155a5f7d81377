// Schedules as they are listed: "tawpipe", "1f1b:overlap=on", "all".
// Not: their simulation.
#pragma once

#include <string>
#include <vector>

#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0::answers {

/// @param for_all  options for each schedule that has them
/// @param automatic  missing options are chosen
/// @throws InputError  for an unknown name, or an option that none of the schedules has.
std::vector<ScheduleChoice> parse_entries(const std::vector<std::string>& schedules, const ScheduleOptions& for_all,
                                          bool automatic);

/// "tawpipe:buffers=3", as given.
std::string entry_label(const ScheduleChoice& entry);

}  // namespace tawpipe::answers
