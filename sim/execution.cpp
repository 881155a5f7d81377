// Builds what is executed. Not: executing it (execution.hpp).
#include "execution.hpp"

#include <algorithm>
#include <cstdint>

#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::sim {

DeviceGroups resolve_groups(const std::string& cluster) { return resolve_cluster(cluster).groups_by_node(); }

Schedule execution_schedule(const ExecutionRequest& request, ExecutionModel& model, const DeviceGroups& nodes) {
  model.model.dtype = execution_dtype(request);
  model.model.loss_chunk = static_cast<int>(std::min<std::int64_t>(request.loss_chunk, Transformer::max_vocab + 1));
  Workload workload{model.model, model.batch, parse_recompute(request.recompute)};
  workload.over_devices(nodes.ranks());
  workload.parameter_bytes(trained_bytes(model.model.dtype));
  Schedule schedule = build_schedule(request.schedule, {.workload = workload,
                                                        .nodes = nodes,
                                                        .options = parse_options(request.options),
                                                        .offload = parse_offload(request.offload)});
  if (request.gradient_norm) schedule = with_gradient_norm(schedule);
  const Diagnostics found = validate(schedule);
  if (!found.ok()) {
    const Finding& first = found.findings().front();
    throw ScheduleError(
        concat("the schedule is not valid: ", first.code, ": ", first.message, "; tawpipe validate shows all findings"));
  }
  return schedule;
}

Timeline expected_timeline(const std::string& cluster, const Schedule& schedule) {
  return simulate(schedule, resolve_cluster(cluster), RooflineCost{});
}

}  // namespace tawpipe::sim
