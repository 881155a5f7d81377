// Measured against predicted, as a picture.
// Not: the predictions.
#pragma once

#include <nlohmann/json.hpp>

#include "tawpipe/report/drawing.hpp"

namespace tawpipe::sim {

/// Each measured run as a point: across what was measured, upwards what is predicted; on the dashed
/// line both are the same.
/// @param answer  what --json of a `reproduce` command gives @throws InputError  if nothing was
/// predicted
Drawing reproduce_chart(const nlohmann::ordered_json& answer);

}  // namespace tawpipe::sim
