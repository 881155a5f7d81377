// What executors pass to layers, optimizers and sources of data: names for headers that only refer
// to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct BackwardArgs;
struct DeviceUpdateArgs;
struct ForwardArgs;
struct StepScalars;
struct UpdateArgs;

}  // namespace tawpipe
