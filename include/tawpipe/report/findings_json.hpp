// The findings of a validation as JSON: the stable, documented form for machines
// (docs/validation.md).
// Not: findings as text (Diagnostics::text).
#pragma once

#include <nlohmann/json.hpp>
#include <utility>

#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// An array of objects: severity, code, task, rank (null if there is none), message, help.
inline nlohmann::ordered_json to_json(const Diagnostics& diagnostics) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& finding : diagnostics.findings()) {
    nlohmann::ordered_json one;
    one["severity"] = name(finding.severity);
    one["code"] = finding.code;
    one["task"] = finding.task == none<TaskId> ? nlohmann::ordered_json{} : nlohmann::ordered_json(number(finding.task));
    one["rank"] = finding.rank == none<Rank> ? nlohmann::ordered_json{} : nlohmann::ordered_json(number(finding.rank));
    one["message"] = finding.message;
    one["help"] = finding.help;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace tawpipe
