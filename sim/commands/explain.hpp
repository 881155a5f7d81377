// `tawpipe explain SCHEDULE`: half a page about a schedule, with a picture of a small one.
// Not: predictions for a cluster (simulate.cpp).
#pragma once

#include <string>

namespace tawpipe::sim {

/// @throws InputError  for an unknown schedule, with the nearest
int run_explain(const std::string& schedule);

}  // namespace tawpipe::sim
