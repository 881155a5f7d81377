// Findings about schedules and about imported orders: names for headers that only refer to them.
// Not: templates, options of single checks and private helpers.
#pragma once

namespace tawpipe::inline v0 {

class Diagnostics;
struct Finding;
struct ValidateOptions;

}  // namespace tawpipe
