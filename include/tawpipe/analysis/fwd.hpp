// Analyses of timelines: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct Bubble;
struct Communication;
struct CriticalPath;
struct DeviceMemory;
struct HeldTime;
struct PeakMemory;
struct RunCost;
struct Summary;
struct TimelineComparison;
struct Traffic;
struct TrainingRun;

}  // namespace tawpipe
