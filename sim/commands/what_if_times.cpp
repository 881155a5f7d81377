// `tawpipe what-if --out`: measured times of traced runs.
// Not: the questions about them (what_if.cpp).
#include <string>
#include <vector>

#include "../request.hpp"
#include "tawpipe/analysis/gpu_profile.hpp"
#include "tawpipe/replay/step_times.hpp"
#include "tawpipe/report/kineto_trace.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "what_if.hpp"

namespace tawpipe::sim {

MeasuredCost traced_times(const WhatIfRequest& request, const TracedRun& run) {
  if (request.cluster.empty()) throw InputError("--out needs --cluster, the one that the traces were taken on");
  const Cluster cluster = resolve_cluster(request.cluster, request.device, request.inter_node);
  const MeasuredWork work = work_of(request.setup);
  MeasuredCost cost;
  if (run.ranks.front().stage >= 0) {
    cost = measured_cost(run, layers_of(request.setup));
    cost.device = cluster.device(Rank{0}).name;
  } else {
    std::vector<GpuProfile> profiles;
    const KinetoNames names{.layer = request.layer};
    for (const std::string& path : request.traces)
      profiles.push_back(read_kineto_trace(read_text(path, "trace", 8 << 10), names, one_line(path)));
    cost = calibrate(profiles, cluster).calibration.cost;
    check_layers(cost, profiles, names);
  }
  cost.work = work;
  return cost;
}

}  // namespace tawpipe::sim
