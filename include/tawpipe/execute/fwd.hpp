// Lowered schedules and what executors make of them: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct BufferPlan;
struct ComputeCall;
struct Dataflow;
struct Iteration;
struct IterationResult;
struct LentParameters;
class Lowering;
struct MessagePlan;
class ParameterStore;
class Program;
struct RingPlan;
class Watch;
struct WatchOptions;

}  // namespace tawpipe
