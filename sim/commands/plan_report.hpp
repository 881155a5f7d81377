// A search of `tawpipe plan` as text and JSON.
// Not: the search itself (plan.cpp).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan.hpp"
#include "tawpipe/search/plan.hpp"

namespace tawpipe::sim {

/// One search and what it is printed from.
struct Planned {
  PlanFlags flags;
  PlanRequest request;
  PlanResult result;
  double bound_s = 0;  ///< no schedule of any kind is faster (search/bound.hpp)

  const Summary& best() const { return result.plans.front().summary; }
};

/// The keys that docs/output.md lists.
nlohmann::ordered_json result_json(const Planned& planned);
/// The best plans, what limits them and why the others lose.
std::string result_text(const Planned& planned);
/// A line for each number of devices.
std::string devices_table(const std::vector<Planned>& all);

}  // namespace tawpipe::sim
