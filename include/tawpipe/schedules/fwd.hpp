// The registry of schedules: names for headers that only refer to it.
// Not: the schedules' options.
#pragma once

namespace tawpipe::inline v0 {

class Registry;
struct ScheduleRequest;

}  // namespace tawpipe
