// The schedules that the library ships, compiled once for our own programs of many files.
// Not: part of the library, which is headers.
#pragma once

#include <string_view>

#include "tawpipe/schedules/registry.hpp"

namespace tawpipe {

const Registry& shipped();

inline Schedule build_schedule(std::string_view name, const ScheduleRequest& request) { return shipped().build(name, request); }

}  // namespace tawpipe
