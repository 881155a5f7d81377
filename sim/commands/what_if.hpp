// Arguments and entry point of `tawpipe what-if`.
// Not: its flags (../instruments.cpp).
#pragma once

#include <string>
#include <vector>

#include "measured_setup.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/replay/traced_run.hpp"

namespace tawpipe::sim {

struct WhatIfRequest {
  std::vector<std::string> traces;      ///< files of PyTorch's profiler, one a rank, or one straggler trace
  bool partial = false;                 ///< --partial: traces of ranks may be missing
  std::vector<std::string> stragglers;  ///< --without-straggler RANK|stage:K|dp:K|worst:N|worst:P%|all
  std::vector<std::string> scales;      ///< --scale KIND=FACTOR
  double bandwidth = 0;                 ///< --scale-bandwidth FACTOR; 0: not given
  bool no_gaps = false;                 ///< --no-gaps
  bool together = false;                ///< --together: all questions at once, not one by one
  MeasuredSetup setup;                  ///< --model, --sequence, ... of the traced run, for --out
  std::string layer = "layer";          ///< --layer: what a profiler's traces call a layer, for --out
  std::string cluster;                  ///< --cluster where the traces were taken, for --out
  std::string device;                   ///< --device, of that cluster
  std::string inter_node;               ///< --inter-node, likewise
  std::string out;                      ///< --out FILE|-: measured times
  std::string json;                     ///< --json FILE|-
  std::string report;                   ///< --report FILE.html
  std::string gantt;                    ///< --gantt FILE.svg|.png
};

/// How long traced steps would take under other circumstances. @throws InputError  for invalid
/// traces or ones that do not match.
int run_what_if(const WhatIfRequest& request);
/// Measured times for --cost measured:FILE, from a straggler trace's stages or a profiler's layers.
/// @throws InputError  naming the flag that is missing, or that no layer was found
MeasuredCost traced_times(const WhatIfRequest& request, const TracedRun& run);

}  // namespace tawpipe::sim
