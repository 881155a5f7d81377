// The answer to a plan: the search, today's run for comparison, settings for another framework; as
// text and JSON.
// Not: the command's files and signals (plan.cpp).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "plan_frameworks.hpp"
#include "plan_what_if.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

/// Called between rounds of a search with its progress, what it is of (whose result is not there yet)
/// and its name, "planning"; false ends it with the best so far.
using PlanWatch = std::function<bool(const PlanProgress&, const Planned&, std::string_view)>;

struct PlanAnswer {
  Planned planned;
  std::optional<Today> today;      ///< with --today
  std::optional<Emitted> emitted;  ///< with --emit, if anything fits

  std::vector<WhatIf> what_if;  ///< with --what-if

  /// The keys of docs/output.md.
  nlohmann::ordered_json json() const;
  /// As the command prints it: with --emit only the settings.
  std::string text(const TableStyle& style) const;
  /// Why there is no plan; "" if there is one.
  std::string complaint() const;
  /// Whether a search was ended early.
  bool stopped() const { return planned.result.stopped || (emitted && emitted->planned.result.stopped); }
};

/// The request of the flags. @throws InputError  for anything missing or impossible
PlanRequest resolve_plan(const PlanFlags& flags);
/// One search. @param what  its name, for `watch`
Planned search_plan(const PlanFlags& flags, PlanRequest request, std::string_view what, const PlanWatch& watch);
/// The best plan of a search for each format of products that the flags list.
/// @param switches  the framework whose switches are taken, if any
Planned search_plans(const PlanFlags& flags, std::string_view what, const PlanWatch& watch,
                     std::optional<Framework> switches = {});
/// What is known where a search was told to stop and did not end: the best so far.
/// @throws InputError  if that is no answer to --emit
PlanAnswer answer_so_far(Planned best);
/// Everything that the flags request except --devices. What --today and changes take is left out once
/// it was told to stop.
/// @throws InputError  for anything missing or impossible; Stopped  before it had begun to search
PlanAnswer answer_plan(PlanFlags flags, const PlanWatch& watch);

}  // namespace tawpipe::sim
