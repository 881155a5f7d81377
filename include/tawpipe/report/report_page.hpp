// What a page for a browser shows, as a value: a command's answer and timelines.
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

/// More tasks than a browser draws fluently.
inline constexpr std::size_t max_report_tasks = 2'500'000;

/// One timeline of a report. What it refers to must outlive it.
struct ReportEntry {
  std::string label;  ///< "1f1b:overlap=on"
  const Schedule* schedule = nullptr;
  const Timeline* timeline = nullptr;
  const Summary* summary = nullptr;
  const Cluster* cluster = nullptr;
  Mesh mesh{};                ///< whose axes the ranks stand on
  bool limits_memory = true;  ///< whether the cluster's devices are those that it ran on
  std::string note{};         ///< shown above the timeline

  static ReportEntry of(std::string label, const Prediction& prediction, const Problem& problem) {
    return {std::move(label), &prediction.schedule, &prediction.timeline, &prediction.summary, &problem.cluster, problem.mesh};
  }
};

/// What a page shows.
struct ReportPage {
  std::string command;                 ///< whose answer it is: simulate, compare, plan, sweep, train, doctor or what-if
  std::string title;                   ///< "tawpipe on dgx-h100*4"
  std::string problem;                 ///< lines that say what was asked, shown as they are
  nlohmann::ordered_json answer;       ///< what the command's --json gives
  std::vector<std::string> notes{};    ///< sentences, shown with the answer
  std::vector<ReportEntry> entries{};  ///< timelines, one below the other on one clock
};

}  // namespace tawpipe
