// What is told of schedules and timelines: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct Bubble;
struct Communication;
struct CriticalPath;
class Diagnostics;
struct Finding;
struct PeakMemory;
struct Summary;
struct TimelineComparison;
struct Traffic;
struct ValidateOptions;

}  // namespace tawpipe
