// The commands on plain task graphs: their arguments.
// Not: the graphs' format (simulate/task_graph_text.hpp).
#pragma once

#include <string>

#include "../request.hpp"

namespace tawpipe::sim {

/// `tawpipe simulate --graph FILE`.
struct GraphRequest {
  std::string file;   ///< tg1 or JSON, detected by its first character; "-" for standard input
  std::string json;   ///< the summary: a file, or "-" for standard output
  std::string times;  ///< `id start end` of each task in seconds: a file, or "-"
};
int run_graph_simulate(const GraphRequest& request);

/// `tawpipe export --graph FILE`: the schedule that the shared flags describe, as a graph. `out`
/// ending in .json gives JSON.
int run_graph_export(Request request, const std::string& out);

}  // namespace tawpipe::sim
