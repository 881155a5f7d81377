// Schedules, their tasks and what builds them: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

class Arrivals;
struct Buffer;
class Content;
struct Mesh;
class Schedule;
class ScheduleBuilder;
struct Task;
struct Use;

}  // namespace tawpipe
