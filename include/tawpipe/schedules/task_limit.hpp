// How many tasks an iteration may have: larger requests are refused before any task is made.
// Not: limits on anything else.
#pragma once

#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/workload.hpp"

namespace tawpipe::inline v0::schedules {

/// 2^26, at 150 to 300 bytes each.
inline constexpr double max_tasks = 67108864;

/// @throws InputError  if that many tasks are too many for the schedule of that name.
inline void check_tasks(std::string_view schedule, double tasks, const Workload& workload, int ranks) {
  if (tasks <= max_tasks) return;
  throw InputError(
      concat("an iteration of ", workload.microbatches(), " microbatches on ", ranks, " ranks is too large for ", schedule,
             ": more than 2^26 tasks, which take over 16 GB of memory; choose a larger microbatch or fewer devices"));
}

/// The same for an option that gives a number of pieces, each of which processes each microbatch.
/// @param pieces  its name, such as "chunks"
inline void check_tasks(std::string_view pieces, int count, double tasks, const Workload& workload, int ranks) {
  if (tasks <= max_tasks) return;
  throw InputError(concat(pieces, "=", count, " on ", ranks, " ranks with ", workload.microbatches(),
                          " microbatches are more than 2^26 computations; choose fewer ", pieces, " or a larger microbatch"));
}

}  // namespace tawpipe::schedules
