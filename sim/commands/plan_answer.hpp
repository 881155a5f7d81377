// What a plan is answered with: the search, what is run today beside it, settings for another framework; as text and JSON.
// Not: the command's files and signals (plan.cpp).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "plan_frameworks.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

/// Told between rounds of a search how it stands and what it is, "planning"; false ends it with what was found.
using PlanWatch = std::function<bool(const PlanProgress&, std::string_view)>;

struct PlanAnswer {
  Planned planned;
  std::optional<Today> today;      ///< with --today
  std::optional<Emitted> emitted;  ///< with --emit, where anything fits

  /// The keys of docs/output.md.
  nlohmann::ordered_json json() const;
  /// As the command prints it: with --emit the settings alone.
  std::string text(const TableStyle& style) const;
  /// Why there is no plan; "" where there is one.
  std::string complaint() const;
};

/// The request that the flags are. @throws InputError  for anything missing or impossible
PlanRequest resolve_plan(const PlanFlags& flags);
/// One search. @param what  it is, for `watch`
Planned search_plan(const PlanFlags& flags, PlanRequest request, std::string_view what, const PlanWatch& watch);
/// All that the flags ask for but --devices. @throws InputError  for anything missing or impossible
PlanAnswer answer_plan(PlanFlags flags, const PlanWatch& watch);

}  // namespace tawpipe::sim
