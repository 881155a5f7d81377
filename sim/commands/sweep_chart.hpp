// A sweep as a picture, and the values of its axes as text.
// Not: the sweep (sweep.cpp) nor the charts of its page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tawpipe/report/drawing.hpp"
#include "tawpipe/search/sweep_axis.hpp"

namespace tawpipe::sim {

/// A value of the axis with its unit; a name by its index.
std::string value_text(const SweepAxis& axis, double value);

/// Throughput over the axis with the most values, or time without a model; a line for each
/// schedule, and for each value of the other axes.
/// @param answer  the --json output @throws InputError  if no point is possible
Drawing sweep_chart(const std::vector<SweepAxis>& axes, const nlohmann::ordered_json& answer);

}  // namespace tawpipe::sim
