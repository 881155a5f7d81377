// The schedules that the library ships, found once for each of our own programs.
// Not: part of the library.
#pragma once

#include <string_view>

#include "tawpipe/schedules/shipped.hpp"

namespace tawpipe {

inline const Registry& shipped() {
  static const Registry all = shipped_schedules();
  return all;
}

inline Schedule build_schedule(std::string_view name, const ScheduleRequest& request) { return shipped().build(name, request); }

}  // namespace tawpipe
