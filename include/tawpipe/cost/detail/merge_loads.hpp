// A path's loads with each link once.
// Not: public; the cost models use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/cost/cost_model.hpp"

namespace tawpipe::inline v0::detail {

/// merge_loads() of more loads than the cluster has links, as those of an all-to-all among many.
/// @param links  beyond all their numbers
inline void add_up_loads(std::vector<LinkLoad>& loads, std::size_t links) {
  std::vector<double> weights(links, 0);
  for (const LinkLoad& load : loads) weights[static_cast<std::size_t>(load.link)] += load.weight;
  loads.clear();
  for (std::size_t link = 0; link < links; ++link) {
    if (weights[link] > 0) loads.push_back({LinkId{static_cast<std::int32_t>(link)}, weights[link]});
  }
}

/// Merges the loads of each link into one, in order of links. @pre weights are above 0
inline void merge_loads(std::vector<LinkLoad>& loads) {
  std::size_t links = 0;
  for (const LinkLoad& load : loads) links = std::max(links, static_cast<std::size_t>(load.link) + 1);
  if (loads.size() > links) return add_up_loads(loads, links);
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
