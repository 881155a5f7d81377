// The engine and its graphs: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct EngineGraph;
struct EngineHolds;
struct FoldedRun;
struct FoldedSimulation;
class TaskGraph;

}  // namespace tawpipe
