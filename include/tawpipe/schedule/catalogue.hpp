// All schedules by name, with their options as text: what the command line, files and sweeps build from.
// Not: the entries (schedule/catalogue_entries.hpp) nor the builders (schedule/schedules/).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/schedule/catalogue_options.hpp"

// The entries refer to every builder there is. A program of many files may define TAWPIPE_COMPILED_CATALOGUE in all of them, and
// include schedule/catalogue_entries.hpp in one: they are then compiled once.
#ifdef TAWPIPE_COMPILED_CATALOGUE
#define TAWPIPE_CATALOGUE_INLINE
#else
#define TAWPIPE_CATALOGUE_INLINE inline
#endif

namespace tawpipe {

/// Every schedule there is.
TAWPIPE_CATALOGUE_INLINE const std::vector<ScheduleInfo>& catalogue();

/// The schedule of that name. @throws InputError  naming the nearest if there is none.
inline const ScheduleInfo& schedule_info(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& info : catalogue()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  throw InputError(unknown_name("schedule", name, names));
}

namespace detail {

inline constexpr double most_tasks = 67108864;  // 2^26, at 150 to 300 bytes each

}  // namespace detail

/// Builds the schedule of that name.
/// @throws InputError  for an unknown name or option, or a size that the schedule cannot have.
inline Schedule build_schedule(std::string_view name, const ScheduleRequest& request) {
  const ScheduleInfo& info = schedule_info(name);
  const double ranks = request.nodes.ranks();
  const auto microbatches = static_cast<double>(request.workload.microbatches());
  // Each rank or stage meets each microbatch in each direction; WeiPipe's three flows cross every rank in every turn, of
  // which the naive variant has twice as many; its zero-bubble variants split their backwards.
  const double stages = request.workload.is_abstract() ? ranks : std::max<double>(ranks, request.workload.model().layers);
  double tasks = 2.0 * stages * microbatches;
  if (name.starts_with("weipipe")) {
    const double each = name == "weipipe" ? 5 : name == "weipipe-naive" ? 8 : 6;
    tasks = each * ranks * (microbatches + ranks);
  }
  if (tasks > detail::most_tasks) {
    throw InputError(
        concat("an iteration of ", request.workload.microbatches(), " microbatches on ", request.nodes.ranks(),
               " ranks is too large for ", name,
               ": more than 2^26 tasks, which take over 16 GB of memory; choose a larger microbatch or fewer devices"));
  }
  detail::OptionReader options{info.name, request.options};
  return info.make(request, options);
}

}  // namespace tawpipe

#ifndef TAWPIPE_COMPILED_CATALOGUE
#include "tawpipe/schedule/catalogue_entries.hpp"
#endif
