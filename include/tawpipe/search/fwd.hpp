// The problem and result of the one call: names for headers that only refer to them.
// Not: the search (search/choose.hpp).
#pragma once

namespace tawpipe::inline v0 {

struct Chosen;
class Predictor;
struct Prediction;
struct Problem;
struct Remedy;

}  // namespace tawpipe
