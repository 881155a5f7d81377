// A path's loads with each link once.
// Not: public; the cost models use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tawpipe/cost/cost_model.hpp"

namespace tawpipe::inline v0::detail {

/// Merges the loads of each link into one, in order of links.
inline void merge_loads(std::vector<LinkLoad>& loads) {
  std::sort(loads.begin(), loads.end(), [](const LinkLoad& a, const LinkLoad& b) { return a.link < b.link; });
  std::size_t kept = 0;
  for (const LinkLoad& load : loads) {
    if (kept > 0 && loads[kept - 1].link == load.link) {
      loads[kept - 1].weight += load.weight;
    } else {
      loads[kept++] = load;
    }
  }
  loads.resize(kept);
}

}  // namespace tawpipe::detail
