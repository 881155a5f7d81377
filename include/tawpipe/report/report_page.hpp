// The contents of a page for a browser, as a value: a command's result and timelines.
// Not: the page (html_report.hpp).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// The limit on tasks that a browser can draw fluently.
inline constexpr std::size_t max_report_tasks = 2'500'000;

/// One timeline of a report. What it refers to must outlive it.
struct ReportEntry {
  std::string label;  ///< "1f1b:overlap=on"
  const Schedule* schedule = nullptr;
  const Timeline* timeline = nullptr;
  const Summary* summary = nullptr;
  const Cluster* cluster = nullptr;
  Mesh mesh{};                ///< the mesh of the ranks
  bool limits_memory = true;  ///< whether it ran on the cluster's devices
  std::string note{};         ///< shown above the timeline

  static ReportEntry of(std::string label, const Prediction& prediction, const Problem& problem) {
    return {std::move(label), &prediction.schedule, &prediction.timeline, &prediction.summary, &problem.cluster, problem.mesh};
  }
};

/// The contents of a page.
struct ReportPage {
  /// the command: simulate, compare, plan, sweep, train, doctor or what-if
  std::string command;
  std::string title;                   ///< "tawpipe on dgx-h100*4"
  std::string problem;                 ///< lines that describe the problem, shown verbatim
  nlohmann::ordered_json answer;       ///< the command's --json output
  std::string verdict{};               ///< the answer in sentences, a line each; "": the result says it
  std::vector<std::string> notes{};    ///< sentences, shown with the result
  std::vector<ReportEntry> entries{};  ///< timelines, below one another, on one clock
  /// the whole command as a shell takes it, "tawpipe plan --cluster 2x8"; "": not made by a command
  std::string invocation{};
  std::string date{};  ///< when it was made, "2026-03-01"; "": not said
  /// settings of frameworks that run what to use: the framework, and its file
  std::vector<std::pair<std::string, std::string>> settings{};
};

}  // namespace tawpipe
