// Models and the work of their stages: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct Batch;
struct DecoderConstants;
struct HuggingFaceConfig;
struct LayerStack;
class ParameterBlocks;
class ParameterOrder;
struct ParameterRange;
class ParameterSpace;
struct StageWork;
struct Transformer;
class Workload;

}  // namespace tawpipe
