// Every schedule of the catalogue in several sizes, for tests that hold of all.
// Not: the schedules' options.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"

namespace support {

/// Calls `visit(schedule)` for each of the catalogue's schedules on each list of group sizes, but for those that it refuses.
template <class Visit>
void for_each_schedule(const tawpipe::Workload& work, const std::vector<std::vector<std::int32_t>>& sizes, Visit&& visit) {
  int built = 0;
  for (const auto& info : tawpipe::shipped().schedules()) {
    for (const auto& nodes : sizes) {
      std::optional<tawpipe::Schedule> schedule;
      try {
        schedule = tawpipe::build_schedule(info.name, {.workload = work, .nodes = tawpipe::DeviceGroups{nodes}, .options = {}});
      } catch (const tawpipe::InputError&) {
        continue;
      }
      ++built;
      CAPTURE(std::string{info.name});
      CAPTURE(schedule->ranks());
      CAPTURE(nodes.size());
      visit(*schedule);
    }
  }
  CHECK(built * 10 > static_cast<int>(tawpipe::shipped().schedules().size() * sizes.size()) * 8);  // few sizes are refused
}

}  // namespace support
