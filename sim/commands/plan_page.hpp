// The page of `tawpipe plan`.
// Not: the contents of a page (tawpipe/report/).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../report_file.hpp"
#include "tawpipe/answers/planned.hpp"

namespace tawpipe::sim {

using namespace answers;

/// The page of one search, or of one for each number of devices. @param answer  the --json output
/// @param verdict  verdict_text(), "" without one. @param draws  with timelines, which are simulated again. @pre not all.empty()
void write_plan_page(ReportFile& file, const std::vector<Planned>& all, nlohmann::ordered_json answer, std::string verdict,
                     bool draws);

}  // namespace tawpipe::sim
