// The problem at one point of a sweep.
// Not: its prediction (sweep.cpp).
#pragma once

#include <vector>

#include "../request.hpp"
#include "tawpipe/search/sweep_axis.hpp"

namespace tawpipe::sim {

/// One point of the sweep: the value of each axis, as a number or an index of the names.
using SweepPoint = std::vector<double>;

/// The problem with the point's values, except the schedules' options.
/// @throws InputError  if that is impossible
Problem swept_problem(const Request& base, const std::vector<SweepAxis>& axes, const SweepPoint& point);

}  // namespace tawpipe::sim
