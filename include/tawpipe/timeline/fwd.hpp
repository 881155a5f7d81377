// Timelines: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct RecordedTimeline;
struct Timeline;

}  // namespace tawpipe
