// Traced runs and questions about them: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct TimeScale;
struct TracedEvent;
struct TracedRank;
struct TracedRun;
struct TracedStep;
class TraceRecorder;
struct WhatIf;
struct WhatIfAnswer;

}  // namespace tawpipe
