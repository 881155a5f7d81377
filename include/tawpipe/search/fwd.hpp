// The one call's problem and answer: names for headers that only refer to them.
// Not: how it is found (search/choose.hpp).
#pragma once

namespace tawpipe::inline v0 {

struct Chosen;
class Predictor;
struct Prediction;
struct Problem;

}  // namespace tawpipe
