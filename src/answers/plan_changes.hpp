// What one change of the cluster or of a constraint would buy, around the best plan.
// Not: changes of a framework's settings (plan_frameworks.hpp).
#pragma once

#include <vector>

#include "tawpipe/answers/planned.hpp"

namespace tawpipe::inline v0::answers {

/// Single changes, the most gain first: links and products that are a tenth faster, with the best plan
/// as it is; more memory, 8-bit products and host memory where they are possible, with the best plan's
/// schedule and mesh, searched again with a small budget. Empty where nothing fits.
std::vector<Planned::Change> changes_around(const Planned& planned);

}  // namespace tawpipe::answers
