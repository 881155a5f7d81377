// What a larger, faster or other cluster would buy: each searched again, in one table.
// Not: single changes around the best plan (src/answers/plan_changes.hpp), nor the changes of a cluster
// (topology/cluster_change.hpp).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/answers/planned.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/topology/cluster_change.hpp"

namespace tawpipe::inline v0::answers {

/// An entry of --what-if.
struct WhatIf {
  ClusterChange change;
  Planned planned;           ///< its search, of a quarter of the budget
  std::optional<Plan> plan;  ///< the plan to use, or today's as it is where that is faster; none: nothing fits
  bool as_now = false;       ///< the layout and schedule are those of the cluster as it is
};

/// The entries with their problems, before the first search. @throws InputError  for an entry that cannot be
std::vector<WhatIf> what_if_entries(const PlanQuestion& question);

/// Searches each. @throws Stopped  if it was told to stop; InputError
std::vector<WhatIf> search_what_if(const Planned& now, std::vector<WhatIf> all,
                                   const std::function<bool(const PlanProgress&, const Planned&, std::string_view)>& watch);

/// The table, with the cluster as it is first.
std::string what_if_text(const Planned& now, const std::vector<WhatIf>& all, const TableStyle& style);
nlohmann::ordered_json what_if_json(const Planned& now, const std::vector<WhatIf>& all);

}  // namespace tawpipe::answers
