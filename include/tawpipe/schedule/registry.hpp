// Schedules by name, with their options as text: what the command, files and sweeps build from.
// Not: the schedules that the library ships (schedule/shipped.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/schedule/catalogue_options.hpp"

namespace tawpipe::inline v0 {

/// Schedules by name. A value: copy it, add your own, hand it on.
class Registry {
 public:
  /// @throws InputError  if there is a schedule of that name already.
  void add(ScheduleInfo info) {
    for (const auto& known : schedules_) {
      if (known.name == info.name) throw InputError(concat("there is a schedule ", quote(info.name), " already"));
    }
    schedules_.push_back(std::move(info));
  }

  /// In the order in which they were added.
  const std::vector<ScheduleInfo>& schedules() const { return schedules_; }

  /// The schedule of that name. @throws InputError  naming the nearest if there is none.
  const ScheduleInfo& info(std::string_view name) const {
    std::vector<std::string> names;
    for (const auto& info : schedules_) {
      if (info.name == name) return info;
      names.push_back(info.name);
    }
    throw InputError(unknown_name("schedule", name, names));
  }

  /// Builds the schedule of that name.
  /// @throws InputError  for an unknown name or option, or a size that the schedule cannot have.
  Schedule build(std::string_view name, const ScheduleRequest& request) const {
    const ScheduleInfo& info = this->info(name);
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
    if (tasks > most_tasks) {
      throw InputError(
          concat("an iteration of ", request.workload.microbatches(), " microbatches on ", request.nodes.ranks(),
                 " ranks is too large for ", name,
                 ": more than 2^26 tasks, which take over 16 GB of memory; choose a larger microbatch or fewer devices"));
    }
    detail::OptionReader options{info.name, request.options};
    return info.make(request, options);
  }

 private:
  static constexpr double most_tasks = 67108864;  // 2^26, at 150 to 300 bytes each

  std::vector<ScheduleInfo> schedules_;
};

}  // namespace tawpipe
