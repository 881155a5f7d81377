// Builds what is executed. Not: executing it (execution.hpp).
#include "execution.hpp"

#include <algorithm>

#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::sim {

DeviceGroups resolve_groups(const std::string& cluster) { return resolve_cluster(cluster).groups_by_node(); }

Schedule execution_schedule(const ExecutionRequest& request, ExecutionModel& model, const DeviceGroups& nodes) {
  model.model.dtype = execution_dtype(request);
  const std::int64_t width = size_bytes(model.model.dtype);
  Workload workload{model.model, model.batch, parse_recompute(request.recompute)};
  workload.over_devices(nodes.ranks());
  // 16-bit weights have gradients and a copy of themselves in f32.
  workload.parameter_bytes(
      {.weight = width, .gradient = std::max<std::int64_t>(width, 4), .optimizer = width < 4 ? 12 : 2 * width});
  Schedule schedule = build_schedule(
      request.schedule, {.workload = workload, .nodes = nodes, .options = parse_options(request.options), .device_memory = {}});
  if (request.gradient_norm) schedule = with_gradient_norm(schedule);
  const Diagnostics found = validate(schedule);
  if (!found.ok()) {
    const Finding& first = found.findings().front();
    throw ScheduleError(
        concat("the schedule is not valid: ", first.code, ": ", first.message, "; tawpipe validate shows all findings"));
  }
  return schedule;
}

}  // namespace tawpipe::sim
