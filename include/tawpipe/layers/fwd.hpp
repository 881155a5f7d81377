// The decoder's options, optimizer and learning rate: names for headers that only refer to them.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0::layers {

struct AdamW;
struct AdamWStep;
struct LearningRate;

}  // namespace tawpipe::layers
