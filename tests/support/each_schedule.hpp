// Every schedule of the catalogue in several sizes, for tests that hold of all; with its paper's
// order and a searched one.
// Not: the schedules' other options.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"

namespace support {

/// The standard, and an order that is searched where the schedule has one.
inline std::vector<tawpipe::ScheduleOptions> options_of(const tawpipe::ScheduleInfo& info) {
  std::vector<tawpipe::ScheduleOptions> options{{}};
  for (const auto& option : info.options) {
    if (option.values == "paper|searched") options.push_back({{"order", "searched"}, {"moves", "40"}});
  }
  return options;
}

/// Calls `visit(schedule)` for each of the catalogue's schedules on each list of group sizes, but
/// for those that it refuses. Those whose order can be searched are visited with such an order too.
template <class Visit>
void for_each_schedule(const tawpipe::Workload& work, const std::vector<std::vector<std::int32_t>>& sizes, Visit&& visit) {
  int built = 0;
  for (const auto& info : tawpipe::shipped().schedules()) {
    for (const auto& nodes : sizes) {
      for (const auto& options : options_of(info)) {
        std::optional<tawpipe::Schedule> schedule;
        try {
          schedule =
              tawpipe::build_schedule(info.name, {.workload = work, .nodes = tawpipe::DeviceGroups{nodes}, .options = options});
        } catch (const tawpipe::InputError&) {
          continue;
        }
        built += options.empty() ? 1 : 0;
        CAPTURE(std::string{info.name});
        CAPTURE(options.size());
        CAPTURE(schedule->ranks());
        CAPTURE(nodes.size());
        visit(*schedule);
      }
    }
  }
  CHECK(built * 10 > static_cast<int>(tawpipe::shipped().schedules().size() * sizes.size()) * 8);  // few sizes are refused
}

}  // namespace support
